package fleet

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// moment is the fleet at one time, as far as a View sees it. It belongs to one question, and is not for several goroutines.
type moment struct {
	*snapshot
	view *View
	// at decides what is silent; asOf is zero for now; readAt is the time of the rows if the database cannot be read.
	at, asOf, readAt time.Time
	sight            *sight
	desired          map[stream]*Desired
	// push is what the rows were restricted to when they were read.
	push store.Scope
}

// stream is all that decides what a cluster should run, and how it stands to that.
type stream struct{ platform, environment, typ, ring, observed uint32 }

// row is a cluster that a View sees.
type row struct {
	*cluster
	m *moment
	// reported is its state in its last report, state the one that counts now.
	reportedState, state uint32
}

// moment returns the fleet as of the time of q. If deployments, only those that q chooses are needed. The caller calls done
// when it needs the rows no more.
func (v *View) moment(ctx context.Context, q Query, deployments bool) (m *moment, done func(), err error) {
	m, done = &moment{view: v, at: v.fleet.now(), asOf: q.AsOf}, func() {}
	if m.asOf.IsZero() {
		if m.snapshot, m.readAt, err = v.fleet.present(ctx); err != nil {
			return nil, nil, err
		}
		m.sight = v.scope.on(m.snapshot)
		return m, done, nil
	}
	if c, err := parseCursor(q.After, q.Sort); err != nil {
		return nil, nil, err
	} else if c != nil && c.At > 0 {
		m.asOf = store.Moment(c.At)
	}
	if m.asOf.After(m.at.Add(maxSkew)) {
		return nil, nil, fmt.Errorf("as of %s: %w: the time is in the future", m.asOf.UTC().Format(time.RFC3339), store.ErrInvalid)
	}
	m.at = m.asOf
	// A fleet of then takes as much memory as the one of now, so there is one at a time.
	if done, err = v.fleet.oneAsOf(ctx); err != nil {
		return nil, nil, err
	}
	if err = m.readThen(ctx, q, deployments); err != nil {
		done()
		return nil, nil, err
	}
	return m, done, nil
}

// oneAsOf waits until no other question holds a fleet of then.
func (f *Fleet) oneAsOf(ctx context.Context) (done func(), err error) {
	select {
	case f.asOf <- struct{}{}:
		return func() { <-f.asOf }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readThen reads the clusters that the query may choose.
func (m *moment) readThen(ctx context.Context, q Query, deployments bool) (err error) {
	if q.Cluster != "" {
		// Few clusters have changed their name, so that those of now are tried first.
		m.push = store.Scope{UIDs: m.view.fleet.uids(q.Cluster)}
		if m.snapshot, err = m.view.fleet.then(ctx, m.asOf, m.push); err != nil {
			return err
		}
		if slices.ContainsFunc(m.clusters, func(c *cluster) bool { return c.name == q.Cluster }) {
			m.sight = m.view.scope.on(m.snapshot)
			return nil
		}
	}
	m.push = store.Scope{}
	if q.Cluster == "" { // else it is to be found, whatever the other conditions are
		m.push = store.Scope{Environment: q.onlyEnvironment(), Type: q.Type}
	}
	if m.push.Environment == "" && len(m.view.scope.environments) == 1 {
		m.push.Environment = m.view.scope.environments[0]
	}
	if deployments && q.Cluster == "" {
		m.push.Workspace, m.push.Workload = q.Workspace, q.Workload
	}
	m.snapshot, err = m.view.fleet.thenKept(ctx, m.asOf, m.push, q.After != "")
	if err != nil {
		return err
	}
	m.sight = m.view.scope.on(m.snapshot)
	return nil
}

// uids returns the uids that a name or uid may mean.
func (f *Fleet) uids(nameOrUID string) []string {
	uids := []string{nameOrUID}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i, _ := slices.BinarySearchFunc(f.order, nameOrUID, func(c *cluster, name string) int { return strings.Compare(c.name, name) }); i < len(f.order) && f.order[i].name == nameOrUID; i++ {
		uids = append(uids, f.order[i].uid)
	}
	return uids
}

// see returns the row of a cluster, if the view sees it.
func (m *moment) see(c *cluster) (row, bool) {
	reported, seen := m.sight.cluster(c)
	if !seen {
		return row{}, false
	}
	r := row{cluster: c, m: m, reportedState: reported, state: reported}
	switch {
	case !c.reported:
		r.state = unreportedState
	case c.lastSeen < m.at.UnixMilli()-3*c.expected:
		r.state = staleState
	}
	return r, true
}

// rows returns all clusters that the view sees, by name. A row is valid until the next one.
func (m *moment) rows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		var r row
		for _, c := range m.clusters {
			var seen bool
			if r, seen = m.see(c); seen && !yield(&r) {
				return
			}
		}
	}
}

// all returns the deployments of a cluster that the view sees, by assignment.
func (r *row) all() iter.Seq[*deployment] {
	return func(yield func(*deployment) bool) {
		for i := range r.deployments {
			if d := &r.deployments[i]; r.m.sight.deployment(d) && !yield(d) {
				return
			}
		}
	}
}

// silent reports whether the last reported states no longer count.
func (r *row) silent() bool { return r.state == staleState || r.state == unreportedState }

// stateOf returns the state of a deployment that counts now.
func (r *row) stateOf(d *deployment) uint32 {
	if r.silent() {
		return r.state
	}
	return d.state
}

// lastState returns the last reported state of a stale cluster, or of a deployment on one.
func (r *row) lastState(reported uint32) bundle.State {
	if r.state != staleState {
		return ""
	}
	return bundle.State(r.m.texts[reported])
}

// desired returns what a cluster should run; nil if that is unknown. The result is shared.
func (r *row) desired() *Desired {
	m := r.m
	of := stream{r.platform, r.environment, r.typ, r.ring, r.observed}
	desired, known := m.desired[of]
	if !known {
		if m.desired == nil {
			m.desired = map[stream]*Desired{}
		}
		id := store.Identity{Platform: m.texts[of.platform], Environment: m.texts[of.environment], Type: m.texts[of.typ], Ring: m.texts[of.ring]}
		desired = m.published.desiredOf(id, m.release(of.observed))
		m.desired[of] = desired
	}
	return desired
}

// relation returns how a cluster stands to what is published for it; empty if nobody knows.
func (r *row) relation() Relation {
	if desired := r.desired(); desired != nil {
		return desired.Relation
	}
	return ""
}

// age returns the seconds since the last word of a cluster, zero without one.
func (r *row) age() int64 {
	if !r.reported {
		return 0
	}
	return max(0, (r.m.at.UnixMilli()-r.lastSeen)/1000)
}

// reports reports whether reports are expected of the cluster. For the past, the registration of now counts.
func (r *row) reports() bool {
	c := r.cluster
	if !r.m.asOf.IsZero() {
		f := r.m.view.fleet
		f.mu.RLock()
		defer f.mu.RUnlock()
		if c = f.byUID[r.uid]; c == nil {
			return true
		}
	}
	return !c.quiet
}
