package desired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/hub/store"
)

// Learned is what was learned from an environment record.
type Learned struct {
	hubapi.Learned
	// streams are those of the record, and changed those with a release that was stored.
	streams, changed []bundle.Stream
}

// learn verifies the record at desc with the releases that it names, and stores what is new. May, if it is not nil, is asked
// before anything is stored. The record is stored even if some of its releases are refused, since its signature covers their
// digests; of an archive it is not stored as long as content of them is missing. The error is a *bundle.Refusal if the
// record is refused.
func (f *Follower) learn(ctx context.Context, at place, environment string, desc ocispec.Descriptor, may func(platform, environment string) error) (Learned, error) {
	done := Learned{Learned: hubapi.Learned{Environment: environment, Record: desc.Digest}}
	if err := f.load(ctx); err != nil {
		return done, err
	}
	repo, err := at.repository(bundle.EnvironmentRepository(environment))
	if err != nil {
		return done, err
	}
	claimed, err := bundle.ReadEnvironment(ctx, repo, desc) // to know the platform, by whose trust it is judged
	if err != nil {
		return done, err
	}
	done.Platform = claimed.Record.Platform
	if claimed.Record.Environment != environment {
		return done, refuse(bundle.WrongEnvironment, "record is for environment %q", claimed.Record.Environment)
	}
	if may != nil {
		if err := may(done.Platform, environment); err != nil {
			return done, err
		}
	}
	r := claimed.Record
	done.streams = streamsOf(r)
	if f.hasAll(desc.Digest, r) {
		done.Stored, done.Newest = true, f.isNewest(r, desc.Digest)
		return done, nil
	}
	j, err := f.judgeOf(ctx, at, done.Platform)
	if err != nil {
		return done, err
	}
	record, err := f.readRecord(ctx, repo, desc, environmentOf(r), j, true)
	if err != nil {
		return done, err
	}
	for _, s := range done.streams {
		if err := f.learnReleases(ctx, at, s, r.ReleasesOf(s.ClusterType), j, &done); err != nil {
			return done, err
		}
	}
	if _, sent := at.(inArchive); sent && len(done.MissingContent()) > 0 {
		return done, nil
	}
	if done.New, err = f.storeRecord(ctx, record); err != nil {
		return done, err
	}
	done.Stored = true
	if done.Newest = f.isNewest(r, desc.Digest); done.New {
		f.log.Info("environment record learned", "platform", done.Platform, "environment", environment, "digest", desc.Digest, "newest", done.Newest, "releases", done.Releases)
	}
	f.logRefused(done)
	return done, nil
}

func refuse(reason bundle.Reason, format string, args ...any) *bundle.Refusal {
	return &bundle.Refusal{Reason: reason, Message: bundle.Clip(fmt.Sprintf(format, args...))}
}

// streamsOf returns the streams of a record's releases, by cluster type.
func streamsOf(r bundle.EnvironmentRecord) (all []bundle.Stream) {
	for _, name := range r.Types() {
		all = append(all, bundle.Stream{Platform: r.Platform, Environment: r.Environment, ClusterType: name})
	}
	return all
}

// hasAll reports whether a record is stored, with all releases that it names.
func (f *Follower) hasAll(d digest.Digest, r bundle.EnvironmentRecord) bool {
	if !f.known.hasRecord(d) {
		return false
	}
	for _, name := range r.Types() {
		for _, release := range r.ReleasesOf(name) {
			if !f.known.hasRelease(release) {
				return false
			}
		}
	}
	return true
}

func (f *Follower) isNewest(r bundle.EnvironmentRecord, d digest.Digest) bool {
	return f.known.newestRecord(environmentOf(r)).Digest == d
}

func (f *Follower) logRefused(done Learned) {
	subject := "releases of " + done.Platform + "/" + done.Environment
	if len(done.Refused) == 0 {
		f.said.forget(subject)
		return
	}
	one := done.Refused[0]
	if f.said.first(subject, fmt.Sprint(done.Record, len(done.Refused), one)) {
		f.log.Warn("releases that a record names are not learned", "platform", done.Platform, "environment", done.Environment, "record", done.Record,
			"releases", len(done.Refused), "first", one.ClusterType, "digest", one.Digest, "reason", one.Reason, "message", one.Message)
	}
}

