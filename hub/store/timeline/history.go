// Package timeline computes the changes of one report: in the present of its cluster, and in the history.
//
// It is the part of store.Store's Ingest that knows no database. Begin with
// Values and Diff for the history, and with Present for the cluster as of its newest report. An implementation reads
// the rows, calls these functions, and writes the results.
//
// The history keeps, for each assignment, a row at each report that changed it, so that the value as of a report is that
// of the last row at or before it. A late report is compared with the one before it in order. Its
// changes are changed back at the report after it, whose rows were made without knowing them. So the history is the same
// whatever order reports arrive in.
package timeline

import (
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// WholeAgent stands for the agent itself, beside its assignments.
const WholeAgent = ""

// Value is the state of one assignment, or of the agent, as of a report.
type Value struct {
	State, Reason, Version, Config, Content, Revision string
	Failures                                          int64
}

// Gone is the value of an assignment that a report does not list.
var Gone = Value{State: string(bundle.Removed), Reason: "NotListed"}

// Values returns the values that a report gives, by assignment. For WholeAgent, Content is the digest of the running
// release.
func Values(r bundle.Report) map[string]Value {
	values := make(map[string]Value, len(r.Items)+1)
	agent := Value{State: string(r.State), Reason: r.Reason}
	if r.Observed != nil {
		agent.Content = string(r.Observed.Digest)
	}
	values[WholeAgent] = agent
	for _, it := range r.Items {
		values[it.Assignment] = Value{
			State: string(it.State), Reason: it.Reason, Version: it.Version,
			Config: string(it.ConfigDigest), Content: string(it.Content), Revision: it.Revision, Failures: it.Failures,
		}
	}
	return values
}

// Change is a difference between two reports.
type Change struct {
	Assignment string
	From, To   Value
}

// Diff returns the changes between two reports, by assignment. An assignment that neither lists, or that was removed
// and then not listed, has not changed.
func Diff(before, after map[string]Value) []Change {
	var changes []Change
	for name, to := range after {
		from, known := before[name]
		if !known {
			from = Gone
		}
		if !known || from != to {
			changes = append(changes, Change{name, from, to})
		}
	}
	for name, from := range before {
		if _, listed := after[name]; !listed && from.State != Gone.State {
			changes = append(changes, Change{name, from, Gone})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Assignment, b.Assignment) })
	return changes
}
