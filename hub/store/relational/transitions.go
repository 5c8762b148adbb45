package relational

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// Transitions implements store.Past.
func (d *DB) Transitions(ctx context.Context, f store.TransitionFilter) (list store.TransitionList, err error) {
	limit := cmp.Or(f.Limit, store.DefaultLimit)
	after, err := parseCursor(f.After)
	if err != nil {
		return list, err
	}
	db, err := d.read.begin(ctx)
	if err != nil {
		return list, d.classify(err)
	}
	defer db.end()
	// Rows in which nothing has changed that a Change has are passed over, so that one page of rows may not be enough.
	about := map[int64]timeline.About{}
	for {
		rows, err := transitionRows(ctx, db, f, after, limit+1)
		if err != nil {
			return list, d.classify(err)
		}
		for i := range rows {
			if len(list.Transitions) == limit {
				list.Next = after.String()
				return list, nil
			}
			r := &rows[i]
			after = r.cursor()
			if err := r.complete(ctx, db, about); err != nil {
				return list, d.classify(err)
			}
			if r.From != r.To {
				list.Transitions = append(list.Transitions, r.Change)
			}
		}
		if len(rows) <= limit {
			return list, nil
		}
	}
}

// cursor is the place of a row of the history, newest first.
type cursor struct{ time, deployment, incarnation, seq int64 }

func (c cursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%d", c.time, c.deployment, c.incarnation, c.seq)
}

// parseCursor is the reverse of String. Nothing is the place before all rows.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{time: 1<<63 - 1}, nil
	}
	var rest string
	if n, _ := fmt.Sscanf(s, "%d.%d.%d.%d%s", &c.time, &c.deployment, &c.incarnation, &c.seq, &rest); n != 4 {
		return c, fmt.Errorf("place in a list %q: %w", store.Clip(s), store.ErrInvalid)
	}
	return c, nil
}

// transitionRow is a row of the history that is to become a Change.
type transitionRow struct {
	store.Change
	time, deployment, cluster, about int64
}

func (r *transitionRow) cursor() cursor {
	return cursor{r.time, r.deployment, r.Proof.At.Incarnation, r.Proof.At.Seq}
}

// transitionRows reads the rows after a place that a filter chooses.
func transitionRows(ctx context.Context, db querier, f store.TransitionFilter, after cursor, limit int) (all []transitionRow, err error) {
	q := selection{args: []any{after.time, after.deployment, after.incarnation, after.seq}}
	q.and("(t.time, t.deployment_id, t.incarnation, t.seq) < ($1, $2, $3, $4) AND t.time <= $1")
	placed(f.Scope, "c", &q)
	for _, c := range []struct{ column, value string }{{"workspace", f.Workspace}, {"workload", f.Workload}, {"assignment", f.Assignment}} {
		if c.value != "" {
			q.and("d." + c.column + " = " + q.arg(c.value))
		}
	}
	if !f.WithRetired {
		q.and("c.retired_at IS NULL")
	}
	if !f.Both {
		q.and([]string{"d.assignment <> ''", "d.assignment = ''"}[bit(f.WholeAgent)])
	}
	if !f.From.IsZero() {
		q.and("t.time >= " + q.arg(store.Millis(f.From)))
	}
	if !f.Until.IsZero() {
		q.and("t.time < " + q.arg(store.Millis(f.Until)))
	}
	if f.First != (store.Order{}) {
		q.and("(t.incarnation, t.seq) >= (" + q.arg(f.First.Incarnation) + ", " + q.arg(f.First.Seq) + ")")
	}
	if f.Last != (store.Order{}) {
		q.and("(t.incarnation, t.seq) <= (" + q.arg(f.Last.Incarnation) + ", " + q.arg(f.Last.Seq) + ")")
	}
	// The rows of few clusters, or of a rare workload, are read by these; else all by time.
	tables := "transition t CROSS JOIN deployment d CROSS JOIN cluster c"
	if f.UIDs != nil {
		tables = "cluster c CROSS JOIN deployment d CROSS JOIN transition t"
	} else if f.Workload != "" {
		rare, err := isRare(ctx, db, f.Workload)
		if err != nil {
			return nil, err
		}
		if rare {
			tables = "deployment d CROSS JOIN cluster c CROSS JOIN transition t"
		}
	}
	q.and("d.id = t.deployment_id AND c.id = d.cluster_id")
	err = byUIDs(f.Scope, q, func(q selection) error {
		query := `SELECT t.time, t.deployment_id, t.incarnation, t.seq, coalesce(t.about_id, 0), c.id, c.uid, c.name, c.environment, c.type,
				d.assignment, d.workspace, d.application, d.workload, d.target, t.state, t.reason, t.version, t.revision, t.config, t.content, t.failures,
				r.id, coalesce(r.occurred_at, t.time), coalesce(r.received_at, 0), coalesce(r.via, '')
			FROM ` + tables + ` LEFT JOIN report r ON r.cluster_id = c.id AND r.incarnation = t.incarnation AND r.seq = t.seq
			WHERE ` + strings.Join(q.conditions, " AND ") + ` ORDER BY t.time DESC, t.deployment_id DESC, t.incarnation DESC, t.seq DESC LIMIT ` + q.arg(int64(limit))
		return each(ctx, db, query, q.args, func(rows *sql.Rows) error {
			var r transitionRow
			var report []byte
			var occurred, received int64
			if err := rows.Scan(&r.time, &r.deployment, &r.Proof.At.Incarnation, &r.Proof.At.Seq, &r.about, &r.cluster, &r.UID, &r.Cluster, &r.Environment, &r.Type,
				&r.Assignment, &r.Workspace, &r.Application, &r.Workload, &r.Target, &r.To.State, &r.To.Reason, &r.To.Version, &r.To.Revision, &r.To.ConfigDigest, &r.To.Content, &r.To.Failures,
				&report, &occurred, &received, &r.Proof.Via); err != nil {
				return err
			}
			r.Proof.Report, r.Proof.OccurredAt, r.Proof.ReceivedAt = reportID(report), store.Moment(occurred), store.Moment(received)
			all = append(all, r)
			return nil
		})
	})
	if len(f.UIDs) > page {
		slices.SortFunc(all, func(a, b transitionRow) int {
			x, y := a.cursor(), b.cursor()
			return -cmp.Or(cmp.Compare(x.time, y.time), cmp.Compare(x.deployment, y.deployment), cmp.Compare(x.incarnation, y.incarnation), cmp.Compare(x.seq, y.seq))
		})
		all = all[:min(limit, len(all))]
	}
	return all, err
}

