package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// LostError is the reason why the earlier content of failed assignments is unknown.
type LostError struct{ text string }

func (e *LostError) Error() string { return e.text }

// Lost returns a *LostError.
func Lost(format string, args ...any) error { return &LostError{fmt.Sprintf(format, args...)} }

// LostIfRefused returns a *LostError for the error of content that is missing or differs from the signed one, and any
// other err as it is.
func LostIfRefused(err error, what string, args ...any) error {
	if published.IgnoreRefused(err) == nil {
		return Lost(what+": %v", append(args, err)...)
	}
	return err
}

// Last returns the newest release of t that is for ring; nil if there never was one. The record is the environment's.
func (rd *Reader) Last(ctx context.Context, t Type, ring *Ring, record Record) (*bundle.Verified, error) {
	return rd.newest(ctx, t, ring.Release, ring.IsFor, cmp.Or(ring.Recorded, record.ReleaseOf(t.Stream.ClusterType, "")))
}

// newest returns v or, where that is newer and fits, the release that the environment's record names, which is signed too:
// else whoever can delete a release or its signature could have an older one taken for the last. It returns nil where
// there never was a release.
func (rd *Reader) newest(ctx context.Context, t Type, v *bundle.Verified, fits func(bundle.Release) bool, recorded digest.Digest) (*bundle.Verified, error) {
	switch {
	case recorded == "" && len(t.Releases())+len(t.Moving) == 0:
		return nil, nil
	case recorded == "" && t.Foreign != "":
		return nil, Lost("%s is not a release %s, and no record of the environment says what the last one is", t.Foreign, rd.Trust.SignedText())
	case recorded != "" && (v == nil || v.Descriptor.Digest != recorded):
		r, err := t.recordedRelease(ctx, recorded)
		if err != nil {
			return nil, err
		}
		if (v == nil || published.OrderOf(r).Compare(published.OrderOf(v)) > 0) && fits(r.Release) {
			v = r
		}
	}
	if v == nil {
		return nil, Lost("there is no release here %s", rd.Trust.SignedText())
	}
	return v, nil
}

// recordedRelease returns the release that the environment's record names.
func (t Type) recordedRelease(ctx context.Context, d digest.Digest) (*bundle.Verified, error) {
	v, _, err := t.Type.Read(ctx, d.String())
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, Lost("the last release, %s, is not there", d)
	}
	if err != nil {
		return nil, LostIfRefused(err, "the last release, %s", d)
	}
	return v, nil
}
