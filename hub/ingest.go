package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Via says how a report came.
type Via string

// The ways of a report.
const (
	ViaHTTP  Via = "http"
	ViaMedia Via = "media"
	// ViaRegistry is by a registry that the agent pushes to; see Hub.Collect.
	ViaRegistry Via = "registry"
)

// stored is what became of the verified reports of one cluster.
type stored struct {
	accepted, duplicates int
	ids                  []digest.Digest // of both
	rejected             []hubapi.Rejection
	newest               bundle.ReportAgent // of the verified report that is last in order
	sharedHow            string             // how two agents share the cluster's identity shows; empty while none do
	found                bool               // that was found out now
}

// store writes the verified reports of one cluster and returns once they are on disk.
func (h *Hub) store(ctx context.Context, uid string, reports []received, via Via) (stored, error) {
	// Oldest first, so that none of a batch is late because of another.
	slices.SortStableFunc(reports, func(a, b received) int { return orderOf(a.body).compare(orderOf(b.body)) })
	now := h.now()
	var s stored
	err := h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		in := &intake{db: db, via: via, now: now}
		var err error
		if in.cluster, err = loadPresent(ctx, db, uid); err != nil {
			return err
		}
		for _, r := range reports {
			if err := in.add(ctx, r); err != nil {
				return fmt.Errorf("store report %s: %w", r.id, err)
			}
		}
		if err := in.cluster.save(ctx, db); err != nil {
			return fmt.Errorf("store cluster %s: %w", uid, err)
		}
		s = in.done
		s.sharedHow = in.cluster.sharedHow
		return nil
	})
	if err != nil {
		return stored{}, err
	}
	if s.found {
		h.log.Warn("two agents share an identity", "cluster", uid, "how", s.sharedHow)
	}
	if s.accepted > 0 {
		h.log.Info("reports stored", "cluster", uid, "accepted", s.accepted, "duplicates", s.duplicates, "via", via)
	}
	return s, nil
}

// intake adds reports of one cluster within one transaction.
type intake struct {
	db      *conn
	cluster *present
	via     Via
	now     time.Time
	done    stored
}

// add stores one report: its number, what it changes in the history, and, if it is the newest, the
// present.
func (in *intake) add(ctx context.Context, r received) error {
	fresh, err := in.record(ctx, r)
	if err != nil || !fresh {
		return err
	}
	in.cluster.seen(r.body, in.via, in.now)
	after := valuesOf(r.body)
	at := entry{order: orderOf(r.body), occurred: millis(r.body.OccurredAt), received: millis(in.now), report: string(r.id)}
	if at.order.compare(in.cluster.order) < 0 {
		return in.addLate(ctx, at, after)
	}
	before, err := in.cluster.values(ctx, in.db)
	if err != nil {
		return err
	}
	changes := diff(before, after)
	for _, c := range changes {
		if err := writeTransition(ctx, in.db, in.cluster.id, c.assignment, at, c.to); err != nil {
			return err
		}
	}
	return in.cluster.advance(ctx, in.db, r.body, in.now)
}

// addLate adds the history of a report that is older than the newest, and leaves the present alone.
//
// The report that follows it in order was compared with the one before it, and left out what had not
// changed since then. What this report changes in between has to be changed back there, so that the
// history reads the same as if the reports had come in order.
func (in *intake) addLate(ctx context.Context, at entry, after map[string]value) error {
	next, err := reportAfter(ctx, in.db, in.cluster.id, at.order)
	if err != nil {
		return err
	}
	before, err := valuesBefore(ctx, in.db, in.cluster.id, at.order)
	if err != nil {
		return err
	}
	for _, c := range diff(before, after) {
		if err := writeTransition(ctx, in.db, in.cluster.id, c.assignment, at, c.to); err != nil {
			return err
		}
		if err := writeTransition(ctx, in.db, in.cluster.id, c.assignment, next, c.from); err != nil {
			return err
		}
		if err := in.cluster.remember(ctx, in.db, c.assignment); err != nil {
			return err
		}
	}
	return nil
}

// record writes the report's number and id, and says whether it is to be taken further. A repeat and a
// conflict are not.
func (in *intake) record(ctx context.Context, r received) (fresh bool, err error) {
	owed := in.via == ViaMedia
	n, err := in.db.exec(ctx, `INSERT INTO report (id, cluster_id, incarnation, seq, kind, occurred_at, received_at, via, kid, ack_owed)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		string(r.id), in.cluster.id, r.body.Agent.Incarnation, r.body.Agent.Seq, string(r.body.Kind),
		millis(r.body.OccurredAt), millis(in.now), string(in.via), r.kid, owed)
	if err != nil {
		return false, err
	}
	if n == 1 {
		in.done.accepted++
		in.done.ids = append(in.done.ids, r.id)
		return true, in.noteInstance(ctx, r.body.Agent)
	}
	var known bool
	if err := in.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM report WHERE id = ?)`, string(r.id)).Scan(&known); err != nil {
		return false, err
	}
	if !known {
		u := unopened{index: r.index, id: r.id, cluster: r.body.Cluster.UID}
		in.done.rejected = append(in.done.rejected, *u.reject(hubapi.CodeConflict,
			"another report with incarnation %d and seq %d is stored; do two agents share this identity?", r.body.Agent.Incarnation, r.body.Agent.Seq))
		return false, in.conflict(ctx, r.body.Agent)
	}
	in.done.duplicates++
	in.done.ids = append(in.done.ids, r.id)
	if owed { // it came again, so the former acknowledgement never arrived
		_, err = in.db.exec(ctx, `UPDATE report SET ack_owed = 1 WHERE id = ?`, string(r.id))
	}
	return false, err
}

// order is the place of a report among those of its cluster.
type order struct{ incarnation, seq int64 }

func orderOf(r bundle.Report) order { return order{r.Agent.Incarnation, r.Agent.Seq} }

func (o order) compare(p order) int {
	return cmp.Or(cmp.Compare(o.incarnation, p.incarnation), cmp.Compare(o.seq, p.seq))
}
