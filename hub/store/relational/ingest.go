package relational

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// Ingest implements store.Store.
func (d *DB) Ingest(ctx context.Context, b store.Batch) (store.Outcome, error) {
	for i := range b.Reports {
		if _, err := rawID(b.Reports[i].ID); err != nil {
			return store.Outcome{}, err
		}
	}
	// Oldest first, so that no report of a batch is late because of another.
	inOrder := make([]int, len(b.Reports))
	for i := range inOrder {
		inOrder[i] = i
	}
	slices.SortStableFunc(inOrder, func(i, j int) int {
		return store.OrderOf(b.Reports[i].Body.Agent).Compare(store.OrderOf(b.Reports[j].Body.Agent))
	})
	reports := make([]store.Report, len(inOrder))
	for i, index := range inOrder {
		reports[i] = b.Reports[index]
	}
	body, err := packEnvelopes(reports) // here and not by the writer: mostly all of them are new
	if err != nil {
		return store.Outcome{}, err
	}
	now := d.now()
	var in *intake
	err = d.run(ctx, job{
		run: func(ctx context.Context, db *Conn) error {
			in = &intake{db: db, texts: &d.texts, via: b.Via, quota: b.Quota, now: now, reports: reports, index: inOrder, body: body}
			var err error
			if in.cluster, err = d.loadCluster(ctx, db, b.UID); err != nil {
				return err
			}
			if err := in.take(ctx); err != nil {
				return fmt.Errorf("store reports of cluster %s: %w", b.UID, err)
			}
			return nil
		},
		committed: func() { d.recent.put(in.cluster) },
	})
	if err != nil {
		return store.Outcome{}, err
	}
	return in.done, nil
}

// intake adds reports of one cluster within one transaction.
type intake struct {
	db      *Conn
	texts   *texts
	cluster *clusterRow
	via     store.Via
	quota   store.Quota
	now     time.Time
	reports []store.Report // in order
	index   []int          // of each in the batch
	body    []byte         // all envelopes
	done    store.Outcome

	position store.Position
	changed  bool // the cluster's row
	// rows that are not written yet.
	reportRows, transitionRows []any
	shown                      map[*timeline.Deployment]bool
}

// take stores the reports that are new: their numbers, the changes that they make in the history, and the present.
func (in *intake) take(ctx context.Context) error {
	fresh, err := in.sort(ctx)
	if err != nil {
		return err
	}
	if err := in.charge(fresh); err != nil {
		return err
	}
	if err := in.announce(ctx, fresh); err != nil {
		return err
	}
	for part, i := range fresh {
		if in.body == nil || len(in.reports[i].Envelope) == 0 {
			part = -1
		}
		if err := in.add(ctx, &in.reports[i], part); err != nil {
			return err
		}
	}
	if err := in.flush(ctx); err != nil {
		return err
	}
	in.done.SharedHow = in.cluster.registration.SharedHow
	if !in.changed {
		return nil
	}
	in.cluster.change = in.position
	if err := in.cluster.save(ctx, in.db); err != nil {
		return err
	}
	in.done.State = in.cluster.state()
	return nil
}

