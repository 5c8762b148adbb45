package hub

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// States that only the hub can tell.
const (
	// Stale is a cluster that has been silent for three of its expected intervals, and all of its
	// deployments. What it said last is in Was, and counts no longer.
	Stale bundle.State = "stale"
	// Unreported is a registered cluster that has never reported.
	Unreported bundle.State = "unreported"
)

// States lists every state that a row can show, the hub's own last.
func States() []bundle.State {
	return []bundle.State{
		bundle.Pending, bundle.Pulling, bundle.Verifying, bundle.Rejected, bundle.Applying, bundle.Progressing,
		bundle.Compliant, bundle.Drifted, bundle.Failed, bundle.Suspended, bundle.Removed, Stale, Unreported,
	}
}

// Filter chooses rows; what is empty chooses all.
type Filter struct {
	Environment, Type, Workload string
	State                       bundle.State
	// After continues where a list ended: its Next.
	After string
	// Limit bounds the rows; zero means all.
	Limit int
}

// check returns an error wrapping ErrInvalid for a state that does not exist.
func (f Filter) check() error {
	if f.State != "" && !slices.Contains(States(), f.State) {
		var known []string
		for _, s := range States() {
			known = append(known, string(s))
		}
		return fmt.Errorf("state %q: %w: it is one of %s", plain(string(f.State)), ErrInvalid, strings.Join(known, ", "))
	}
	if f.Limit < 0 {
		return fmt.Errorf("limit %d: %w", f.Limit, ErrInvalid)
	}
	return nil
}

// stateNow is the state of cluster c, or of a row of it with the given state, at :now.
func stateNow(state string) string {
	return `CASE WHEN c.last_seen IS NULL THEN 'unreported' WHEN c.last_seen < :now - 3 * c.expected THEN 'stale' ELSE ` + state + ` END`
}

// selection is the WHERE clause of a query in the making, with its arguments.
type selection struct {
	conditions []string
	args       []any
}

// selection begins with what clusters and deployments have in common; state is the row's own.
func (h *Hub) selection(f Filter, state string) *selection {
	q := &selection{args: []any{sql.Named("now", millis(h.now()))}}
	q.and("c.removed_at IS NULL")
	if f.Environment != "" {
		q.and("c.environment = :environment", sql.Named("environment", f.Environment))
	}
	if f.Type != "" {
		q.and("c.type = :type", sql.Named("type", f.Type))
	}
	if f.State != "" {
		q.and(stateNow(state)+" = :state", sql.Named("state", string(f.State)))
	}
	return q
}

// and adds a condition with the arguments that it brings.
func (q *selection) and(condition string, args ...sql.NamedArg) {
	q.conditions = append(q.conditions, condition)
	for _, a := range args {
		q.args = append(q.args, a)
	}
}

// end returns the clause, the order, and a limit of one row more than wanted, which tells whether there
// are more.
func (q *selection) end(order string, limit int) string {
	s := " WHERE " + strings.Join(q.conditions, " AND ") + " ORDER BY " + order
	if limit > 0 {
		s += fmt.Sprintf(" LIMIT %d", limit+1)
	}
	return s
}
