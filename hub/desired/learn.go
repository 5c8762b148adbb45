package desired

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published"
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
func (f *Follower) learn(ctx context.Context, at *published.Place, environment string, desc ocispec.Descriptor, may func(platform, environment string) error) (Learned, error) {
	done := Learned{Learned: hubapi.Learned{Environment: environment, Record: desc.Digest}}
	if err := f.load(ctx); err != nil {
		return done, err
	}
	e, err := at.Environment(environment)
	if err != nil {
		return done, err
	}
	claimed, _, err := e.ReadAt(ctx, desc) // to know the platform, by whose trust it is judged
	if err != nil {
		return done, err
	}
	done.Platform = claimed.Record.Platform
	if claimed.Record.Environment != environment {
		return done, bundle.Refuse(bundle.WrongEnvironment, "record is for environment %q", claimed.Record.Environment)
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
	signers, err := f.signersOf(ctx, at, done.Platform)
	if err != nil {
		return done, err
	}
	v, _, err := e.By(signers.InForce()).ReadAt(ctx, desc)
	if err != nil {
		return done, err
	}
	record, err := f.recordOf(v, done.Platform, signers.Epoch)
	if err != nil {
		return done, err
	}
	at = at.By(signers)
	for _, s := range done.streams {
		if err := f.learnReleases(ctx, at, s, r.ReleasesOf(s.ClusterType), &done); err != nil {
			return done, err
		}
	}
	if at.Location.Archive != "" && len(done.MissingContent()) > 0 {
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
		f.logged.forget(subject)
		return
	}
	one := done.Refused[0]
	if f.logged.first(subject, fmt.Sprint(done.Record, len(done.Refused), one)) {
		f.log.Warn("releases that a record names are not learned", "platform", done.Platform, "environment", done.Environment, "record", done.Record,
			"releases", len(done.Refused), "first", one.ClusterType, "digest", one.Digest, "reason", one.Reason, "message", one.Message)
	}
}

// recordOf returns a record as it is stored. It refuses one of another platform, or of another epoch than that of the trust in force.
func (f *Follower) recordOf(v *bundle.VerifiedEnvironment, platform string, epoch int64) (none store.PublishedRecord, err error) {
	switch r := v.Record; {
	case r.Platform != platform:
		return none, bundle.Refuse(bundle.WrongEnvironment, "record is for environment %q of platform %q", r.Environment, r.Platform)
	case r.Epoch != epoch:
		return none, bundle.Refuse(bundle.OldEpoch, "record has epoch %d, the trust in force has %d", r.Epoch, epoch)
	}
	return store.PublishedRecord{Digest: v.Descriptor.Digest, EnvironmentRecord: v.Record, KeyIDs: v.KeyIDs, SeenAt: f.opts.Now().UTC()}, nil
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
func (f *Follower) learnReleases(ctx context.Context, at *published.Place, s bundle.Stream, named []digest.Digest, done *Learned) error {
	named = slices.DeleteFunc(named, f.known.hasRelease)
	if len(named) == 0 {
		return nil
	}
	t, err := at.Type(s)
	if err != nil {
		done.Refused = append(done.Refused, hubapi.RefusedRelease{ClusterType: s.ClusterType, Digest: named[0], Reason: string(bundle.BadContent), Message: bundle.Clip(err.Error())})
		return nil
	}
	var all []store.PublishedRelease
	for _, d := range named {
		r, refused, err := f.readRelease(ctx, t, d.String(), at.Trust.Epoch)
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
func (f *Follower) readRelease(ctx context.Context, t published.Type, reference string, epoch int64) (r store.PublishedRelease, refused *hubapi.RefusedRelease, err error) {
	v, _, err := t.Read(ctx, reference)
	missing := digest.Digest(reference)
	if err == nil && v.Release.Epoch != epoch {
		err = bundle.Refuse(bundle.OldEpoch, "release has epoch %d, the trust in force has %d", v.Release.Epoch, epoch)
	} else if err == nil {
		missing = v.Tree.Digest
		r, err = f.complete(ctx, t, v)
	}
	var refusal *bundle.Refusal
	switch {
	case err == nil:
		return r, nil, nil
	case errors.As(err, &refusal):
		return r, &hubapi.RefusedRelease{ClusterType: t.Stream.ClusterType, Reason: string(refusal.Reason), Message: refusal.Message}, nil
	case errors.Is(err, errdef.ErrNotFound):
		return r, &hubapi.RefusedRelease{ClusterType: t.Stream.ClusterType, Reason: hubapi.ReasonMissing, Message: bundle.Clip(err.Error()), Missing: missing}, nil
	}
	return r, nil, err
}

// complete reads the assignments and artifacts of a release, or takes those of a stored one with the same tree.
func (f *Follower) complete(ctx context.Context, t published.Type, v *bundle.Verified) (store.PublishedRelease, error) {
	r := store.PublishedRelease{
		Digest: v.Descriptor.Digest, Release: v.Release, Message: bundle.MessageOf(v.Manifest), KeyIDs: v.KeyIDs, SeenAt: f.opts.Now().UTC(),
	}
	if other := f.known.withContent(v.Release.Content.DiffID); other != "" {
		same, err := f.store.Release(ctx, other)
		if !errors.Is(err, store.ErrUnknownRelease) {
			r.Assignments, r.Artifacts = same.Assignments, same.Artifacts
			return r, err
		}
	}
	var err error
	r.Assignments, r.Artifacts, err = readLists(ctx, t.Repo, v.Tree, v.Release.Content)
	return r, err
}

// maxEarlier bounds the earlier releases of all cluster types that one look reads.
const maxEarlier = 1000

// learnEarlier stores releases, or records, that were published before those that the newest record names: of each stream
// at most MaxBackfill, the newest. What cannot be verified is passed over. It takes the streams that are done out of todo.
func (f *Follower) learnEarlier(ctx context.Context, at *published.Place, todo map[bundle.Stream]bool) error {
	if len(todo) == 0 {
		return nil
	}
	most := max(1, min(MaxBackfill, maxEarlier/len(todo)))
	for s := range todo {
		signers, err := f.signersOf(ctx, at, s.Platform)
		if errors.As(err, new(*bundle.Refusal)) {
			return nil
		}
		if err == nil {
			err = f.learnEarlierOf(ctx, at.By(signers), s, most)
		}
		if err != nil {
			return err
		}
		delete(todo, s)
	}
	return nil
}

func (f *Follower) learnEarlierOf(ctx context.Context, at *published.Place, s bundle.Stream, most int) error {
	t, err := at.Type(s)
	e, unnamed := at.Environment(s.Environment)
	repo := t.Repo
	if s.ClusterType == "" {
		repo, err = e.Repo, unnamed
	}
	if err != nil {
		return nil //nolint:nilerr // a name that no repository has
	}
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range f.unknownTags(s, tags, at.Trust.Epoch, most) {
		if s.ClusterType == "" {
			err = f.learnEarlierRecord(ctx, e, s.Platform, tag, at.Trust.Epoch)
		} else {
			var r store.PublishedRelease
			var refused *hubapi.RefusedRelease
			if r, refused, err = f.readRelease(ctx, t, tag, at.Trust.Epoch); err == nil && refused == nil {
				_, err = f.storeReleases(ctx, []store.PublishedRelease{r})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Follower) learnEarlierRecord(ctx context.Context, e published.Environment, platform, tag string, epoch int64) error {
	v, _, err := e.Read(ctx, tag)
	if err != nil {
		return published.IgnoreRefused(err)
	}
	r, err := f.recordOf(v, platform, epoch)
	if err != nil {
		return nil //nolint:nilerr // it is passed over
	}
	_, err = f.storeRecord(ctx, r)
	return err
}

// unknownTags returns the own tags of an epoch that name what is not stored, the newest first.
func (f *Follower) unknownTags(s bundle.Stream, tags []string, epoch int64, most int) []string {
	unknown := slices.DeleteFunc(tags, func(tag string) bool { return published.ParseTag(tag).Epoch != epoch || f.known.hasTag(s, tag) })
	return published.Tags{All: unknown}.Newest(published.Own, most)
}
