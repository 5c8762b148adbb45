// Package standing reads the published state of an environment at a location, and the releases that wait for signatures.
//
// Begin with [New]. [Reader.Record] finds the environment's newest trusted record, [Reader.Type] the newest trusted release
// of a cluster type, and [Reader.Rings] the release of each of its rings. All content is judged by the trust in force,
// since a registry's tags prove nothing. A Reader writes nothing.
package standing

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// Reader reads the published state of one environment.
type Reader struct {
	Location oci.Location
	Store    oci.Store // at Location
	Trust    trust.Signers
	// IssuedAt is the time of the run, in whole seconds: for judging expiry, and as the time of issue of new releases.
	IssuedAt              time.Time
	Platform, Environment string
	Warn                  func(format string, args ...any)

	known *knownReleases // nil without Remember
}

// knownReleases are trusted releases that were read, by digest: what a digest names does not change.
type knownReleases struct {
	mu  sync.Mutex
	all map[digest.Digest]knownRelease
}

type knownRelease struct {
	v       *bundle.Verified
	current bool
}

// Remember has rd, and copies of it that are made later, read and verify each release once: Release then returns a known one for its
// digest whatever repository is asked and even if it has been deleted, so callers compare the stream, and a reader that remembers
// is for one short run.
func (rd *Reader) Remember() { rd.known = &knownReleases{all: map[digest.Digest]knownRelease{}} }

func (k *knownReleases) get(d digest.Digest) (knownRelease, bool) {
	if k == nil {
		return knownRelease{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	one, ok := k.all[d]
	return one, ok
}

func (k *knownReleases) add(v *bundle.Verified, current bool) {
	if k == nil || v == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[v.Descriptor.Digest] = knownRelease{v, current}
}

// New returns a Reader of the content of store, at a location, that trusts signers.
func New(location oci.Location, store oci.Store, signers trust.Signers, now time.Time, platform, environment string, warn func(format string, args ...any)) Reader {
	return Reader{location, store, signers, now.UTC().Truncate(time.Second), platform, environment, warn, nil}
}

// Type is the published state of one cluster type.
type Type struct {
	Stream bundle.Stream
	Repo   oci.Target
	// Tags are the tags before anything was written.
	releases.Tags
	// Verified is the newest trusted release, or nil; Current is true if it meets the trust in force.
	Verified *bundle.Verified
	Current  bool
	// Foreign is the newest tag, newer than Verified, of an untrusted release, or "".
	Foreign string
	// Taken means that Verified's own tag names another release: a publisher overwrote it and went no further.
	Taken bool
	// Lanes are the rings and latest; see Reader.Rings. A platform without rings has latest alone.
	Lanes Lanes
}

// Type reads the published state of a cluster type. A registry's tags prove nothing: the newest tag may name a foreign
// release, or an older one.
func (rd *Reader) Type(ctx context.Context, clusterType string) (t Type, err error) {
	stream := bundle.Stream{Platform: rd.Platform, Environment: rd.Environment, ClusterType: clusterType}
	repo, err := rd.Store.Repository(stream.Repository())
	if err != nil {
		return t, err
	}
	t.Stream, t.Repo = stream, repo
	if t.Tags, err = releases.ReadTags(ctx, repo); err != nil {
		return t, err
	}
	consider := func(tag string) (found bool, err error) {
		v, current, err := rd.Release(ctx, repo, tag)
		if err != nil {
			return false, err
		}
		moving := t.Moving[tag] != ""
		// One of an epoch to come is none that agents take.
		if v == nil || !moving && v.Release.Tag() != tag || v.Release.Epoch > rd.Trust.Epoch ||
			v.Release.Environment != stream.Environment || v.Release.ClusterType != stream.ClusterType {
			if t.Foreign == "" { // the newest says it for all
				t.Foreign = fmt.Sprintf("%s:%s", rd.Location.Name(stream.Repository()), tag)
				rd.Warn("%s is not a release %s", t.Foreign, rd.Trust.SignedText())
			}
			return false, nil
		}
		if last := t.Verified; last == nil || OrderOf(v).Compare(OrderOf(last)) > 0 {
			t.Verified, t.Current = v, current
		}
		return true, nil
	}
	for _, tag := range t.Releases() {
		if found, err := consider(tag); err != nil {
			return t, err
		} else if found {
			break
		}
	}
	// A registry's retention may have taken the tag of the release that latest still names, or another publisher.
	latest, last := t.Moving[bundle.LatestTag], t.Verified
	if latest != "" && (last == nil || latest != last.Descriptor.Digest) {
		if _, err = consider(bundle.LatestTag); err != nil {
			return t, err
		}
	}
	if v := t.Verified; v != last {
		t.Taken = slices.Contains(t.All, v.Release.Tag())
	}
	return t, nil
}

// OrderOf returns the place of a release among those of its stream.
func OrderOf(v *bundle.Verified) bundle.Order { return bundle.OrderOf(v.Release, v.Descriptor.Digest) }

// LastSequence is that of v in an epoch; in another one sequences begin again. It is 0 where v is nil.
func LastSequence(v *bundle.Verified, epoch int64) int64 {
	if v == nil || v.Release.Epoch != epoch {
		return 0
	}
	return v.Release.Sequence
}

// Release returns the release that ref, a tag or a digest, names: nil where it is not trusted, or where a registry has the
// tag only. For current see [trust.Recognise].
func (rd *Reader) Release(ctx context.Context, repo oci.Target, ref string) (v *bundle.Verified, current bool, err error) {
	if one, ok := rd.known.get(digest.Digest(ref)); ok {
		return one.v, one.current, nil
	}
	desc, err := bundle.ResolveManifest(ctx, repo, ref)
	if err != nil {
		return nil, false, releases.UnlessRefused(err)
	}
	if one, ok := rd.known.get(desc.Digest); ok {
		return one.v, one.current, nil
	}
	v, current, err = trust.Recognise(rd.Trust, func(t bundle.Trust) (*bundle.Verified, error) { return bundle.Verify(ctx, repo, desc, t) })
	if err == nil {
		rd.known.add(v, current)
	}
	return v, current, releases.UnlessRefused(err)
}

// ReleaseOf returns the trusted release of a cluster type that a digest names. The error is a *LostError if it is not there, or
// not a trusted one of that cluster type.
func (rd *Reader) ReleaseOf(ctx context.Context, clusterType string, d digest.Digest) (*bundle.Verified, error) {
	stream := bundle.Stream{Platform: rd.Platform, Environment: rd.Environment, ClusterType: clusterType}
	repo, err := rd.Store.Repository(stream.Repository())
	if err != nil {
		return nil, err
	}
	v, _, err := rd.Release(ctx, repo, d.String())
	if err != nil {
		return nil, err
	}
	if v == nil || v.Release.Stream() != stream {
		return nil, Lost("%s: release %s is not there, or not %s", clusterType, d, rd.Trust.SignedText())
	}
	return v, nil
}