// sort returns which reports are new, and notes repeats and conflicts.
func (in *intake) sort(ctx context.Context) (fresh []int, err error) {
	for i := range in.reports {
		r := &in.reports[i]
		at := store.OrderOf(r.Body.Agent)
		var stored digest.Digest
		switch {
		case len(fresh) > 0 && store.OrderOf(in.reports[fresh[len(fresh)-1]].Body.Agent) == at:
			stored = in.reports[fresh[len(fresh)-1]].ID
		case at.Compare(in.cluster.Order) > 0: // none is stored from there on
		case at.Compare(in.cluster.kept) < 0: // it was, or its time is over
			stored = r.ID
		default:
			if stored, err = in.stored(ctx, at); err != nil {
				return nil, err
			}
		}
		switch stored {
		case "":
			fresh = append(fresh, i)
			in.done.Accepted++
			in.done.Stored = append(in.done.Stored, r.ID)
		case r.ID:
			in.done.Duplicates++
			in.done.Stored = append(in.done.Stored, r.ID)
			if in.via == store.ViaMedia { // it came again, so the former acknowledgement never arrived
				if err := in.db.Later(ctx, `UPDATE report SET ack_owed = 1 WHERE cluster_id = $1 AND incarnation = $2 AND seq = $3`, in.cluster.id, at.Incarnation, at.Seq); err != nil {
					return nil, err
				}
			}
		default:
			in.done.Conflicts = append(in.done.Conflicts, in.index[i])
			in.conflict(r.Body.Agent)
		}
	}
	slices.Sort(in.done.Conflicts)
	return fresh, nil
}

// stored returns the id of the stored report at a place, empty if there is none.
func (in *intake) stored(ctx context.Context, at store.Order) (digest.Digest, error) {
	var id []byte
	err := in.db.row(ctx, `SELECT id FROM report WHERE cluster_id = $1 AND incarnation = $2 AND seq = $3`, in.cluster.id, at.Incarnation, at.Seq).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return reportID(id), err
}

// announce writes the feed's entry of new reports, with their envelopes, or of what conflicts have shown.
func (in *intake) announce(ctx context.Context, fresh []int) (err error) {
	e := feedRow{kind: store.FeedCluster, cluster: in.cluster.id}
	switch {
	case len(fresh) > 0:
		e.kind, e.first, e.last = store.FeedReports, store.OrderOf(in.reports[fresh[0]].Body.Agent), store.OrderOf(in.reports[fresh[len(fresh)-1]].Body.Agent)
		if len(fresh) < len(in.reports) {
			only := make([]store.Report, 0, len(fresh))
			for _, i := range fresh {
				only = append(only, in.reports[i])
			}
			if in.body, err = packEnvelopes(only); err != nil {
				return err
			}
		}
		e.body = in.body
	case !in.changed:
		return nil
	}
	in.changed = true
	in.position, err = writeFeed(ctx, in.db, in.now, e)
	return err
}

// add stores one new report. Its envelope is that part of the batch's; -1 means none.
func (in *intake) add(ctx context.Context, r *store.Report, part int) error {
	c := in.cluster
	if err := in.noteProcess(ctx, r.Body.Agent); err != nil {
		return err
	}
	at := store.OrderOf(r.Body.Agent)
	proof := store.Proof{Report: r.ID, At: at, OccurredAt: store.Moment(store.Millis(r.Body.OccurredAt)), ReceivedAt: store.Moment(store.Millis(in.now)), Via: in.via}
	raw, err := rawID(r.ID)
	if err != nil {
		return err
	}
	in.reportRows = append(in.reportRows, c.id, at.Incarnation, at.Seq, raw, string(r.Body.Kind), store.Millis(r.Body.OccurredAt), store.Millis(in.now), timeOf(proof),
		string(in.via), r.KeyID, bit(in.via == store.ViaMedia), int64(in.position), int64(part))
	c.See(&r.Body, in.via, in.now)
	if at.Compare(c.Order) < 0 {
		return in.addLate(ctx, r, proof)
	}
	if c.Order != (store.Order{}) && timeOf(proof) < timeOf(c.proof) {
		c.fell = true
	}
	c.proof = proof
	before := c.Agent.About
	changes, err := c.Advance(&r.Body, in.now)
	if err != nil {
		return err
	}
	if c.aboutID == 0 || c.Agent.About != before {
		if c.aboutID, err = c.keepAbout(ctx, in.db, c.Agent.About); err != nil {
			return err
		}
	}
	if c.agentID == 0 || slices.ContainsFunc(changes.Shown, func(t *timeline.Deployment) bool { return t.ID == 0 }) {
		if err := c.insertDeployments(ctx, in.db, changes.Shown); err != nil {
			return err
		}
	}
	if changes.Agent {
		in.transition(c.agentID, proof, c.Agent, c.aboutID)
	}
	for _, t := range changes.Values {
		in.transition(t.ID, proof, t.Value, 0)
	}
	for _, t := range changes.Shown {
		in.texts.deployment(t)
		if in.shown == nil {
			in.shown = map[*timeline.Deployment]bool{}
		}
		in.shown[t] = true
	}
	return nil
}

