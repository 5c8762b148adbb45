package advance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Seen is what the rings of an environment have. Its JSON form is an interface.
type Seen struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	// Record is the tag of the newest record, and IssuedAt its time of issue.
	Record   string    `json:"record"`
	IssuedAt time.Time `json:"issuedAt"`
	// Rings are narrowest first. An environment without rings has one without a name, which stands for all clusters.
	Rings    []Ring   `json:"rings"`
	Warnings []string `json:"warnings,omitempty"`
	// NextLook is the earliest moment at which a gate may pass by time alone; zero if there is none.
	NextLook time.Time `json:"nextLook,omitzero"`
}

// Ring is what a ring has.
type Ring struct {
	Ring string `json:"ring"`
	// BaseCommit is that of the newest of its releases, which was issued at IssuedAt.
	BaseCommit string    `json:"baseCommit,omitempty"`
	IssuedAt   time.Time `json:"issuedAt,omitzero"`
	Releases   []Release `json:"releases"` // sorted by cluster type
	// Next is the step to the next ring; nil if that has the same content, or there is none.
	Next *Step `json:"next,omitempty"`
}

// Release is the release of a cluster type that a ring has.
type Release struct {
	ClusterType string        `json:"clusterType"`
	Number      int64         `json:"number"`
	Digest      digest.Digest `json:"digest"`
	BaseCommit  string        `json:"baseCommit,omitempty"`
	IssuedAt    time.Time     `json:"issuedAt"`
}

// Look returns what the rings of an environment have, and what judge says of each that is behind. It changes nothing. Of o it
// uses Environment, ClusterType and Rings.
func Look(ctx context.Context, to oci.Location, opts oci.Options, signers published.Signers, o Options, judge Gate, now time.Time) (*Seen, error) {
	name, err := publisher.PlatformOf(ctx, to, opts, o.Environment)
	if err != nil {
		return nil, err
	}
	store, err := to.Open(opts)
	if err != nil {
		return nil, err
	}
	seen := &Seen{Platform: name, Environment: o.Environment, Rings: []Ring{}}
	at := state.New(to, store, signers, now, name, o.Environment, func(format string, args ...any) {
		seen.Warnings = append(seen.Warnings, fmt.Sprintf(format, args...))
	})
	found, err := at.Record(ctx)
	if err != nil {
		return nil, err
	}
	if found.Verified == nil {
		return nil, &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("there is no record of environment %s %s", o.Environment, signers.SignedText())}
	}
	record := found.Verified.Record
	seen.Record, seen.IssuedAt = record.Tag(), record.IssuedAt
	if o.ClusterType != "" && !slices.Contains(record.Types(), o.ClusterType) {
		return nil, usage.Errorf("unknown cluster type %q in environment %s (known: %v)", o.ClusterType, o.Environment, record.Types())
	}
	order := []string{""}
	if len(record.Rings) > 0 {
		if order = orderOf(record, o); len(order) == 0 {
			return nil, usage.Errorf("the record of environment %s does not say the order of its rings: publish once", o.Environment)
		}
	}
	for i, ring := range order {
		r, err := has(ctx, &at, record, o, ring)
		if err != nil {
			return nil, err
		}
		if i+1 < len(order) {
			if r.Next, err = step(ctx, &at, record, o, order, i+1, judge); err != nil {
				return nil, err
			}
		}
		if r.Next != nil {
			seen.NextLook = earlier(seen.NextLook, r.Next.Verdict.NextLook)
		}
		seen.Rings = append(seen.Rings, r)
	}
	return seen, nil
}

// has returns what a record names for a ring; for the empty one, what agents without a ring have.
func has(ctx context.Context, at *state.Reader, record bundle.EnvironmentRecord, o Options, ring string) (Ring, error) {
	r := Ring{Ring: ring, Releases: []Release{}}
	for _, name := range record.Types() {
		d := record.ReleaseOf(name, ring)
		if o.ClusterType != "" && o.ClusterType != name || d == "" {
			continue
		}
		v, err := at.ReleaseOf(ctx, name, d)
		if err != nil {
			return r, err
		}
		one := Release{name, v.Release.Number, d, v.Release.BaseCommit, v.Release.IssuedAt}
		r.Releases = append(r.Releases, one)
		if one.BaseCommit != "" && one.IssuedAt.After(r.IssuedAt) {
			r.BaseCommit, r.IssuedAt = one.BaseCommit, one.IssuedAt
		}
	}
	return r, nil
}