// readRecord verifies a record of an environment. New says that the trust in force has to cover it.
func (f *Follower) readRecord(ctx context.Context, repo repository, desc ocispec.Descriptor, of bundle.Stream, j judge, new bool) (store.PublishedRecord, error) {
	v, err := verified(j, new, func(t bundle.Trust) (*bundle.VerifiedEnvironment, error) {
		return bundle.VerifyEnvironment(ctx, repo, desc, t)
	})
	if err != nil {
		return store.PublishedRecord{}, err
	}
	switch got := environmentOf(v.Record); {
	case got != of:
		return store.PublishedRecord{}, refuse(bundle.WrongEnvironment, "record is for environment %q of platform %q", got.Environment, got.Platform)
	case v.Record.Epoch != j.force.Epoch:
		return store.PublishedRecord{}, refuse(bundle.OldEpoch, "record has epoch %d, the trust in force has %d", v.Record.Epoch, j.force.Epoch)
	}
	return store.PublishedRecord{Digest: desc.Digest, EnvironmentRecord: v.Record, KeyIDs: v.KeyIDs, SeenAt: f.opts.Now().UTC()}, nil
}

func (f *Follower) storeRecord(ctx context.Context, r store.PublishedRecord) (bool, error) {
	added, err := f.store.AddRecord(ctx, r)
	if err != nil {
		return false, fmt.Errorf("store record %s: %w", r.Digest, err)
	}
	f.known.addRecord(r)
	return added, nil
}

// learnReleases stores the releases of a stream that are not known yet.
func (f *Follower) learnReleases(ctx context.Context, at place, s bundle.Stream, named []digest.Digest, j judge, done *Learned) error {
	named = slices.DeleteFunc(named, f.known.hasRelease)
	if len(named) == 0 {
		return nil
	}
	repo, err := at.repository(s.Repository())
	if err != nil {
		done.Refused = append(done.Refused, hubapi.RefusedRelease{ClusterType: s.ClusterType, Digest: named[0], Reason: string(bundle.BadContent), Message: bundle.Clip(err.Error())})
		return nil
	}
	var all []store.PublishedRelease
	for _, d := range named {
		r, refused, err := f.readRelease(ctx, repo, s, d.String(), j)
		switch {
		case err != nil:
			return err
		case refused != nil:
			refused.Digest = d
			done.Refused = append(done.Refused, *refused)
		default:
			all = append(all, r)
		}
	}
	added, err := f.storeReleases(ctx, all)
	if done.Releases += added; added > 0 {
		done.changed = append(done.changed, s)
	}
	return err
}

func (f *Follower) storeReleases(ctx context.Context, all []store.PublishedRelease) (int, error) {
	if len(all) == 0 {
		return 0, nil
	}
	added, err := f.store.AddReleases(ctx, all)
	if err != nil {
		return 0, fmt.Errorf("store releases: %w", err)
	}
	for _, r := range all {
		f.known.addRelease(r)
	}
	return added, nil
}

// readRelease verifies the release that a tag or digest names, and reads what it has. Refused says why it is not to be
// stored; the error is that of a place that does not answer, or of the store.
func (f *Follower) readRelease(ctx context.Context, repo repository, s bundle.Stream, reference string, j judge) (r store.PublishedRelease, refused *hubapi.RefusedRelease, err error) {
	var missing digest.Digest
	desc, err := repo.Resolve(ctx, reference)
	if err == nil {
		r, missing, err = f.readResolved(ctx, repo, s, desc, j)
	} else if d := digest.Digest(reference); d.Validate() == nil {
		missing = d
	}
	var refusal *bundle.Refusal
	switch {
	case err == nil:
		return r, nil, nil
	case errors.As(err, &refusal):
		return r, &hubapi.RefusedRelease{ClusterType: s.ClusterType, Digest: desc.Digest, Reason: string(refusal.Reason), Message: refusal.Message}, nil
	case errors.Is(err, errdef.ErrNotFound):
		return r, &hubapi.RefusedRelease{ClusterType: s.ClusterType, Digest: desc.Digest, Reason: hubapi.ReasonMissing, Message: bundle.Clip(err.Error()), Missing: missing}, nil
	}
	return r, nil, err
}

