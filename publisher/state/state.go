// Package state reads the published state of an environment at a location, and the releases that wait for signatures.
//
// Begin with [New]. [Reader.Record] finds the environment's newest trusted record, [Reader.Type] the newest trusted release
// of a cluster type, and [Reader.WithRings] the release of each of its rings. All content is judged by the trust in force,
// since a registry's tags prove nothing. A Reader writes nothing.
package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// Reader reads the published state of one environment.
type Reader struct {
	*published.Place
	// IssuedAt is the time of the run, in whole seconds: for judging expiry, and as the time of issue of new releases.
	IssuedAt              time.Time
	Platform, Environment string
	Warn                  func(format string, args ...any)
}

// New returns a Reader of the content of store, at a location, that trusts signers.
func New(location oci.Location, store oci.Store, signers published.Signers, now time.Time, platform, environment string, warn func(format string, args ...any)) Reader {
	return Reader{published.At(location, store, signers), now.UTC().Truncate(time.Second), platform, environment, warn}
}

// Type is the published state of one cluster type.
type Type struct {
	published.Type // of any platform
	Stream         bundle.Stream
	// Tags are the tags before anything was written.
	published.Tags
	// Verified is the newest trusted release, or nil; Current is true if it meets the trust in force.
	Verified *bundle.Verified
	Current  bool
	// Foreign is the newest tag, newer than Verified, of an untrusted release, or "".
	Foreign string
	// Taken means that Verified's own tag names another release: a publisher overwrote it and went no further.
	Taken bool
	// Rings are the rings and latest; see Reader.WithRings. A platform without rings has latest alone.
	Rings Rings
}

// Type reads the published state of a cluster type. A registry's tags prove nothing: the newest tag may name a foreign
// release, or an older one.
func (rd *Reader) Type(ctx context.Context, clusterType string) (t Type, err error) {
	t.Stream = rd.stream(clusterType)
	if t.Type, err = rd.Place.Type(bundle.Stream{Environment: rd.Environment, ClusterType: clusterType}); err != nil {
		return t, err
	}
	if t.Tags, err = t.Type.Tags(ctx); err != nil {
		return t, err
	}
	consider := func(tag string) (found bool, err error) {
		v, current, err := t.Release(ctx, tag)
		if err != nil {
			return false, err
		}
		if v == nil {
			if t.Foreign == "" { // the newest says it for all
				t.Foreign = fmt.Sprintf("%s:%s", t, tag)
				rd.Warn("%s is not a release %s", t.Foreign, rd.Trust.SignedText())
			}
			return false, nil
		}
		if last := t.Verified; last == nil || published.OrderOf(v).Compare(published.OrderOf(last)) > 0 {
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

func (rd *Reader) stream(clusterType string) bundle.Stream {
	return bundle.Stream{Platform: rd.Platform, Environment: rd.Environment, ClusterType: clusterType}
}

// LastSequence is that of v in an epoch; in another one sequences begin again. It is 0 where v is nil.
func LastSequence(v *bundle.Verified, epoch int64) int64 {
	if v == nil || v.Release.Epoch != epoch {
		return 0
	}
	return v.Release.Sequence
}

// Release returns the release that ref, a tag or a digest, names: nil where it is not there or refused.
func (t Type) Release(ctx context.Context, ref string) (v *bundle.Verified, current bool, err error) {
	v, current, err = t.Type.Read(ctx, ref)
	return v, current, published.IgnoreRefused(err)
}

// ReleaseOf returns the trusted release of a cluster type that a digest names. The error is a *LostError if it is not there, or
// not a trusted one of that cluster type.
func (rd *Reader) ReleaseOf(ctx context.Context, clusterType string, d digest.Digest) (*bundle.Verified, error) {
	t, err := rd.Place.Type(rd.stream(clusterType))
	if err != nil {
		return nil, err
	}
	v, _, err := t.Read(ctx, d.String())
	if err != nil && published.IgnoreRefused(err) == nil {
		return nil, Lost("%s: release %s is not there, or not %s", clusterType, d, rd.Trust.SignedText())
	}
	return v, err
}