// timeOf returns the time of a report, as store.Millis: that of the agent's clock, but not later than it was received.
func timeOf(p store.Proof) int64 { return min(store.Millis(p.OccurredAt), store.Millis(p.ReceivedAt)) }

// transition adds a change to the history.
func (in *intake) transition(deployment int64, p store.Proof, v timeline.Value, about int64) {
	in.transitionRows = append(in.transitionRows, deployment, p.At.Incarnation, p.At.Seq, timeOf(p), v.State, v.Reason, v.Version, v.Config, v.Content, v.Revision,
		v.SiteValues, v.Failures, v.Since, sql.NullInt64{Int64: about, Valid: about != 0})
}

// flush writes the rows that are not written yet.
func (in *intake) flush(ctx context.Context) error {
	err := in.db.insert(ctx, insertion{
		into:    `report (cluster_id, incarnation, seq, id, kind, occurred_at, received_at, time, via, kid, ack_owed, position, part)`,
		columns: 13,
	}, in.reportRows, nil)
	if err != nil {
		return err
	}
	// A row that a report has already stays: the report itself wrote it.
	err = in.db.insert(ctx, insertion{
		into:    `transition (deployment_id, incarnation, seq, time, state, reason, version, config, content, revision, site_values, failures, since, about_id)`,
		columns: 14, end: `ON CONFLICT DO NOTHING`,
	}, in.transitionRows, nil)
	if err != nil {
		return err
	}
	for _, t := range in.cluster.Deployments {
		if in.shown[t] {
			if err := updateDeployment(ctx, in.db, t); err != nil {
				return err
			}
		}
	}
	in.reportRows, in.transitionRows, in.shown = nil, nil, nil
	return in.saveProcesses(ctx)
}

