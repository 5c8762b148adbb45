package relational

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// snapshot is a transaction that only reads, and so reads one state of the database.
type snapshot struct {
	tx         *sql.Tx
	rewrite    func(string) string
	statements map[string]*sql.Stmt // which end with the transaction
}

func (p *pool) begin(ctx context.Context) (s *snapshot, err error) {
	for range maxStale {
		var tx *sql.Tx
		if tx, err = p.db.BeginTx(ctx, nil); err == nil {
			return &snapshot{tx, p.rewrite, map[string]*sql.Stmt{}}, nil
		}
		if !p.stale(err) {
			break
		}
	}
	return nil, err
}

// end ends the transaction, of which nothing is to be kept.
func (s *snapshot) end() { _ = s.tx.Rollback() }

func (s *snapshot) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if one, ok := s.statements[query]; ok {
		return one, nil
	}
	one, err := s.tx.PrepareContext(ctx, s.rewrite(query))
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, query)
	}
	s.statements[query] = one
	return one, nil
}

func (s *snapshot) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	one, err := s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return one.QueryContext(ctx, args...)
}

func (s *snapshot) row(ctx context.Context, query string, args ...any) row {
	one, err := s.prepare(ctx, query)
	if err != nil {
		return row{err: err}
	}
	return row{Row: one.QueryRowContext(ctx, args...)}
}

// each calls scan with each row of a query.
func each(ctx context.Context, db querier, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := db.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// some returns the parameters from $from on for values, which it pads so that there are few different queries.
func some[T any](from int, values []T) (list string, args []any) {
	size := len(values)
	for _, n := range []int{1, 8, 64, page} {
		if size <= n {
			size = n
			break
		}
	}
	var b strings.Builder
	for i := range size {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(from+i))
		args = append(args, values[min(i, len(values)-1)])
	}
	return b.String(), args
}

// page is the number of clusters that are read at once.
const page = 256

// chosen is a cluster that a scope chooses, with what identifies it.
type chosen struct {
	id    int64
	state *store.ClusterState
	row   clusterRow
	// named is the time of its identity and labels, if it is read as of one.
	named int64
}

// Scan implements store.Past.
func (d *DB) Scan(ctx context.Context, s store.Scope, each func(store.ClusterState) error) error {
	return d.scan(ctx, s, func(db querier) ([]chosen, error) { return chooseNow(ctx, db, s) }, func(db querier, all []chosen) error {
		return d.readNow(ctx, db, s, all)
	}, each)
}

// ScanAt implements store.Past.
func (d *DB) ScanAt(ctx context.Context, at time.Time, s store.Scope, each func(store.ClusterState) error) error {
	then := store.Millis(at)
	return d.scan(ctx, s, func(db querier) ([]chosen, error) {
		removed, err := horizon(ctx, db, historyHorizon)
		if err == nil && then < removed {
			err = fmt.Errorf("the fleet as of %s: %w, which goes back to %s", at.UTC().Format(time.RFC3339), store.ErrForgotten, store.Moment(removed).Format(time.RFC3339))
		}
		if err != nil {
			return nil, err
		}
		return chooseThen(ctx, db, s, then)
	}, func(db querier, all []chosen) error { return d.readThen(ctx, db, s, then, all) }, each)
}

// scan reads clusters page by page in one transaction.
func (d *DB) scan(ctx context.Context, s store.Scope, choose func(querier) ([]chosen, error), read func(querier, []chosen) error, each func(store.ClusterState) error) error {
	db, err := d.read.begin(ctx)
	if err != nil {
		return d.classify(err)
	}
	defer db.end()
	all, err := choose(db)
	if err != nil {
		return d.classify(err)
	}
	for part := range slices.Chunk(all, page) {
		if err := read(db, part); err != nil {
			return d.classify(err)
		}
		for i := range part {
			c := &part[i]
			if narrows(s) && !slices.ContainsFunc(c.row.Deployments, func(t *timeline.Deployment) bool { return t.Listed && wanted(s, t) }) {
				continue
			}
			if err := each(*c.finish(s)); err != nil {
				return err
			}
		}
		clear(part) // each may keep what it gets, and this does not
	}
	return nil
}

