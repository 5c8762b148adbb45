package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/scheduler"
)

// Side is one of the two states that are compared.
type Side struct {
	// Reference is the release's, and Digest that of its manifest. Both are empty for what the platform renders now.
	Reference string        `json:"reference,omitempty"`
	Digest    digest.Digest `json:"digest,omitempty"`
	Number    int64         `json:"number,omitempty"`
	Rings     []string      `json:"rings,omitempty"`
	IssuedAt  time.Time     `json:"issuedAt,omitzero"`
	// BaseCommit, EnvironmentCommit and Message are as the publisher gave them.
	BaseCommit        string `json:"baseCommit,omitempty"`
	EnvironmentCommit string `json:"environmentCommit,omitempty"`
	Message           string `json:"message,omitempty"`
	// Keys names the keys that signed; empty if no signature was verified.
	Keys []string `json:"keys"`
	// Rendered is true for what the platform renders now.
	Rendered bool `json:"rendered,omitempty"`
}

// Name returns the release's short name, or "rendered".
func (s Side) Name() string {
	if s.Rendered {
		return "rendered"
	}
	return bundle.ReleaseName(s.Number, s.Digest)
}

func sideOf(r *Released) Side {
	return Side{
		Reference: r.Reference, Digest: r.Digest, Number: r.Release.Number, Rings: r.Release.Rings, IssuedAt: r.Release.IssuedAt,
		BaseCommit: r.Release.BaseCommit, EnvironmentCommit: r.Release.EnvironmentCommit, Message: r.Message, Keys: append([]string{}, r.Keys...),
	}
}

// Difference is the difference of two releases of a cluster type. Its JSON form is an interface; secrets in it are masked.
type Difference struct {
	ClusterType string `json:"clusterType"`
	Old         Side   `json:"old"`
	New         Side   `json:"new"`
	// Changes lists the assignments that differ, sorted by name, and Unchanged counts the others.
	Changes   []diff.AssignmentDifference `json:"changes"`
	Unchanged int                         `json:"unchanged"`
	// SiteValues lists the site values that differ; nil if none do.
	SiteValues *diff.SitesDifference `json:"siteValues,omitempty"`
}

// Between compares two releases, with the differences of the files' texts if patches is true.
func Between(old, now *Released, patches bool) (*Difference, error) {
	return difference(old, sideOf(now), now.Tree(), patches)
}

// Rendered compares a release with rendered assignments of its cluster type.
func Rendered(old *Released, result *scheduler.Result, patches bool) (*Difference, error) {
	i := slices.IndexFunc(result.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool { return ct.Name == old.Release.ClusterType })
	tree := &diff.Tree{}
	if i >= 0 {
		tree = diff.TreeOf(result.ClusterTypes[i].Assignments)
		if s := result.ClusterTypes[i].Sites; s != nil {
			tree.Sites = diff.Sites{Document: s.Document, Rows: s.Rows}
		}
	}
	return difference(old, Side{Rendered: true, BaseCommit: result.BaseCommit, Keys: []string{}}, tree, patches)
}

func difference(old *Released, side Side, tree *diff.Tree, patches bool) (*Difference, error) {
	d := &Difference{ClusterType: old.Release.ClusterType, Old: sideOf(old), New: side, SiteValues: diff.SitesBetween(old.Sites, tree.Sites)}
	var err error
	d.Changes, d.Unchanged, err = diff.Between(old.Tree(), tree, patches)
	return d, err
}

// EnvironmentDifference is the difference of two environments, as their records name the releases. Its JSON form is an
// interface.
type EnvironmentDifference struct {
	Old RecordSide `json:"old"`
	New RecordSide `json:"new"`
	// ClusterTypes is sorted by name.
	ClusterTypes []RecordedType `json:"clusterTypes"`
}

// RecordSide is one of two records.
type RecordSide struct {
	Reference   string    `json:"reference"`
	Environment string    `json:"environment"`
	IssuedAt    time.Time `json:"issuedAt"`
	BaseCommit  string    `json:"baseCommit,omitempty"`

	record bundle.EnvironmentRecord
}

