package fleet

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Clusters implements Answers.
func (v *View) Clusters(ctx context.Context, q Query) (Clusters, error) {
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return Clusters{}, err
	}
	defer done()
	c, err := m.choose(ctx, q)
	if err != nil {
		return Clusters{}, err
	}
	p, err := m.newPager(q, false)
	if err != nil {
		return Clusters{}, err
	}
	var totals tally
	for r := range c.clusters() {
		totals.add(m, r.state, 1)
		totals.relate(r.relation())
		p.add(r, nil)
	}
	if q.mayHaveSlip(totals.count) {
		if err := m.checkNames(ctx, q); err != nil {
			return Clusters{}, err
		}
	}
	rows, next := p.page()
	list := Clusters{AsOf: m.asOf, Totals: totals.totals(), Clusters: make([]Cluster, 0, len(rows)), Next: next}
	from := make([]*cluster, 0, len(rows))
	for _, f := range rows {
		r, _ := m.see(f.cluster)
		list.Clusters, from = append(list.Clusters, r.status()), append(from, f.cluster)
	}
	if err := m.fillClusters(ctx, from, list.Clusters); err != nil {
		return Clusters{}, err
	}
	list.ReadAt = m.readAt
	return list, nil
}

// Deployments implements Answers.
func (v *View) Deployments(ctx context.Context, q Query) (Deployments, error) {
	m, done, err := v.moment(ctx, q, true)
	if err != nil {
		return Deployments{}, err
	}
	defer done()
	c, err := m.choose(ctx, q)
	if err != nil {
		return Deployments{}, err
	}
	p, err := m.newPager(q, true)
	if err != nil {
		return Deployments{}, err
	}
	var totals tally
	for r, d := range c.deployments() {
		totals.add(m, r.stateOf(d), 1)
		p.add(r, d)
	}
	if q.mayHaveSlip(totals.count) {
		if err := m.checkNames(ctx, q); err != nil {
			return Deployments{}, err
		}
	}
	rows, next := p.page()
	list := Deployments{AsOf: m.asOf, Totals: totals.totals(), Deployments: make([]Deployment, 0, len(rows)), Next: next}
	for _, f := range rows {
		r, _ := m.see(f.cluster)
		d := r.deploymentStatus(f.deployment)
		if d.Desired, err = r.desiredContent(ctx, d.Assignment); err != nil {
			return Deployments{}, err
		}
		list.Deployments = append(list.Deployments, d)
	}
	if err := m.fillDeployments(ctx, rows, list.Deployments); err != nil {
		return Deployments{}, err
	}
	list.ReadAt = m.readAt
	return list, nil
}

// tally counts rows by state and relation.
type tally struct {
	count     int
	known     [32]int
	others    map[bundle.State]int
	relations map[Relation]int
}

func (t *tally) add(m *moment, state uint32, n int) {
	t.count += n
	if at := state - firstState; at < uint32(len(knownStates)) { //nolint:gosec // there are few
		t.known[at] += n
		return
	}
	if t.others == nil {
		t.others = map[bundle.State]int{}
	}
	t.others[bundle.State(m.texts[state])] += n
}

func (t *tally) relate(r Relation) {
	if r == "" {
		return
	}
	if t.relations == nil {
		t.relations = map[Relation]int{}
	}
	t.relations[r]++
}

func (t *tally) totals() Totals {
	all := Totals{Count: t.count, States: map[bundle.State]int{}, Relations: t.relations}
	for i, n := range t.known[:len(knownStates)] {
		if n > 0 {
			all.States[knownStates[i]] = n
		}
	}
	for s, n := range t.others {
		all.States[s] = n
	}
	return all
}

// count returns the number of deployments of a cluster that the view sees.
func (r *row) count() int {
	if r.m.sight.whole() {
		return len(r.deployments)
	}
	n := 0
	for range r.all() {
		n++
	}
	return n
}