// narrows reports whether a scope chooses deployments.
func narrows(s store.Scope) bool { return s.Workspace != "" || s.Workload != "" || s.Assignment != "" }

func wanted(s store.Scope, t *timeline.Deployment) bool {
	return (s.Workspace == "" || s.Workspace == t.Workspace) && (s.Workload == "" || s.Workload == t.Workload) && (s.Assignment == "" || s.Assignment == t.Assignment)
}

// finish returns the state from what was read.
func (c *chosen) finish(s store.Scope) *store.ClusterState {
	c.row.Fill(c.state, c.row.proof)
	if s.WithoutDeployments {
		return c.state
	}
	slices.SortFunc(c.row.Deployments, func(x, y *timeline.Deployment) int { return strings.Compare(x.Assignment, y.Assignment) })
	c.state.Deployments = make([]store.Deployment, 0, len(c.row.Deployments))
	for _, t := range c.row.Deployments {
		if t.Listed && wanted(s, t) {
			c.state.Deployments = append(c.state.Deployments, t.Shown(c.row.proof))
		}
	}
	return c.state
}

// placed returns the conditions of a scope's place, for the columns of the table alias.
func placed(s store.Scope, alias string, q *selection) {
	for _, c := range []struct{ column, value string }{{"platform", s.Platform}, {"environment", s.Environment}, {"type", s.Type}} {
		if c.value != "" {
			q.and(alias + "." + c.column + " = " + q.arg(c.value))
		}
	}
}

// byUIDs calls choose for all, or with a condition for some of the uids at a time.
func byUIDs(s store.Scope, q selection, choose func(selection) error) error {
	if s.UIDs == nil {
		return choose(q)
	}
	for part := range slices.Chunk(s.UIDs, page) {
		list, args := some(len(q.args)+1, part)
		one := selection{conditions: append(slices.Clone(q.conditions), "c.uid IN ("+list+")"), args: append(slices.Clone(q.args), args...)}
		if err := choose(one); err != nil {
			return err
		}
	}
	return nil
}

func byName(all []chosen) []chosen {
	slices.SortFunc(all, func(a, b chosen) int {
		return cmp.Or(strings.Compare(a.state.Name, b.state.Name), cmp.Compare(a.id, b.id))
	})
	return slices.CompactFunc(all, func(a, b chosen) bool { return a.id == b.id })
}

// chooseNow reads the registrations that a scope chooses now.
func chooseNow(ctx context.Context, db querier, s store.Scope) (all []chosen, err error) {
	q := selection{}
	if s.WithRetired {
		q.and("(c.removed_at IS NULL OR c.retired_at IS NOT NULL)")
	} else {
		q.and("c.removed_at IS NULL")
	}
	placed(s, "c", &q)
	err = byUIDs(s, q, func(q selection) error {
		return each(ctx, db, `SELECT c.id, `+registrationColumns+` FROM cluster c WHERE `+strings.Join(q.conditions, " AND "), q.args, func(rows *sql.Rows) error {
			c := chosen{state: &store.ClusterState{}}
			if err := scanRegistration(rows, &c.state.Registration, &c.id); err != nil {
				return err
			}
			all = append(all, c)
			return nil
		})
	})
	return byName(all), err
}

// index returns the clusters by id, and the ids.
func index(all []chosen) (map[int64]*chosen, []int64) {
	byID, ids := make(map[int64]*chosen, len(all)), make([]int64, 0, len(all))
	for i := range all {
		byID[all[i].id] = &all[i]
		ids = append(ids, all[i].id)
	}
	return byID, ids
}

