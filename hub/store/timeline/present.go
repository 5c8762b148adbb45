package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Present is a cluster as of its newest report. Times are store.Millis. The zero Present is a cluster that has never
// reported.
type Present struct {
	store.Order
	Agent   Value
	Message string
	// Since is the time of the report that first had the agent's state.
	Since int64
	// About is parsed from Agent.About.
	About
	// LastSeen is zero until EverReported.
	LastSeen     int64
	EverReported bool
	// Deployments has every assignment that the cluster ever had, by assignment. An implementation reads them before it calls
	// Advance.
	Deployments []*Deployment
}

// Deployment is one assignment as of the newest report.
type Deployment struct {
	// ID is the implementation's; zero for a new one.
	ID                                                            int64
	Assignment, Workspace, Application, Workload, Target, Adapter string
	Value
	Message  string
	Floating bool
	Listed   bool // by the newest report
}

// See records that the cluster is alive. A report that came by media, or by a registry, proves so only for the time at
// which the agent wrote it.
func (p *Present) See(r *bundle.Report, via store.Via, now time.Time) {
	at := now
	if via != store.ViaHTTP && r.OccurredAt.Before(now) {
		at = r.OccurredAt
	}
	p.LastSeen, p.EverReported = max(p.LastSeen, store.Millis(at)), true
}

// Advanced is what a report has changed in the present. Each is also a change of the history, unless it is in Shown alone.
type Advanced struct {
	// Agent is true if the value of the agent as a whole has changed.
	Agent bool
	// Values are the deployments whose values have changed, by assignment.
	Values []*Deployment
	// Shown are the deployments of which anything has changed, by assignment.
	Shown []*Deployment
}

// Advance makes r, which an agent made after all reports before, the newest report.
func (p *Present) Advance(r *bundle.Report, now time.Time) (a Advanced, err error) {
	about := p.Agent.About
	if next := aboutOf(r); p.Order == (store.Order{}) || about == "" || !p.About.equal(&next) {
		if about, err = next.json(); err != nil {
			return a, err
		}
		p.About = next
	}
	if string(r.State) != p.Agent.State || p.Order == (store.Order{}) {
		p.Since = min(store.Millis(r.OccurredAt), store.Millis(now))
	}
	value := agentValue(r, about)
	a.Agent = value != p.Agent || p.Order == (store.Order{})
	p.Order, p.Agent, p.Message = store.OrderOf(r.Agent), value, r.Message
	items := make([]*bundle.Item, len(r.Items)) // items are large
	for i := range items {
		items[i] = &r.Items[i]
	}
	byAssignment := func(x, y *bundle.Item) int { return strings.Compare(x.Assignment, y.Assignment) }
	if !slices.IsSortedFunc(items, byAssignment) {
		slices.SortFunc(items, byAssignment)
	}
	p.merge(items, &a)
	return a, nil
}

// merge walks over the deployments and the items of the newest report, which are both sorted.
func (p *Present) merge(items []*bundle.Item, a *Advanced) {
	var fresh []*Deployment
	i := 0
	for _, d := range p.Deployments {
		for i < len(items) && items[i].Assignment < d.Assignment {
			fresh = append(fresh, &Deployment{Assignment: items[i].Assignment, Value: Gone})
			fresh[len(fresh)-1].set(items[i], a)
			i++
		}
		if i < len(items) && items[i].Assignment == d.Assignment {
			d.set(items[i], a)
			i++
		} else {
			d.unlist(a)
		}
	}
	for ; i < len(items); i++ {
		fresh = append(fresh, &Deployment{Assignment: items[i].Assignment, Value: Gone})
		fresh[len(fresh)-1].set(items[i], a)
	}
	if len(fresh) > 0 {
		p.Deployments = append(p.Deployments, fresh...)
		slices.SortFunc(p.Deployments, func(x, y *Deployment) int { return strings.Compare(x.Assignment, y.Assignment) })
	}
}

// set gives a deployment the values of an item.
func (d *Deployment) set(it *bundle.Item, a *Advanced) {
	value := itemValue(it)
	changed := d.Value != value || d.ID == 0 && !d.Listed
	shown := changed || !d.Listed || d.Message != it.Message || d.Floating != it.Floating || d.Workspace != it.Workspace ||
		d.Application != it.Application || d.Workload != it.Workload || d.Target != it.Target || d.Adapter != it.Adapter
	if !shown {
		return
	}
	d.Workspace, d.Application, d.Workload, d.Target, d.Adapter = it.Workspace, it.Application, it.Workload, it.Target, it.Adapter
	d.Value, d.Message, d.Floating, d.Listed = value, it.Message, it.Floating, true
	a.Shown = append(a.Shown, d)
	if changed {
		a.Values = append(a.Values, d)
	}
}

// unlist notes that the newest report does not list a deployment.
func (d *Deployment) unlist(a *Advanced) {
	if !d.Listed {
		return
	}
	d.Listed, d.Message = false, ""
	a.Shown = append(a.Shown, d)
	if d.State != Gone.State {
		d.Value = Gone
		a.Values = append(a.Values, d)
	}
}

// Fill sets what a store shows of a cluster, but for its deployments. Proof is the newest report.
func (p *Present) Fill(s *store.ClusterState, proof store.Proof) {
	if !p.EverReported {
		return
	}
	s.Proof, s.LastSeen = proof, store.Moment(p.LastSeen)
	if p.Order == (store.Order{}) {
		return
	}
	s.State, s.Reason, s.Message, s.Since = bundle.State(p.Agent.State), p.Agent.Reason, p.Message, store.Moment(p.Since)
	s.Offered, s.Observed, s.AgentVersion, s.Claims = p.Offered, p.Observed, p.AgentVersion, p.Claims
}

// Listed returns the deployments that the newest report lists, as a store shows them. Proof is that report.
func (p *Present) Listed(proof store.Proof) []store.Deployment {
	all := make([]store.Deployment, 0, len(p.Deployments))
	for _, d := range p.Deployments {
		if d.Listed {
			all = append(all, d.Shown(proof))
		}
	}
	return all
}

// Shown returns a deployment as a store shows it. Its time is not after the one at which the report came.
func (d *Deployment) Shown(proof store.Proof) store.Deployment {
	return store.Deployment{
		Assignment: d.Assignment, Workspace: d.Workspace, Application: d.Application, Workload: d.Workload, Target: d.Target, Adapter: d.Adapter,
		State: bundle.State(d.State), Reason: d.Reason, Message: d.Message, Since: store.Moment(min(d.Since, cmp.Or(store.Millis(proof.ReceivedAt), d.Since))),
		Version: d.Version, Revision: d.Revision, ConfigDigest: digest.Digest(d.Config), Content: digest.Digest(d.Content), SiteValues: digest.Digest(d.SiteValues),
		Failures: d.Failures, Floating: d.Floating,
	}
}

func (a *About) equal(b *About) bool {
	return a.AgentVersion == b.AgentVersion && sameRelease(a.Offered, b.Offered) && sameRelease(a.Observed, b.Observed) && sameClaims(&a.Claims, &b.Claims)
}

func sameRelease(a, b *bundle.ReportRelease) bool {
	if a == nil || b == nil || !a.IssuedAt.Equal(b.IssuedAt) {
		return a == b
	}
	x, y := *a, *b
	x.IssuedAt, y.IssuedAt = time.Time{}, time.Time{}
	return x == y
}

func sameClaims(a, b *bundle.ReportCluster) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Platform == b.Platform && a.Type == b.Type && a.Environment == b.Environment && a.Ring == b.Ring &&
		maps.Equal(a.Labels, b.Labels)
}
