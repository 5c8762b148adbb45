package state

import (
	"cmp"
	"context"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Record is the published state of an environment's record.
type Record struct {
	published.Environment
	// Tags are the tags before anything was written.
	published.Tags
	// Verified is the newest trusted record, or nil; Current is true if it meets the trust in force.
	Verified *bundle.VerifiedEnvironment
	Current  bool
	// Taken means that Verified's own tag names another record; see Type.Taken.
	Taken bool
}

// Has reports whether the record names releases of a cluster type.
func (r Record) Has(clusterType string) bool {
	return r.Verified != nil && len(r.Verified.Record.ReleasesOf(clusterType)) > 0
}

// ReleaseOf returns the manifest that the record names for agents of a cluster type and ring, without a ring where that is
// empty; empty where it names none.
func (r Record) ReleaseOf(clusterType, ring string) digest.Digest {
	if r.Verified == nil {
		return ""
	}
	return r.Verified.Record.ReleaseOf(clusterType, ring)
}

// Record reads the published state of the environment's record.
func (rd *Reader) Record(ctx context.Context) (r Record, err error) {
	if r.Environment, err = rd.Place.Environment(rd.Environment); err != nil {
		return r, err
	}
	if r.Tags, err = r.Environment.Tags(ctx); err != nil {
		return r, err
	}
	foreign := "" // the newest says it for all
	for _, tag := range r.Releases() {
		if r.Verified, r.Current, err = rd.verifyRecord(ctx, r.Environment, tag); err != nil {
			return r, err
		}
		if r.Verified != nil {
			break
		}
		foreign = cmp.Or(foreign, tag)
	}
	latest := r.Moving[bundle.LatestTag]
	var v *bundle.VerifiedEnvironment
	var current bool
	if latest != "" && (r.Verified == nil || latest != r.Verified.Descriptor.Digest) {
		if v, current, err = rd.verifyRecord(ctx, r.Environment, bundle.LatestTag); v == nil {
			foreign = cmp.Or(foreign, bundle.LatestTag)
		}
	}
	if foreign != "" && err == nil {
		rd.Warn("%s:%s is not a record %s", r.Environment, foreign, rd.Trust.SignedText())
	}
	if v != nil && (r.Verified == nil || published.OrderOfRecord(v).Compare(published.OrderOfRecord(r.Verified)) > 0) {
		r.Current, r.Verified, r.Taken = current, v, slices.Contains(r.All, v.Record.Tag())
	}
	return r, err
}

// RecordAt returns the record of the environment under its own tag; nil if that is not trusted, or not there any more.
func (rd *Reader) RecordAt(ctx context.Context, record Record, tag string) (*bundle.VerifiedEnvironment, error) {
	if v := record.Verified; v != nil && v.Record.Tag() == tag && !record.Taken {
		return v, nil
	}
	v, _, err := rd.verifyRecord(ctx, record.Environment, tag)
	return v, err
}

// verifyRecord returns nil for a record that is not there or refused.
func (rd *Reader) verifyRecord(ctx context.Context, at published.Environment, tag string) (v *bundle.VerifiedEnvironment, current bool, err error) {
	if v, current, err = at.Read(ctx, tag); err != nil {
		return nil, false, published.IgnoreRefused(err)
	}
	if v.Record.Platform != rd.Platform {
		return nil, false, usage.Errorf("the records there are of the platform %q, this one is %q: publish to another prefix, or name the platform",
			v.Record.Platform, rd.Platform)
	}
	return v, current, nil
}