// readNow reads what the newest reports of clusters say.
func (d *DB) readNow(ctx context.Context, db querier, s store.Scope, all []chosen) error {
	byID, ids := index(all)
	list, args := some(1, ids)
	err := each(ctx, db, `SELECT c.id, c.change, c.incarnation, c.seq, c.state, c.reason, c.message, c.state_since, c.last_seen, coalesce(a.content, ''),
			c.report_id, c.occurred_at, c.received_at, c.via
		FROM cluster c LEFT JOIN about a ON a.id = c.about_id WHERE c.id IN (`+list+`)`, args, func(rows *sql.Rows) error {
		var id, change, occurred, received int64
		var r clusterRow
		var seen sql.NullInt64
		var content string
		var report []byte
		if err := rows.Scan(&id, &change, &r.Incarnation, &r.Seq, &r.Agent.State, &r.Agent.Reason, &r.Message, &r.Since, &seen, &content,
			&report, &occurred, &received, &r.proof.Via); err != nil {
			return err
		}
		c := byID[id]
		c.state.Change = store.Position(change)
		r.LastSeen, r.EverReported = seen.Int64, seen.Valid
		r.proof.Report, r.proof.At, r.proof.OccurredAt, r.proof.ReceivedAt = reportID(report), r.Order, store.Moment(occurred), store.Moment(received)
		c.row = r
		return parseAbout(content, &c.row.About)
	})
	if err != nil || s.WithoutDeployments && !narrows(s) {
		return err
	}
	return each(ctx, db, `SELECT cluster_id, assignment, workspace, application, workload, target, adapter, state, reason, message, since,
			version, config, content, revision, site_values, failures, floating FROM deployment WHERE listed = 1 AND cluster_id IN (`+list+`)`, args, func(rows *sql.Rows) error {
		t := &timeline.Deployment{Listed: true}
		var id int64
		if err := rows.Scan(&id, &t.Assignment, &t.Workspace, &t.Application, &t.Workload, &t.Target, &t.Adapter, &t.State, &t.Reason, &t.Message, &t.Since,
			&t.Version, &t.Config, &t.Content, &t.Revision, &t.SiteValues, &t.Failures, &t.Floating); err != nil {
			return err
		}
		d.texts.deployment(t)
		byID[id].row.Deployments = append(byID[id].row.Deployments, t)
		return nil
	})
}

// The identities that count at $1: those in force, and the next one of a cluster that was not registered, if a report tells of then.
// Agents report before they are registered, and media bring it later.
const (
	inForce   = "i.since <= $1 AND (i.until IS NULL OR i.until > $1)"
	toldLater = `i.since > $1 AND (i.until IS NULL OR i.until > i.since)
		AND NOT EXISTS (SELECT 1 FROM identity y WHERE y.cluster_id = i.cluster_id AND y.since < i.since AND (y.until IS NULL OR y.until > $1))
		AND EXISTS (SELECT 1 FROM report x WHERE x.cluster_id = i.cluster_id AND x.time <= $1
			AND x.time >= coalesce((SELECT max(y.until) FROM identity y WHERE y.cluster_id = i.cluster_id AND y.until <= $1), x.time))`
	ofRetired = "c.retired_at <= $1 AND i.until = (SELECT max(x.until) FROM identity x WHERE x.cluster_id = c.id)"
)

