// Package lineage has the rule by which a cluster is compliant with a commit: which releases of an environment have a commit,
// and which of them are complete. The hub's rollout and the gates of a promotion judge by it.
//
// Begin with New, give it the environment's records, oldest first, and ask for a Commit with Find. A release has a commit if it was
// made from it, if it has the same content as the cluster type's release at that commit (a type that a commit does not change
// keeps its release), or if it was made from commits that were published later for the first time. So a return to an earlier commit
// does not have the later one. In the rings of an environment the content counts as well (InRing). A release is complete if a record that names it does not list its type as incomplete.
//
// The package reads nothing by itself, and verifies nothing: give it what was verified. An Environment that is no longer added to may be
// read by several goroutines.
package lineage

import (
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Verdict says how far a cluster is with a commit.
type Verdict string

// The verdicts.
const (
	// Compliant means that the cluster runs a complete release that has the commit, and is compliant with it.
	Compliant Verdict = "compliant"
	// Progressing means that it has a release of the commit, or is getting it, and is not compliant yet.
	Progressing Verdict = "progressing"
	// Failed means that it has failed at the commit, or has refused it.
	Failed Verdict = "failed"
	// Waiting means that it is known to run another release.
	Waiting Verdict = "waiting"
	// Unknown means that it has not reported for too long, or never.
	Unknown Verdict = "unknown"
)

// open are the verdicts of clusters that are not compliant, the worst first.
var open = []Verdict{Failed, Unknown, Waiting, Progressing}

// Compare orders verdicts of clusters that are not compliant, the worst first. Compliant is before all of them.
func (v Verdict) Compare(other Verdict) int { return slices.Index(open, v) - slices.Index(open, other) }

// Environment is what is known of the releases of an environment of a platform.
type Environment struct {
	// Stream has no cluster type.
	Stream   bundle.Stream
	releases func(digest.Digest) *bundle.Release
	records  []*bundle.EnvironmentRecord
	// bases and environments are the places of the first record with a commit of the base, and of the environment.
	bases, environments map[string]int
	// vouched names the releases of which a record says that their cluster type is complete, by digest.
	vouched map[digest.Digest]bool
}

// commits are those of the base and of the environment that something was made from.
type commits struct{ base, environment string }

// New returns an environment without records. The function returns a release by the digest of its manifest, or nil; it is asked
// again with each question.
func New(of bundle.Stream, releases func(digest.Digest) *bundle.Release) *Environment {
	of.ClusterType = ""
	return &Environment{Stream: of, releases: releases, bases: map[string]int{}, environments: map[string]int{}, vouched: map[digest.Digest]bool{}}
}

// Add adds a record, which is newer than those before. The record is kept, and is not changed.
func (e *Environment) Add(r *bundle.EnvironmentRecord) {
	putFirst(e.bases, r.BaseCommit, len(e.records))
	putFirst(e.environments, r.EnvironmentCommit, len(e.records))
	e.records = append(e.records, r)
	e.vouch(r)
}

// Newest returns the newest record; nil if there is none.
func (e *Environment) Newest() *bundle.EnvironmentRecord {
	if len(e.records) == 0 {
		return nil
	}
	return e.records[len(e.records)-1]
}

// putFirst notes the place of a commit, if there is one and it is not there yet.
func putFirst(places map[string]int, commit string, at int) {
	if _, known := places[commit]; !known && commit != "" {
		places[commit] = at
	}
}

// vouch notes the releases of which a record says that they are complete: those that were made from its commits, and those
// that have the content of these commits, of the cluster types that it does not name as incomplete.
func (e *Environment) vouch(record *bundle.EnvironmentRecord) {
	for _, typ := range record.Types() {
		if slices.Contains(record.Incomplete, typ) {
			continue
		}
		newest := e.NewestOf(record, typ)
		for _, d := range record.ReleasesOf(typ) {
			r := e.releases(d)
			if r != nil && (d == newest || commitsOf(r) == commits{record.BaseCommit, record.EnvironmentCommit}) {
				e.vouched[d] = true
			}
		}
	}
}

// NewestOf returns the newest of the releases that a record names for a cluster type; empty if one of them is not known, which may
// be the newest. It has the content of the record's commits if the cluster type is complete: a ring that is wider than those that were
// published to keeps an older release.
func (e *Environment) NewestOf(record *bundle.EnvironmentRecord, typ string) (newest digest.Digest) {
	var order bundle.Order
	for _, d := range record.ReleasesOf(typ) {
		r := e.releases(d)
		if r == nil {
			return ""
		}
		if of := bundle.OrderOf(*r, d); newest == "" || of.Compare(order) > 0 {
			newest, order = d, of
		}
	}
	return newest
}

func commitsOf(r *bundle.Release) commits { return commits{r.BaseCommit, r.EnvironmentCommit} }

// Commit is what a commit is for an environment. A nil Commit was not published there.
type Commit struct {
	*Environment
	commit string
	last   *bundle.EnvironmentRecord
	// contents are the trees of each cluster type at the commit, if it was complete.
	contents map[string]map[digest.Digest]bool
}

// Find returns the commit that holds reports, of the base or of the environment; nil if no record has one. If there are several, it is the
// first, and names has them all, sorted.
func (e *Environment) Find(holds func(commit string) bool) (c *Commit, names []string) {
	all := map[string]bool{}
	for _, record := range e.records {
		found := ""
		for _, name := range []string{record.BaseCommit, record.EnvironmentCommit} {
			if holds(name) {
				found, all[name] = name, true
			}
		}
		if found == "" {
			continue
		}
		if c == nil {
			c = &Commit{Environment: e, commit: found, contents: map[string]map[digest.Digest]bool{}}
		}
		c.add(record)
	}
	return c, slices.Sorted(maps.Keys(all))
}

func (c *Commit) add(record *bundle.EnvironmentRecord) {
	c.last = record
	for _, typ := range record.Types() {
		newest := c.NewestOf(record, typ)
		if newest == "" || slices.Contains(record.Incomplete, typ) {
			continue
		}
		if c.contents[typ] == nil {
			c.contents[typ] = map[digest.Digest]bool{}
		}
		c.contents[typ][c.releases(newest).Content.DiffID] = true
	}
}

// Last returns the newest record with the commit.
func (c *Commit) Last() *bundle.EnvironmentRecord { return c.last }

// Has reports whether a release of a type has the commit, and is complete.
func (c *Commit) Has(typ string, d digest.Digest) bool {
	r := c.releases(d)
	if r == nil || r.Stream() != (bundle.Stream{Platform: c.Stream.Platform, Environment: c.Stream.Environment, ClusterType: typ}) {
		return false
	}
	if c.contents[typ][r.Content.DiffID] {
		return true
	}
	return c.includes(commitsOf(r)) && c.vouched[d]
}

// InRing returns a test of the releases of a cluster type: whether one has the content that the newest record gives a ring, or came after that. Content
// may change although the commit does not. All releases pass if the type has no rings.
func (e *Environment) InRing(typ, ring string) func(digest.Digest) bool {
	var want *bundle.Release
	var since bundle.Order
	for _, record := range slices.Backward(e.records) {
		d := record.Rings[typ][ring]
		r := e.releases(d)
		if r == nil || want != nil && !r.SameContent(*want) {
			break
		}
		if want == nil {
			want = r
		}
		since = bundle.OrderOf(*r, d)
	}
	return func(d digest.Digest) bool {
		if want == nil {
			return true
		}
		r := e.releases(d)
		return r != nil && (r.SameContent(*want) || bundle.OrderOf(*r, d).Compare(since) > 0)
	}
}

// includes reports whether commits are those of c, or were published later for the first time. A commit of the base
// is compared with those of the base, one of the environment with those of the environment.
func (c *Commit) includes(other commits) bool {
	later := func(places map[string]int, commit string) bool {
		from, is := places[c.commit]
		at, known := places[commit]
		return is && known && at >= from
	}
	return later(c.bases, other.base) || later(c.environments, other.environment)
}

// IsPast reports whether the environment went back to commits that were published before this one for the first time.
func (c *Commit) IsPast() bool {
	now := c.Newest()
	return !c.includes(commits{now.BaseCommit, now.EnvironmentCommit})
}

// VerdictOf says how far a cluster is whose newest report, which is not too old, has that state: whether it runs a release that has the commit,
// and whether it is getting one.
func VerdictOf(state bundle.State, runs, offered bool) Verdict {
	switch {
	case runs && state == bundle.Compliant:
		return Compliant
	case !runs && !offered:
		return Waiting
	case state == bundle.Failed || state == bundle.Rejected:
		return Failed
	default:
		return Progressing
	}
}