// RecordedType is a cluster type in two environments. A side is nil where an environment does not have it.
type RecordedType struct {
	ClusterType string      `json:"clusterType"`
	Result      diff.Change `json:"result"` // "unchanged" if both have the same content
	Old         *Side       `json:"old"`
	New         *Side       `json:"new"`
	// Changes lists the assignments that differ.
	Changes   []diff.AssignmentDifference `json:"changes,omitempty"`
	Unchanged int                         `json:"unchanged,omitempty"`
	// SiteValues lists the site values that differ; nil if none do.
	SiteValues *diff.SitesDifference `json:"siteValues,omitempty"`
}

// Same is the result for a cluster type with the same content on both sides.
const Same diff.Change = "unchanged"

// Environments compares the releases that two records name.
func Environments(ctx context.Context, old, now oci.Reference, signers published.Signers, opts oci.Options, patches bool) (*EnvironmentDifference, error) {
	d := &EnvironmentDifference{ClusterTypes: []RecordedType{}}
	var err error
	if d.Old, err = readRecord(ctx, old, signers, opts); err == nil {
		d.New, err = readRecord(ctx, now, signers, opts)
	}
	if err != nil {
		return nil, err
	}
	names := append(d.Old.record.Types(), d.New.record.Types()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t, err := recordedType(ctx, name, old.Location, now.Location, d, signers, opts, patches)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		d.ClusterTypes = append(d.ClusterTypes, t)
	}
	return d, nil
}

func recordedType(ctx context.Context, name string, from, to oci.Location, d *EnvironmentDifference, signers published.Signers, opts oci.Options, patches bool) (t RecordedType, err error) {
	t.ClusterType = name
	open := func(loc oci.Location, s RecordSide) (*Released, *Side, error) {
		of := s.record.ClusterTypes[name]
		if of == "" {
			return nil, nil, nil
		}
		stream := bundle.Stream{Environment: s.Environment, ClusterType: name}
		r, err := OpenReleased(ctx, oci.Reference{Location: loc, Repository: stream.Repository(), Digest: of}, signers, opts)
		if err != nil {
			return nil, nil, err
		}
		side := sideOf(r)
		return r, &side, nil
	}
	old, oldSide, err := open(from, d.Old)
	if err != nil {
		return t, err
	}
	if old != nil {
		defer func() { err = errors.Join(err, old.Close()) }()
	}
	now, newSide, err := open(to, d.New)
	if err != nil {
		return t, err
	}
	if now != nil {
		defer func() { err = errors.Join(err, now.Close()) }()
	}
	t.Old, t.New, t.Result = oldSide, newSide, diff.ChangeChanged
	switch {
	case old == nil:
		t.Result = diff.ChangeAdded
	case now == nil:
		t.Result = diff.ChangeRemoved
	case old.Release.Content == now.Release.Content:
		t.Result, t.Unchanged = Same, len(old.Assignments)
	default:
		t.Changes, t.Unchanged, err = diff.Between(old.Tree(), now.Tree(), patches)
		t.SiteValues = diff.SitesBetween(old.Sites, now.Sites)
	}
	return t, err
}

func readRecord(ctx context.Context, ref oci.Reference, signers published.Signers, opts oci.Options) (RecordSide, error) {
	at, err := published.Open(ref.Location, opts, signers)
	if err != nil {
		return RecordSide{}, err
	}
	environment, _ := published.EnvironmentOf(ref.Repository)
	e, err := at.Environment(environment)
	if err != nil {
		return RecordSide{}, err
	}
	v, _, err := e.Read(ctx, cmp.Or(ref.Digest.String(), ref.Tag, oci.DefaultTag))
	if err != nil {
		return RecordSide{}, err
	}
	r := v.Record
	return RecordSide{Reference: ref.String(), Environment: r.Environment, IssuedAt: r.IssuedAt, BaseCommit: r.BaseCommit, record: r}, nil
}