// chooseThen reads what clusters were registered as at a time.
func chooseThen(ctx context.Context, db querier, s store.Scope, then int64) (all []chosen, err error) {
	q := selection{args: []any{then}}
	counts := inForce + " OR " + toldLater
	if s.WithRetired {
		counts += " OR " + ofRetired
	}
	q.and("(" + counts + ")")
	placed(s, "i", &q)
	err = byUIDs(s, q, func(q selection) error {
		return each(ctx, db, `SELECT c.id, c.uid, i.name, i.platform, i.type, i.environment, i.ring, i.expected, i.since, c.added_at, c.retired_at, c.retired_reason
			FROM identity i JOIN cluster c ON c.id = i.cluster_id WHERE `+strings.Join(q.conditions, " AND "), q.args, func(rows *sql.Rows) error {
			c := chosen{state: &store.ClusterState{}}
			r := &c.state.Registration
			var expected, since, added int64
			var retired sql.NullInt64
			if err := rows.Scan(&c.id, &r.UID, &r.Name, &r.Platform, &r.Type, &r.Environment, &r.Ring, &expected, &since, &added, &retired, &r.RetiredReason); err != nil {
				return err
			}
			c.named = max(then, since)
			r.ExpectedInterval, r.ExpectedSeconds, r.AddedAt = time.Duration(expected)*time.Millisecond, expected/1000, store.Moment(added)
			if r.RetiredAt = momentOf(retired); r.RetiredAt != nil && retired.Int64 > then {
				r.RetiredAt, r.RetiredReason = nil, ""
			}
			all = append(all, c)
			return nil
		})
	})
	for _, c := range all {
		if err == nil && store.Millis(c.state.AddedAt) > c.named { // it has come back since
			err = addedBefore(ctx, db, c)
		}
	}
	return byName(all), err
}

// addedBefore sets the time since which a cluster was registered at the time of its identity, without a break.
func addedBefore(ctx context.Context, db querier, c chosen) error {
	until := int64(-1)
	return each(ctx, db, `SELECT since, coalesce(until, -1) FROM identity WHERE cluster_id = $1 AND since <= $2 ORDER BY since`, []any{c.id, c.named}, func(rows *sql.Rows) error {
		var since, end int64
		if err := rows.Scan(&since, &end); err != nil {
			return err
		}
		if until != since {
			c.state.AddedAt = store.Moment(since)
		}
		until = end
		return nil
	})
}

// The reports as of $1, of clusters in a list. The times of most clusters' reports never fall from one to the next, and then an
// index by time finds the last one.
const (
	pointOfSteady = `SELECT c.id, r.incarnation, r.seq, r.id AS report, r.occurred_at, r.received_at, r.time, r.via
		FROM cluster c CROSS JOIN report r WHERE c.fell = 0 AND r.cluster_id = c.id AND (r.incarnation, r.seq) =
			(SELECT x.incarnation, x.seq FROM report x WHERE x.cluster_id = c.id AND x.time <= $1 ORDER BY x.time DESC, x.incarnation DESC, x.seq DESC LIMIT 1)
		AND c.id IN (`
	pointOfFallen = `SELECT c.id, r.incarnation, r.seq, r.id AS report, r.occurred_at, r.received_at, r.time, r.via
		FROM cluster c CROSS JOIN report r WHERE c.fell = 1 AND r.cluster_id = c.id AND (r.incarnation, r.seq) =
			(SELECT x.incarnation, x.seq FROM report x WHERE x.cluster_id = c.id AND x.time <= $1 ORDER BY x.incarnation DESC, x.seq DESC LIMIT 1)
		AND c.id IN (`
)

// readLabels reads the labels that clusters had at a time.
func readLabels(ctx context.Context, db querier, at int64, byID map[int64]*chosen, ids ...int64) error {
	list, args := some(2, ids)
	return each(ctx, db, `SELECT cluster_id, key, value FROM label WHERE since <= $1 AND (until IS NULL OR until > $1) AND cluster_id IN (`+list+`)`, append([]any{at}, args...), func(rows *sql.Rows) error {
		var id int64
		var key, value string
		if err := rows.Scan(&id, &key, &value); err != nil {
			return err
		}
		r := &byID[id].state.Registration
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[key] = value
		return nil
	})
}