// addLate adds the history of a report that is older than the newest, and leaves the present alone. Package timeline
// explains why the next report gets rows too.
func (in *intake) addLate(ctx context.Context, r *store.Report, proof store.Proof) error {
	c := in.cluster
	if err := in.flush(ctx); err != nil {
		return err
	}
	next, err := reportBeside(ctx, in.db, c.id, proof.At, after)
	if err != nil {
		return err
	}
	previous, err := reportBeside(ctx, in.db, c.id, proof.At, before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if timeOf(next) < timeOf(proof) || timeOf(proof) < timeOf(previous) {
		c.fell = true
	}
	was, err := valuesBefore(ctx, in.db, c.id, proof.At)
	if err != nil {
		return err
	}
	values, err := timeline.Values(&r.Body)
	if err != nil {
		return err
	}
	changes := timeline.Diff(was, values)
	if err := in.remember(ctx, r, changes); err != nil {
		return err
	}
	for _, change := range changes {
		id := c.agentID
		if change.Assignment != timeline.WholeAgent {
			i, _ := c.find(change.Assignment)
			id = c.Deployments[i].ID
		}
		for _, side := range []struct {
			at store.Proof
			timeline.Value
		}{{proof, change.To}, {next, change.From}} {
			var about int64
			if side.About != "" {
				if about, err = c.keepAbout(ctx, in.db, side.About); err != nil {
					return err
				}
			}
			in.transition(id, side.at, side.Value, about)
		}
	}
	return in.flush(ctx)
}

// find returns the place of an assignment among the deployments.
func (c *clusterRow) find(assignment string) (int, bool) {
	return slices.BinarySearchFunc(c.Deployments, assignment, func(t *timeline.Deployment, name string) int { return strings.Compare(t.Assignment, name) })
}

// remember gives assignments that only history knows a row that is not listed.
func (in *intake) remember(ctx context.Context, r *store.Report, changes []timeline.Change) error {
	c := in.cluster
	var fresh []*timeline.Deployment
	for _, change := range changes {
		if change.Assignment == timeline.WholeAgent {
			continue
		}
		place, known := c.find(change.Assignment)
		if known {
			continue
		}
		t := &timeline.Deployment{Assignment: change.Assignment, Value: timeline.Gone}
		for i := range r.Body.Items {
			if it := &r.Body.Items[i]; it.Assignment == t.Assignment {
				t.Workspace, t.Application, t.Workload, t.Target, t.Adapter = it.Workspace, it.Application, it.Workload, it.Target, it.Adapter
			}
		}
		c.Deployments = slices.Insert(c.Deployments, place, t)
		fresh = append(fresh, t)
	}
	if len(fresh) == 0 {
		return nil
	}
	return c.insertDeployments(ctx, in.db, fresh)
}

// rawID returns the 32 bytes of a report's id.
func rawID(id digest.Digest) ([]byte, error) {
	text, ok := strings.CutPrefix(string(id), "sha256:")
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != 32 {
		return nil, fmt.Errorf("report id %q: %w", store.Clip(string(id)), store.ErrInvalid)
	}
	return raw, nil
}

// idBytes is rawID of an id that is kept already; nil for none.
func idBytes(id digest.Digest) []byte {
	raw, err := rawID(id)
	if err != nil {
		return nil
	}
	return raw
}

// reportID is the reverse of rawID; empty for nothing.
func reportID(raw []byte) digest.Digest {
	if len(raw) == 0 {
		return ""
	}
	return digest.Digest("sha256:" + hex.EncodeToString(raw))
}

// Has implements store.Store.
func (d *DB) Has(ctx context.Context, uid string, at store.Order) (known bool, err error) {
	err = d.read.row(ctx, `SELECT EXISTS (SELECT 1 FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE c.uid = $1 AND r.incarnation = $2 AND r.seq = $3)`, uid, at.Incarnation, at.Seq).Scan(&known)
	return known, d.classify(err)
}

// From implements store.Store.
func (d *DB) From(ctx context.Context, uid string, at store.Order, limit int) (ids []digest.Digest, err error) {
	err = each(ctx, d.read, `SELECT r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE c.uid = $1 AND (r.incarnation, r.seq) >= ($2, $3) ORDER BY r.incarnation, r.seq LIMIT $4`, []any{uid, at.Incarnation, at.Seq, int64(limit)}, func(rows *sql.Rows) error {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, reportID(id))
		return nil
	})
	return ids, d.classify(err)
}

// Owed implements store.Store.
func (d *DB) Owed(ctx context.Context) (all []store.Owed, err error) {
	err = each(ctx, d.read, `SELECT c.uid, r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE r.ack_owed = 1 ORDER BY c.name, c.id, r.incarnation, r.seq`, nil, func(rows *sql.Rows) error {
		var uid string
		var id []byte
		if err := rows.Scan(&uid, &id); err != nil {
			return err
		}
		if len(all) == 0 || all[len(all)-1].UID != uid {
			all = append(all, store.Owed{UID: uid})
		}
		last := &all[len(all)-1]
		last.IDs = append(last.IDs, reportID(id))
		return nil
	})
	return all, d.classify(err)
}

// Settle implements store.Store.
func (d *DB) Settle(ctx context.Context, ids []digest.Digest) error {
	return d.Do(ctx, func(ctx context.Context, db *Conn) error {
		for _, id := range ids {
			if err := db.Later(ctx, `UPDATE report SET ack_owed = 0 WHERE id = $1 AND ack_owed = 1`, idBytes(id)); err != nil {
				return err
			}
		}
		return nil
	})
}
