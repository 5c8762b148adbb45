package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/store"
)

// UnknownNameError is the error of a name in a query that nothing in the fleet has, as far as the one who asks sees it.
type UnknownNameError struct {
	Kind string `json:"kind"` // environment, cluster type, ring, workspace or workload
	Name string `json:"name"`
	// Near are names of that kind which are near, or all of them if they are few; the nearest first.
	Near []string `json:"near,omitempty"`
}

func (e *UnknownNameError) Error() string {
	return fmt.Sprintf("the hub knows no %s %q", e.Kind, store.Plain(store.Clip(e.Name)))
}

// maxNear bounds UnknownNameError.Near, and maxCompared the names that are looked at.
const (
	maxNear     = 8
	maxCompared = 5000
)

// checkNames returns an *UnknownNameError if q has a name that nothing has. It is for queries that mayHaveSlip.
func (m *moment) checkNames(ctx context.Context, q Query) error {
	if len(q.Environments) == 0 && q.Type == "" && q.Ring == "" && q.Workspace == "" && q.Workload == "" {
		return nil
	}
	if m.push.Environment+m.push.Type+m.push.Workspace+m.push.Workload != "" || m.push.UIDs != nil {
		all := *m
		all.push = store.Scope{}
		var err error
		if all.snapshot, err = m.view.fleet.then(ctx, m.asOf, all.push); err != nil {
			return err
		}
		all.sight = m.view.scope.on(all.snapshot)
		return all.checkNames(ctx, q)
	}
	environments, types, rings, workspaces, workloads := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	m.publishedNames(environments, types, rings)
	seen := make([]bool, len(m.snapshot.kinds))
	for r := range m.rows() {
		environments[m.texts[r.environment]], types[m.texts[r.typ]], rings[m.texts[r.ring]] = true, true, true
		for d := range r.all() {
			if !seen[d.kind] {
				seen[d.kind] = true
				k := m.snapshot.kinds[d.kind]
				workspaces[m.texts[k.workspace]], workloads[m.texts[k.workload]] = true, true
			}
		}
	}
	for _, name := range q.Environments {
		if !environments[name] {
			return &UnknownNameError{"environment", name, near(name, environments)}
		}
	}
	for _, n := range []struct {
		kind, name string
		known      map[string]bool
	}{
		{"cluster type", q.Type, types},
		{"ring", q.Ring, rings},
		{"workspace", q.Workspace, workspaces},
		{"workload", q.Workload, workloads},
	} {
		if n.name != "" && !n.known[n.name] {
			return &UnknownNameError{n.kind, n.name, near(n.name, n.known)}
		}
	}
	return nil
}

// publishedNames adds the names of environments, types and rings that were published. A view of some workspaces or labels sees
// only those that clusters have.
func (m *moment) publishedNames(environments, types, rings map[string]bool) {
	s := m.view.scope
	if len(s.workspaces) > 0 || len(s.selector) > 0 {
		return
	}
	for _, r := range m.published.records {
		if len(s.environments) == 0 || slices.Contains(s.environments, r.Environment) {
			environments[r.Environment] = true
			for t := range r.ClusterTypes {
				types[t] = true
			}
			for _, ring := range r.RingOrder {
				rings[ring] = true
			}
		}
	}
}

// near returns the known names that are near a name.
func near(name string, known map[string]bool) []string {
	delete(known, "")
	all := slices.Sorted(maps.Keys(known))
	if len(all) <= maxNear {
		if best := show.Nearest(name, all); best != "" {
			i := slices.Index(all, best)
			all = slices.Insert(slices.Delete(all, i, i+1), 0, best)
		}
		return all
	}
	var found []string
	if best := show.Nearest(name, all[:min(len(all), maxCompared)]); best != "" {
		found = append(found, best)
	}
	for _, k := range all {
		if len(found) == maxNear {
			break
		}
		if len(name) > 2 && strings.Contains(strings.ToLower(k), strings.ToLower(name)) && !slices.Contains(found, k) {
			found = append(found, k)
		}
	}
	return found
}
