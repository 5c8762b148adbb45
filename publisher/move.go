package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// MoveOptions selects the release that Move makes anew. Of PublishOptions, Move uses Trust, OCI and Now.
type MoveOptions struct {
	Environment, ClusterType string
	// Ring is the ring that clusters were moved to; empty for clusters that no longer have one.
	Ring string
	// Above is what people call the release that those clusters have accepted, see bundle.ParseReleaseQuery: where the
	// ring's release is above it already, nothing is done. A tag such as s0-1795262400 counts also where that release is
	// not there any more. Empty is the newest of all rings.
	Above string
}

// Move makes the release of a ring anew, with the same content, so that it is newer than the releases of other rings: a
// cluster moved from one of those would refuse the old one as older than its last accepted release. If the release is for
// all rings, releases for narrower rings are made anew as well, above it. The result has that cluster type alone.
func Move(ctx context.Context, to oci.Location, keys []*keys.Key, move MoveOptions, opts PublishOptions) (*Published, error) {
	for what, name := range map[string]string{"environment": move.Environment, "cluster type": move.ClusterType} {
		if err := oci.CheckName(name); err != nil || strings.Contains(move.ClusterType, "/") {
			return nil, usage.Errorf("%s: %w", what, cmp.Or(err, fmt.Errorf("%q holds a slash", name)))
		}
	}
	if _, err := bundle.ParseReleaseQuery(move.Above); err != nil && move.Above != "" {
		return nil, &usage.Error{Err: err}
	}
	assignments := 0
	done, err := Reissue(ctx, to, keys, move.Environment, func(ctx context.Context, at *state.Reader, record state.Record) (content *Content, err error) {
		content, assignments, err = move.choose(ctx, at, record)
		return content, err
	}, opts)
	for i := range done.ClusterTypes {
		done.ClusterTypes[i].Assignments = assignments
	}
	return done, err
}

// PlatformOf returns the platform's name that the newest record of an environment has. It verifies nothing.
func PlatformOf(ctx context.Context, to oci.Location, opts oci.Options, environment string) (string, error) {
	store, err := to.Open(opts)
	if err != nil {
		return "", err
	}
	at := state.New(to, store, published.Signers{}, time.Time{}, "", environment, func(string, ...any) {})
	return platformOf(ctx, &at)
}

// platformOf returns the platform's name from the environment's record. Whether that is signed is judged later.
func platformOf(ctx context.Context, at *state.Reader) (string, error) {
	e, err := at.By(published.AsItLies()).Environment(at.Environment)
	if err != nil {
		return "", err
	}
	v, _, err := e.Read(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", at.NothingEver(ctx, fmt.Errorf("environment %s", at.Environment))
	}
	if err != nil {
		return "", err
	}
	return v.Record.Platform, nil
}

// choose returns what Move gives to the ring and to those that have the same release, and counts its assignments.
func (m MoveOptions) choose(ctx context.Context, at *state.Reader, record state.Record) (*Content, int, error) {
	r := record.Verified.Record
	if len(r.Rings[m.ClusterType]) == 0 {
		return nil, 0, usage.Errorf("cluster type %s has no rings in environment %s: those that have are %s", m.ClusterType, m.Environment, cmp.Or(strings.Join(slices.Sorted(maps.Keys(r.Rings)), ", "), "none"))
	}
	t, err := at.Type(ctx, m.ClusterType)
	if err != nil {
		return nil, 0, err
	}
	rings := slices.Sorted(maps.Keys(r.Rings[m.ClusterType]))
	if t, err = at.WithRings(ctx, t, rings, record); err != nil {
		return nil, 0, err
	}
	n := slices.IndexFunc(t.Rings, func(l *state.Ring) bool { return l.Name == m.Ring })
	if n < 0 {
		return nil, 0, usage.Errorf("unknown ring %q: cluster type %s has %s", m.Ring, m.ClusterType, strings.Join(rings, ", "))
	}
	has := t.Rings[n].Release
	if has == nil {
		return nil, 0, state.Lost("the release of %s is not there", t.Rings[n:n+1])
	}
	assignments, err := t.Assignments(ctx, has)
	if err != nil {
		return nil, 0, err
	}
	accepted, err := m.accepted(ctx, at, t)
	if err != nil {
		return nil, 0, err
	}
	content := &Content{
		Why: "clusters were moved to its ring", BaseCommit: r.BaseCommit, BaseID: r.BaseID, EnvironmentCommit: r.EnvironmentCommit, Incomplete: r.Incomplete, Previous: r.Former,
		Releases: map[string]map[string]digest.Digest{m.ClusterType: {}},
	}
	own := published.OrderOf(has)
	content.Anew = cmp.Or(cmp.Compare(own.Epoch, accepted.Epoch), cmp.Compare(own.Sequence, accepted.Sequence)) < 0
	for _, l := range t.Rings {
		if sameRelease(l.Release, has) {
			content.Releases[m.ClusterType][l.Name] = has.Descriptor.Digest
		}
	}
	return content, len(assignments), nil
}

// accepted returns the place of the release that clusters have accepted.
func (m MoveOptions) accepted(ctx context.Context, at *state.Reader, t state.Type) (bundle.Order, error) {
	if m.Above == "" {
		return published.OrderOf(t.Rings.Newest()), nil
	}
	if tag := published.ParseTag(m.Above); tag.Kind == published.Own {
		return tag.Order(), nil
	}
	desc, err := t.Find(ctx, m.Above, errdef.ErrNotFound)
	if err != nil {
		return bundle.Order{}, err
	}
	v, _, err := t.Release(ctx, desc.Digest.String())
	if v == nil && err == nil {
		err = &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("%s is not a release %s", m.Above, at.Trust.SignedText())}
	}
	if err != nil {
		return bundle.Order{}, err
	}
	return published.OrderOf(v), nil
}
