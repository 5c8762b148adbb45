package publisher

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// SiteValuesFailed is the reason of a row that is held because the cluster's site values, or their declaration, have a
// mistake.
const SiteValuesFailed scheduler.FailureReason = "SiteValuesFailed"

// FailedSite is a cluster whose site values have a mistake, or a declaration of site values with one.
type FailedSite struct {
	// Cluster is empty for the declaration, or for all rows together.
	Cluster string `json:"cluster,omitempty"`
	UID     string `json:"uid,omitempty"`
	Error   string `json:"error"`
	// HeldFrom identifies the release of the values that the cluster keeps; nil if it has none.
	HeldFrom *bundle.Held `json:"heldFrom,omitempty"`
}

// siteValues are the site values that a release contains.
type siteValues struct {
	document *sitevalues.Document
	rows     []sitevalues.Row
	failures []FailedSite
}

// siteValues returns the site values of ct. Mistakes keep what the last release has, which is nil if there never was one.
// Lines are the assignments that keep their content of that release.
func (l *lastRelease) siteValues(sites *scheduler.Sites, lines []pack.Held) (s siteValues, err error) {
	if sites.IsFinal() && (sites != nil || !useDeclared(lines)) {
		if sites != nil {
			s.document, s.rows = sites.Document, sites.Rows
		}
		return s, nil
	}
	var document *sitevalues.Document
	var rows []sitevalues.Row
	if l != nil {
		if document, rows, err = l.tree.Sites(); err != nil {
			return s, state.LostIfRefused(err, "release %s", l.name)
		}
	}
	for i := range rows {
		rows[i].HeldFrom = l.heldFrom(rows[i].HeldFrom, SiteValuesFailed)
	}
	switch {
	case sites == nil: // the assignments that are held are all that uses them
		s.document, s.rows = document, rows
		return s, nil
	case sites.Err != nil:
		s.document, s.rows = document, rows
		s.failures = []FailedSite{{Error: sites.Err.Error()}}
		return s, nil
	}
	s.document, s.rows = sites.Document, slices.Clone(sites.Rows)
	for _, f := range sites.Failures {
		failed := FailedSite{Cluster: f.Cluster, UID: f.UID, Error: f.Err.Error()}
		i := slices.IndexFunc(rows, func(r sitevalues.Row) bool { return r.UID == f.UID })
		if i >= 0 {
			failed.HeldFrom = rows[i].HeldFrom
			if !slices.ContainsFunc(s.rows, func(r sitevalues.Row) bool { return r.UID == f.UID }) { // two clusters can claim one
				s.rows = append(s.rows, rows[i])
			}
		}
		s.failures = append(s.failures, failed)
	}
	return s, nil
}

// useDeclared reports whether held assignments use site values that are no facts about the cluster.
func useDeclared(lines []pack.Held) bool {
	return slices.ContainsFunc(lines, func(h pack.Held) bool {
		return slices.ContainsFunc(h.Line.SiteValues, func(key string) bool { return !sitevalues.IsFact(key) })
	})
}

// heldFrom returns the mark of content that l keeps. Content that was held before keeps the release of its mark.
func (l *lastRelease) heldFrom(before *bundle.Held, reason scheduler.FailureReason) *bundle.Held {
	from := bundle.Held{Sequence: l.release.Sequence, BaseCommit: l.release.BaseCommit, Reason: string(reason)}
	if before != nil {
		from.Sequence, from.BaseCommit = before.Sequence, before.BaseCommit
	}
	return &from
}

// lostSites returns the reason why nothing may be published if what the clusters of failed site values had is not known.
func lostSites(sites *scheduler.Sites, err error) string {
	what := "the declaration of the site values failed"
	if sites.Err == nil {
		what = fmt.Sprintf("the site values of %d clusters failed", len(sites.Failures))
	}
	return fmt.Sprintf("%s, and what they had is not known: %v: restore it, or correct the values", what, err)
}

// FailedSites counts the clusters, and declarations, whose site values have a mistake. Those of cluster types that failed
// are not counted.
func (p *Published) FailedSites() int {
	n := 0
	for _, ct := range p.ClusterTypes {
		if ct.Result != releases.OutcomeFailed {
			n += len(ct.FailedSites)
		}
	}
	return n
}

// Name returns the cluster, or what failed in its place.
func (f FailedSite) Name() string { return cmp.Or(f.Cluster, "the site values of all clusters") }
