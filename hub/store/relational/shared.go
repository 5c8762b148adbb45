package relational

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// process is a process of a cluster's agent, with the numbers of the first and last report that it has made.
type process struct {
	incarnation int64
	instance    string
	first, last int64
	changed     bool // since it was read
}

// noteProcess notes which process of an agent has made a report, and finds two that take turns.
func (in *intake) noteProcess(ctx context.Context, a bundle.ReportAgent) error {
	c := in.cluster
	if a.Instance == "" || c.clears(store.OrderOf(a)) {
		return nil // of an older agent, or from before the suspicion was cleared
	}
	if err := c.loadProcesses(ctx, in.db); err != nil {
		return err
	}
	i := slices.IndexFunc(c.processes, func(p process) bool { return p.incarnation == a.Incarnation && p.instance == a.Instance })
	if i < 0 {
		i = len(c.processes)
		c.processes = append(c.processes, process{incarnation: a.Incarnation, instance: a.Instance, first: a.Seq, last: a.Seq})
	}
	p := &c.processes[i]
	p.first, p.last, p.changed = min(p.first, a.Seq), max(p.last, a.Seq), true
	me := *p
	if err := in.forgetProcesses(ctx); err != nil {
		return err
	}
	for _, o := range c.processes {
		if o.incarnation == me.incarnation && o.instance != me.instance && o.first < me.last && me.first < o.last {
			in.share(timeline.TakeTurns(a.Seq, o.first, o.last))
			break
		}
	}
	return nil
}

// loadProcesses reads the processes unless they are there.
func (c *clusterRow) loadProcesses(ctx context.Context, db querier) error {
	if c.processesLoaded {
		return nil
	}
	err := each(ctx, db, `SELECT incarnation, instance, first_seq, last_seq FROM instance WHERE cluster_id = $1`, []any{c.id}, func(rows *sql.Rows) error {
		var p process
		if err := rows.Scan(&p.incarnation, &p.instance, &p.first, &p.last); err != nil {
			return err
		}
		c.processes = append(c.processes, p)
		return nil
	})
	c.processesLoaded = err == nil
	return err
}

// forgetProcesses removes the oldest processes beyond timeline.MaxProcesses.
func (in *intake) forgetProcesses(ctx context.Context) error {
	c := in.cluster
	if len(c.processes) <= timeline.MaxProcesses {
		return nil
	}
	slices.SortStableFunc(c.processes, func(a, b process) int {
		return cmp.Or(cmp.Compare(b.incarnation, a.incarnation), cmp.Compare(b.last, a.last))
	})
	for _, p := range c.processes[timeline.MaxProcesses:] {
		if err := in.db.Later(ctx, `DELETE FROM instance WHERE cluster_id = $1 AND incarnation = $2 AND instance = $3`, c.id, p.incarnation, p.instance); err != nil {
			return err
		}
	}
	c.processes = c.processes[:timeline.MaxProcesses]
	return nil
}

// saveProcesses writes the processes that have changed.
func (in *intake) saveProcesses(ctx context.Context) error {
	for i := range in.cluster.processes {
		p := &in.cluster.processes[i]
		if !p.changed {
			continue
		}
		err := in.db.Later(ctx, `INSERT INTO instance (cluster_id, incarnation, instance, first_seq, last_seq) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (cluster_id, incarnation, instance) DO UPDATE SET first_seq = excluded.first_seq, last_seq = excluded.last_seq`,
			in.cluster.id, p.incarnation, p.instance, p.first, p.last)
		if err != nil {
			return err
		}
		p.changed = false
	}
	return nil
}

// conflict notes that another report with the number of this one is stored.
func (in *intake) conflict(a bundle.ReportAgent) {
	if in.cluster.clears(store.OrderOf(a)) {
		return
	}
	in.cluster.registration.Conflicts++
	in.changed = true
	in.share(timeline.SameNumber(store.OrderOf(a)))
}

// clears reports whether a report at o raises no suspicion, because a person or a new key has ended it since.
func (c *clusterRow) clears(o store.Order) bool { return o.Compare(c.cleared) <= 0 }

// share notes that two agents share the cluster's identity, and how that shows.
func (in *intake) share(how string) {
	r := &in.cluster.registration
	if r.SharedSince != nil {
		return
	}
	since := store.Moment(store.Millis(in.now))
	r.SharedSince, r.SharedHow, in.done.SharedNow = &since, how, true
}

// forgetShared ends the suspicion that two agents share the cluster's identity. The reports that are stored, and those
// up to upTo, which may still come, do not raise it again.
func forgetShared(ctx context.Context, db *Conn, cluster int64, upTo store.Order) error {
	var newest store.Order
	if err := db.row(ctx, `SELECT incarnation, seq FROM cluster WHERE id = $1`, cluster).Scan(&newest.Incarnation, &newest.Seq); err != nil {
		return err
	}
	if newest.Compare(upTo) < 0 {
		newest = upTo
	}
	if _, err := db.Exec(ctx, `UPDATE cluster SET shared_since = NULL, shared_how = '', conflicts = 0, cleared_incarnation = $1, cleared_seq = $2 WHERE id = $3`,
		newest.Incarnation, newest.Seq, cluster); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `DELETE FROM instance WHERE cluster_id = $1`, cluster)
	return err
}

// Unshare implements store.Store.
func (d *DB) Unshare(ctx context.Context, nameOrUID string) (store.Registration, error) {
	var r store.Registration
	now := d.now()
	err := d.Do(ctx, func(ctx context.Context, db *Conn) (err error) {
		if r, err = findRegistration(ctx, db, nameOrUID); err != nil {
			return err
		}
		var id int64
		if err := db.row(ctx, `SELECT id FROM cluster WHERE uid = $1`, r.UID).Scan(&id); err != nil {
			return err
		}
		if err := forgetShared(ctx, db, id, store.Order{}); err != nil {
			return err
		}
		return touch(ctx, db, now, id)
	})
	return r, err
}