// rareDeployments bounds the deployments of a workload whose history is read deployment by deployment.
const rareDeployments = 1000

func isRare(ctx context.Context, db querier, workload string) (bool, error) {
	var n int64
	err := db.row(ctx, `SELECT count(*) FROM (SELECT 1 FROM deployment WHERE workload = $1 LIMIT $2) w`, workload, int64(rareDeployments)).Scan(&n)
	return n < rareDeployments, err
}

// complete reads what there was before a change, and the releases that ran.
func (r *transitionRow) complete(ctx context.Context, db querier, about map[int64]timeline.About) error {
	at := []any{r.deployment, r.Proof.At.Incarnation, r.Proof.At.Seq}
	p := &r.From
	err := db.row(ctx, `SELECT state, reason, version, revision, config, content, failures FROM transition
		WHERE deployment_id = $1 AND (incarnation, seq) < ($2, $3) ORDER BY incarnation DESC, seq DESC LIMIT 1`, at...).Scan(
		&p.State, &p.Reason, &p.Version, &p.Revision, &p.ConfigDigest, &p.Content, &p.Failures)
	missing := errors.Is(err, sql.ErrNoRows)
	if err != nil && !missing {
		return err
	}
	if !missing {
		if r.Returns, err = r.returns(ctx, db); err != nil {
			return err
		}
	}
	if err := r.release(ctx, db, &r.To, "<=", about); err != nil {
		return err
	}
	if !missing {
		err = r.release(ctx, db, &r.From, "<", about)
	} else {
		err = nil
	}
	if r.Assignment == timeline.WholeAgent { // what is in the column is the release
		r.From.Content, r.To.Content = "", ""
	}
	return err
}

// returns reports whether the assignment had the version, or else the content, before. Both sides of the change are known.
func (r *transitionRow) returns(ctx context.Context, db querier) (before bool, err error) {
	column, value := "version", r.To.Version
	if r.From.Version == r.To.Version {
		column, value = "content", string(r.To.Content)
	}
	same := r.From.Version == r.To.Version && r.From.Content == r.To.Content
	if same || value == "" || r.From.State == bundle.Removed || r.To.State == bundle.Removed {
		return false, nil
	}
	var n int64
	err = db.row(ctx, `SELECT count(*) FROM (SELECT 1 FROM transition WHERE deployment_id = $1 AND (incarnation, seq) < ($2, $3) AND `+column+` = $4 AND state <> $5 LIMIT 1) x`,
		r.deployment, r.Proof.At.Incarnation, r.Proof.At.Seq, value, string(bundle.Removed)).Scan(&n)
	return n > 0, err
}

// release sets the release that ran at, or before, the report of a change.
func (r *transitionRow) release(ctx context.Context, db querier, p *store.Point, when string, about map[int64]timeline.About) error {
	var id int64
	err := db.row(ctx, `SELECT t.content, coalesce(t.about_id, 0) FROM deployment d JOIN transition t ON t.deployment_id = d.id
		WHERE d.cluster_id = $1 AND d.assignment = '' AND (t.incarnation, t.seq) `+when+` ($2, $3) ORDER BY t.incarnation DESC, t.seq DESC LIMIT 1`,
		r.cluster, r.Proof.At.Incarnation, r.Proof.At.Seq).Scan(&p.Release, &id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && id == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	a, known := about[id]
	if !known {
		var content string
		if err := db.row(ctx, `SELECT content FROM about WHERE id = $1`, id).Scan(&content); err != nil {
			return err
		}
		if err := parseAbout(content, &a); err != nil {
			return err
		}
		about[id] = a
	}
	if a.Observed != nil && a.Observed.Digest == p.Release {
		p.BaseCommit, p.EnvironmentCommit = a.Observed.BaseCommit, a.Observed.EnvironmentCommit
	}
	return nil
}
