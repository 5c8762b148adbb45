package hub

import (
	"context"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// wholeAgent stands in the history for the agent itself, beside its assignments.
const wholeAgent = ""

// value is what the history keeps of one assignment, or of the agent, as of a report.
type value struct {
	state, reason, version, config, content, revision string
	failures                                          int64
}

// gone is the value of an assignment that a report does not list.
var gone = value{state: string(bundle.Removed), reason: "NotListed"}

// valuesOf returns the values that a report gives, by assignment.
func valuesOf(r bundle.Report) map[string]value {
	values := make(map[string]value, len(r.Items)+1)
	agent := value{state: string(r.State), reason: r.Reason}
	if r.Observed != nil {
		agent.content = string(r.Observed.Digest)
	}
	values[wholeAgent] = agent
	for _, it := range r.Items {
		values[it.Assignment] = value{
			state: string(it.State), reason: it.Reason, version: it.Version,
			config: string(it.ConfigDigest), content: string(it.Content), revision: it.Revision, failures: it.Failures,
		}
	}
	return values
}

// change is a difference between two reports in order.
type change struct {
	assignment string
	from, to   value
}

// diff returns what differs, by assignment. What neither lists, or is removed and then not listed any
// more, does not.
func diff(before, after map[string]value) []change {
	var changes []change
	for name, to := range after {
		from, known := before[name]
		if !known {
			from = gone
		}
		if !known || from != to {
			changes = append(changes, change{name, from, to})
		}
	}
	for name, from := range before {
		if _, listed := after[name]; !listed && from.state != gone.state {
			changes = append(changes, change{name, from, gone})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.assignment, b.assignment) })
	return changes
}

// entry is the report that a transition belongs to.
type entry struct {
	order
	occurred, received int64
	report             string
}

// writeTransition appends to the history. A row that is there already for this report stays: it knows
// better.
func writeTransition(ctx context.Context, db *conn, cluster int64, assignment string, at entry, v value) error {
	_, err := db.exec(ctx, `INSERT INTO transition (cluster_id, assignment, incarnation, seq, state, reason, version, config, content, revision, failures, occurred_at, received_at, report_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (cluster_id, assignment, incarnation, seq) DO NOTHING`,
		cluster, assignment, at.incarnation, at.seq, v.state, v.reason, v.version, v.config, v.content, v.revision, v.failures,
		at.occurred, at.received, at.report)
	return err
}

// reportAfter returns the stored report that follows o.
func reportAfter(ctx context.Context, db querier, cluster int64, o order) (entry, error) {
	var e entry
	err := db.QueryRowContext(ctx, `SELECT incarnation, seq, occurred_at, received_at, id FROM report
		WHERE cluster_id = ? AND (incarnation, seq) > (?, ?) ORDER BY incarnation, seq LIMIT 1`,
		cluster, o.incarnation, o.seq).Scan(&e.incarnation, &e.seq, &e.occurred, &e.received, &e.report)
	return e, err
}

// valuesBefore returns the values as of the stored report before o. One index lookup finds each: every
// assignment that the cluster ever had keeps a row in deployment.
func valuesBefore(ctx context.Context, db querier, cluster int64, o order) (map[string]value, error) {
	rows, err := db.QueryContext(ctx, `SELECT t.assignment, t.state, t.reason, t.version, t.config, t.content, t.revision, t.failures
		FROM (SELECT assignment FROM deployment WHERE cluster_id = ?1 UNION ALL SELECT '') a
		JOIN transition t ON t.id = (SELECT id FROM transition
			WHERE cluster_id = ?1 AND assignment = a.assignment AND (incarnation, seq) < (?2, ?3)
			ORDER BY incarnation DESC, seq DESC LIMIT 1)`, cluster, o.incarnation, o.seq)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]value{}
	for rows.Next() {
		var name string
		var v value
		if err := rows.Scan(&name, &v.state, &v.reason, &v.version, &v.config, &v.content, &v.revision, &v.failures); err != nil {
			return nil, err
		}
		values[name] = v
	}
	return values, rows.Err()
}