// label returns the value of a label, no text without it.
func (r *row) label(key string) uint32 {
	for _, l := range r.labels {
		if r.m.texts[l.key] == key {
			return l.value
		}
	}
	return noText
}

// identity returns the identity of a cluster.
func (r *row) identity() store.Identity {
	t := r.m.texts
	id := store.Identity{UID: r.uid, Name: r.name, Platform: t[r.platform], Type: t[r.typ], Environment: t[r.environment], Ring: t[r.ring]}
	if len(r.labels) > 0 {
		id.Labels = make(map[string]string, len(r.labels))
		for _, l := range r.labels {
			id.Labels[t[l.key]] = t[l.value]
		}
	}
	return id
}

// proofOf returns the report from which the state of a cluster is known.
func (r *row) proofOf() store.Proof {
	return store.Proof{
		Report: r.proof(), At: r.newest, OccurredAt: store.Moment(r.occurred), ReceivedAt: store.Moment(r.received), Via: store.Via(r.m.texts[r.via]),
	}
}

// cause returns the reason of the reported state of a cluster. The agent gives one for what concerns all of it, and then of is nil.
// Otherwise of is the first deployment that the view shows in that state, if there is one.
func (r *row) cause() (reason uint32, of *deployment) {
	if r.m.sight.whole() {
		reason = r.reason
	}
	if reason != noText || !r.reported || r.reportedState == compliantState {
		return reason, nil
	}
	for d := range r.all() {
		if d.state == r.reportedState {
			return d.reason, d
		}
	}
	return noText, nil
}

// explained returns the cause of a cluster's state as texts. The message of a deployment has the name of its assignment.
func (r *row) explained() (reason, message string) {
	handle, of := r.cause()
	switch {
	case of != nil:
		message = r.m.texts[r.m.snapshot.kinds[of.kind].assignment]
		switch text := r.m.messages[of.message]; {
		case strings.Contains(text, message):
			message = text
		case text != "":
			message += ": " + text
		}
	case r.m.sight.whole():
		message = r.m.messages[r.message]
	}
	return r.m.texts[handle], message
}

// status returns what a list shows of a cluster, but for what only the database has; see fillClusters.
func (r *row) status() Cluster {
	t := r.m.texts
	reason, message := r.explained()
	c := Cluster{
		ClusterStatus: store.ClusterStatus{
			Identity: r.identity(), State: bundle.State(t[r.state]), LastState: r.lastState(r.reportedState), Reason: reason, Message: message, Since: store.Moment(r.since),
			Offered: r.m.release(r.offered), Observed: r.m.release(r.observed), AgentVersion: t[r.agentVersion],
			Incarnation: r.newest.Incarnation, Seq: r.newest.Seq, LastSeen: store.Moment(r.lastSeen), Mismatch: t[r.mismatch],
			Conflicts: r.conflicts, SharedSince: store.Moment(r.shared), SharedHow: t[r.sharedHow],
		},
		Desired: r.desired(), Proof: r.proofOf(), Deployments: r.count(), KeyIDs: r.keyIDs(),
		ExpectedSeconds: r.expected / 1000, AddedAt: store.Moment(r.added), ProofAgeSeconds: r.age(),
	}
	if !r.reports() {
		c.Reporting = store.NotReporting
	}
	if !r.m.sight.whole() {
		c.Since = time.Time{}
	}
	return c
}