// readThen reads what the reports of clusters said at a time.
func (d *DB) readThen(ctx context.Context, db querier, s store.Scope, then int64, all []chosen) error {
	byID, ids := index(all)
	if err := readLabels(ctx, db, then, byID, ids...); err != nil {
		return err
	}
	for id, c := range byID {
		if c.named == then {
			continue
		}
		if err := readLabels(ctx, db, c.named, byID, id); err != nil {
			return err
		}
	}
	list, args := some(2, ids)
	args = append([]any{then}, args...)
	for _, point := range []string{pointOfSteady, pointOfFallen} {
		if err := d.readPoint(ctx, db, s, then, point+list+")", args, byID); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) readPoint(ctx context.Context, db querier, s store.Scope, then int64, point string, args []any, byID map[int64]*chosen) error {
	var found []*chosen
	err := each(ctx, db, point, args, func(rows *sql.Rows) error {
		var id, occurred, received, at int64
		var report []byte
		var p store.Proof
		if err := rows.Scan(&id, &p.At.Incarnation, &p.At.Seq, &report, &occurred, &received, &at, &p.Via); err != nil {
			return err
		}
		c := byID[id]
		p.Report, p.OccurredAt, p.ReceivedAt = reportID(report), store.Moment(occurred), store.Moment(received)
		c.row.proof, c.row.Order, c.state.Newest = p, p.At, p.At
		c.row.LastSeen, c.row.EverReported = at, true
		if p.Via == store.ViaHTTP && received <= then {
			c.row.LastSeen = received
		}
		found = append(found, c)
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	assignments := ""
	if s.WithoutDeployments && !narrows(s) {
		assignments = " AND d.assignment = ''"
	}
	err = each(ctx, db, `WITH point AS (`+point+`)
		SELECT d.cluster_id, d.id, d.assignment, d.workspace, d.application, d.workload, d.target, d.adapter, d.floating, t.time,
			t.state, t.reason, t.version, t.config, t.content, t.revision, t.site_values, t.failures, t.since, coalesce(a.content, '')
		FROM point p CROSS JOIN deployment d CROSS JOIN transition t LEFT JOIN about a ON a.id = t.about_id
		WHERE d.cluster_id = p.id AND t.deployment_id = d.id AND (t.incarnation, t.seq) =
			(SELECT x.incarnation, x.seq FROM transition x WHERE x.deployment_id = d.id AND (x.incarnation, x.seq) <= (p.incarnation, p.seq)
				ORDER BY x.incarnation DESC, x.seq DESC LIMIT 1)`+assignments, args, func(rows *sql.Rows) error {
		t := &timeline.Deployment{}
		var cluster, at int64
		if err := scanValue(rows, &t.Value, &cluster, &t.ID, &t.Assignment, &t.Workspace, &t.Application, &t.Workload, &t.Target, &t.Adapter, &t.Floating, &at); err != nil {
			return err
		}
		c := byID[cluster]
		if t.Assignment == timeline.WholeAgent {
			c.row.Agent, c.row.Since, c.row.agentID = t.Value, at, t.ID
			return parseAbout(t.About, &c.row.About)
		}
		if t.Since = cmp.Or(t.Since, at); t.Value.State != timeline.Gone.State || t.Reason != timeline.Gone.Reason {
			t.Listed = true
			d.texts.deployment(t)
			c.row.Deployments = append(c.row.Deployments, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range found {
		if err := c.agentSince(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// agentSince finds the first report of those in a row, up to the one as of which the cluster is read, that had the agent's state.
func (c *chosen) agentSince(ctx context.Context, db querier) error {
	at := c.row.Order
	for {
		var state string
		var since int64
		n, same := 0, true
		err := each(ctx, db, `SELECT state, time, incarnation, seq FROM transition WHERE deployment_id = $1 AND (incarnation, seq) <= ($2, $3)
			ORDER BY incarnation DESC, seq DESC LIMIT 8`, []any{c.row.agentID, at.Incarnation, at.Seq}, func(rows *sql.Rows) error {
			if err := rows.Scan(&state, &since, &at.Incarnation, &at.Seq); err != nil {
				return err
			}
			n++
			if same = same && state == c.row.Agent.State; same {
				c.row.Since = since
			}
			return nil
		})
		if err != nil || !same || n < 8 {
			return err
		}
	}
}