// readResolved is readRelease for a descriptor. With an error it returns the digest of the content that it was reading.
func (f *Follower) readResolved(ctx context.Context, repo repository, s bundle.Stream, desc ocispec.Descriptor, j judge) (store.PublishedRelease, digest.Digest, error) {
	none := store.PublishedRelease{}
	v, err := verified(j, false, func(t bundle.Trust) (*bundle.Verified, error) {
		return bundle.Verify(ctx, repo, desc, t)
	})
	switch {
	case err != nil:
		return none, desc.Digest, err
	case v.Release.Stream() != s:
		got := v.Release.Stream()
		return none, desc.Digest, refuse(bundle.WrongClusterType, "release is for %s/%s/%s", got.Platform, got.Environment, got.ClusterType)
	case v.Release.Epoch != j.force.Epoch:
		return none, desc.Digest, refuse(bundle.OldEpoch, "release has epoch %d, the trust in force has %d", v.Release.Epoch, j.force.Epoch)
	}
	r := store.PublishedRelease{
		Digest: desc.Digest, Release: v.Release, Message: bundle.MessageOf(v.Manifest), KeyIDs: v.KeyIDs, SeenAt: f.opts.Now().UTC(),
	}
	if other := f.known.withContent(v.Release.Content.DiffID); other != "" {
		same, err := f.store.Release(ctx, other)
		if err == nil {
			r.Assignments, r.Artifacts = same.Assignments, same.Artifacts
			return r, "", nil
		}
		if !errors.Is(err, store.ErrUnknownRelease) {
			return none, desc.Digest, err
		}
	}
	r.Assignments, r.Artifacts, err = readLists(ctx, repo, v.Tree, v.Release.Content)
	return r, v.Tree.Digest, err
}

// maxEarlier bounds the earlier releases of all cluster types that one look reads.
const maxEarlier = 1000

// ownTag is the form of the own tags of releases and records.
var ownTag = lazyregexp.New(`^s([0-9]{1,19})-([0-9]{1,19})$`)

// learnEarlier stores releases, or records, that were published before those that the newest record names: of each stream
// at most MaxBackfill, the newest. What cannot be verified is passed over. It takes the streams that are done out of todo.
func (f *Follower) learnEarlier(ctx context.Context, at place, todo map[bundle.Stream]bool) error {
	if len(todo) == 0 {
		return nil
	}
	most := max(1, min(MaxBackfill, maxEarlier/len(todo)))
	for s := range todo {
		j, err := f.judgeOf(ctx, at, s.Platform)
		if errors.As(err, new(*bundle.Refusal)) {
			return nil
		}
		if err == nil {
			err = f.learnEarlierOf(ctx, at, s, j, most)
		}
		if err != nil {
			return err
		}
		delete(todo, s)
	}
	return nil
}

func (f *Follower) learnEarlierOf(ctx context.Context, at place, s bundle.Stream, j judge, most int) error {
	name := s.Repository()
	if s.ClusterType == "" {
		name = bundle.EnvironmentRepository(s.Environment)
	}
	repo, err := at.repository(name)
	if err != nil {
		return nil //nolint:nilerr // a name that no repository has
	}
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range f.unknownTags(s, tags, j.force.Epoch, most) {
		if s.ClusterType == "" {
			err = f.learnEarlierRecord(ctx, repo, s, tag, j)
		} else {
			var r store.PublishedRelease
			var refused *hubapi.RefusedRelease
			if r, refused, err = f.readRelease(ctx, repo, s, tag, j); err == nil && refused == nil {
				_, err = f.storeReleases(ctx, []store.PublishedRelease{r})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Follower) learnEarlierRecord(ctx context.Context, repo repository, s bundle.Stream, tag string, j judge) error {
	desc, err := repo.Resolve(ctx, tag)
	var r store.PublishedRecord
	if err == nil {
		r, err = f.readRecord(ctx, repo, desc, s, j, false)
	}
	if err == nil {
		_, err = f.storeRecord(ctx, r)
	}
	if errors.As(err, new(*bundle.Refusal)) || errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	return err
}

// unknownTags returns the own tags of an epoch that name what is not stored, the newest first.
func (f *Follower) unknownTags(s bundle.Stream, tags []string, epoch int64, most int) []string {
	sequence := map[string]int64{}
	own := slices.DeleteFunc(tags, func(tag string) bool {
		m := ownTag.FindStringSubmatch(tag)
		if m == nil || m[1] != strconv.FormatInt(epoch, 10) || f.known.hasTag(s, tag) {
			return true
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		sequence[tag] = n
		return err != nil
	})
	slices.SortFunc(own, func(a, b string) int { return cmp.Compare(sequence[b], sequence[a]) })
	return own[:min(most, len(own))]
}