// deploymentStatus returns what a list shows of a deployment, but for what only the database has; see fillDeployments.
func (r *row) deploymentStatus(d *deployment) Deployment {
	t, k := r.m.texts, r.m.snapshot.kinds[d.kind]
	base, environment := r.m.commits(r.observed)
	return Deployment{
		DeploymentStatus: store.DeploymentStatus{
			Cluster: r.name, ClusterUID: r.uid, Environment: t[r.environment], Type: t[r.typ], Assignment: t[k.assignment],
			Workspace: t[k.workspace], Workload: t[k.workload], Target: t[k.target], Adapter: t[k.adapter],
			State: bundle.State(t[r.stateOf(d)]), LastState: r.lastState(d.state), Reason: t[d.reason], Message: r.m.messages[d.message], Since: store.Moment(d.since), Version: t[d.version],
			ConfigDigest: digest.Digest(t[d.config]), Content: digest.Digest(t[d.content]), Revision: t[d.revision], Floating: d.floating, Failures: int64(d.failures),
			Release: r.m.snapshot.releases[r.observed].Digest,
		},
		Application: t[k.application], Ring: t[r.ring], BaseCommit: base, EnvironmentCommit: environment,
		Proof: r.proofOf(), ProofAgeSeconds: r.age(),
	}
}

// desiredContent returns the content that an assignment of a cluster should have; empty if that is unknown, or it should not
// be there.
func (r *row) desiredContent(ctx context.Context, assignment string) (digest.Digest, error) {
	desired := r.desired()
	if desired == nil || desired.Release == nil {
		return "", nil
	}
	release, err := r.m.view.fleet.contentsOf(ctx, r.m.published, desired.Release.Digest)
	if release == nil || err != nil {
		return "", r.m.unread(ctx, err)
	}
	if i := slices.IndexFunc(release.Assignments, func(a bundle.Assignment) bool { return a.Name == assignment }); i >= 0 {
		return release.Assignments[i].Content, nil
	}
	return "", nil
}

// unread notes that the database could not be read for a part of an answer about now, which has less then. It returns err
// if there is no answer without it.
func (m *moment) unread(ctx context.Context, err error) error {
	if err == nil || !m.asOf.IsZero() || ctx.Err() != nil {
		return err
	}
	if m.readAt.IsZero() {
		m.readAt = m.at
	}
	return nil
}

// fillClusters adds what only the database has.
func (m *moment) fillClusters(ctx context.Context, from []*cluster, rows []Cluster) error {
	at, uids := map[string]int{}, []string{}
	for i, c := range from {
		if c.unread {
			at[c.uid], uids = i, append(uids, c.uid)
		}
	}
	if len(uids) == 0 {
		return nil
	}
	return m.unread(ctx, m.view.fleet.scan(ctx, m.asOf, store.Scope{UIDs: uids, WithoutDeployments: true}, func(s store.ClusterState) error {
		i, wanted := at[s.UID]
		if !wanted {
			return nil
		}
		c := &rows[i]
		c.KeyIDs = s.KeyIDs
		if m.sight.whole() && c.Message == "" && c.Seq == s.Newest.Seq && c.Incarnation == s.Newest.Incarnation {
			c.Message = s.Message
		}
		return nil
	}))
}

// fillDeployments adds the messages that only the database has.
func (m *moment) fillDeployments(ctx context.Context, from []found, rows []Deployment) error {
	at, uids := map[[2]string]int{}, []string{}
	for i, f := range from {
		if !f.deployment.unread {
			continue
		}
		at[[2]string{rows[i].ClusterUID, rows[i].Assignment}] = i
		if n := len(uids); n == 0 || uids[n-1] != rows[i].ClusterUID {
			uids = append(uids, rows[i].ClusterUID)
		}
	}
	if len(uids) == 0 {
		return nil
	}
	slices.Sort(uids)
	return m.unread(ctx, m.view.fleet.scan(ctx, m.asOf, store.Scope{UIDs: slices.Compact(uids)}, func(s store.ClusterState) error {
		for i := range s.Deployments {
			d := &s.Deployments[i]
			// A newer report may be there by now.
			if j, wanted := at[[2]string{s.UID, d.Assignment}]; wanted && rows[j].Reason == d.Reason && (rows[j].State == d.State || rows[j].LastState == d.State) {
				rows[j].Message = d.Message
			}
		}
		return nil
	}))
}
