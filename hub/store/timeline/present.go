package timeline

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Present is a cluster as of its newest report. Times are store.Millis. The zero Present is a cluster that has never
// reported.
type Present struct {
	store.Order
	Agent             Value
	Message           string
	Since             int64
	Desired, Observed bundle.ReportRelease // zero without one
	AgentVersion      string
	Claims            string // the report's cluster, as JSON
	// LastSeen is zero until EverReported.
	LastSeen     int64
	EverReported bool
	// Deployments holds every assignment that the cluster ever had. An implementation reads them before it calls Values
	// or Advance.
	Deployments map[string]Deployment
}

// Deployment is one assignment as of the newest report.
type Deployment struct {
	Workspace, Workload, Target, Adapter string
	Value
	Message  string
	Since    int64
	Floating bool
	Listed   bool // by the newest report
}

// See records that the cluster is alive. A report that came by media, or by a registry, proves so only for the time at
// which the agent wrote it.
func (p *Present) See(r bundle.Report, via store.Via, now time.Time) {
	at := now
	if via != store.ViaHTTP && r.OccurredAt.Before(now) {
		at = r.OccurredAt
	}
	p.LastSeen, p.EverReported = max(p.LastSeen, store.Millis(at)), true
}

// Values returns the values as of the newest report.
func (p *Present) Values() map[string]Value {
	values := make(map[string]Value, len(p.Deployments)+1)
	if p.Order != (store.Order{}) {
		values[WholeAgent] = p.Agent
	}
	for name, d := range p.Deployments {
		values[name] = d.Value
	}
	return values
}

// Advance makes r the newest report, and returns the names of the deployments that have changed, sorted.
func (p *Present) Advance(r bundle.Report, now time.Time) (changed []string, err error) {
	claims, err := json.Marshal(r.Cluster)
	if err != nil {
		return nil, err
	}
	occurred := min(store.Millis(r.OccurredAt), store.Millis(now))
	if string(r.State) != p.Agent.State {
		p.Since = occurred
	}
	values := Values(r)
	p.Order, p.Agent, p.Message, p.AgentVersion = store.OrderOf(r.Agent), values[WholeAgent], r.Message, r.Agent.Version
	p.Desired, p.Observed, p.Claims = releaseOf(r.Desired), releaseOf(r.Observed), string(claims)
	if p.Deployments == nil {
		p.Deployments = make(map[string]Deployment, len(r.Items))
	}
	set := func(name string, d Deployment) {
		if before, known := p.Deployments[name]; !known || before != d {
			p.Deployments[name] = d
			changed = append(changed, name)
		}
	}
	for _, it := range r.Items {
		set(it.Assignment, Deployment{
			Workspace: it.Workspace, Workload: it.Workload, Target: it.Target, Adapter: it.Adapter, Value: values[it.Assignment],
			Message: it.Message, Since: min(store.Millis(it.Since), store.Millis(now)), Floating: it.Floating, Listed: true,
		})
	}
	for name, d := range p.Deployments {
		if _, listed := values[name]; listed || !d.Listed {
			continue
		}
		d.Listed, d.Message, d.Since = false, "", occurred
		if d.State != Gone.State {
			d.Value = Gone
		}
		set(name, d)
	}
	slices.Sort(changed)
	return changed, nil
}

func releaseOf(r *bundle.ReportRelease) bundle.ReportRelease {
	if r == nil {
		return bundle.ReportRelease{}
	}
	return *r
}
