// Package timeline computes the changes of one report: in the present of its cluster, and in the history.
//
// It is the part of store.Store's Ingest that knows no database. Begin with Present.Advance for a report that is the newest of
// its cluster, and with Values and Diff for one that is late. An implementation reads the rows, calls these functions, and
// writes the results.
//
// The history keeps, for each assignment, a row at each report that changed it, so that the value as of a report is that
// of the last row at or before it. A late report is compared with the one before it in order. Its
// changes are changed back at the report after it, whose rows were made without knowing them. So the history is the same
// whatever order reports arrive in.
package timeline

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// WholeAgent stands for the agent itself, beside its assignments.
const WholeAgent = ""

// Value is the state of one assignment, or of the agent, as of a report.
type Value struct {
	State, Reason, Version, Config, Content, Revision, SiteValues string
	Failures                                                      int64
	// Since is the agent's time, as store.Millis; zero for WholeAgent.
	Since int64
	// About is that of the report, as JSON, for WholeAgent alone.
	About string
}

// Gone is the value of an assignment that a report does not list.
var Gone = Value{State: string(bundle.Removed), Reason: "NotListed"}

// About is what a report says of its agent beside the state.
type About struct {
	Offered      *bundle.ReportRelease `json:"offered,omitempty"`
	Observed     *bundle.ReportRelease `json:"observed,omitempty"`
	AgentVersion string                `json:"agentVersion,omitempty"`
	Claims       bundle.ReportCluster  `json:"claims"`
}

// aboutOf returns what a report says of its agent.
func aboutOf(r *bundle.Report) About {
	return About{Offered: r.Desired, Observed: r.Observed, AgentVersion: r.Agent.Version, Claims: r.Cluster}
}

func (a *About) json() (string, error) {
	data, err := json.Marshal(a)
	return string(data), err
}

// Values returns the values that a report gives, by assignment. For WholeAgent, Content is the digest of the running
// release.
func Values(r *bundle.Report) (map[string]Value, error) {
	about := aboutOf(r)
	text, err := about.json()
	if err != nil {
		return nil, err
	}
	values := make(map[string]Value, len(r.Items)+1)
	values[WholeAgent] = agentValue(r, text)
	for i := range r.Items {
		values[r.Items[i].Assignment] = itemValue(&r.Items[i])
	}
	return values, nil
}

func agentValue(r *bundle.Report, about string) Value {
	v := Value{State: string(r.State), Reason: r.Reason, About: about}
	if r.Observed != nil {
		v.Content = string(r.Observed.Digest)
	}
	return v
}

func itemValue(it *bundle.Item) Value {
	return Value{
		State: string(it.State), Reason: it.Reason, Version: it.Version, Config: string(it.ConfigDigest), Content: string(it.Content),
		Revision: it.Revision, SiteValues: string(it.SiteValues), Failures: it.Failures, Since: store.Millis(it.Since),
	}
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
