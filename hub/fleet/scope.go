package fleet

import (
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// View answers questions about the part of a fleet that one may see. It implements Answers.
//
// All that is outside its scope is as if it did not exist: it is not shown, counted, suggested, or told from what is not
// there. With workspaces in the scope, a View shows the deployments of those workspaces and the clusters that have one; a
// cluster's state is then that of these deployments, unless its release was rejected, and its reason and
// message are of one of them, and since is left out.
type View struct {
	fleet *Fleet
	scope scope
}

var _ Answers = (*View)(nil)

// View returns the view of a scope. The zero scope is the whole fleet. The error wraps store.ErrInvalid if the selector is
// not acceptable.
func (f *Fleet) View(s store.AccessScope) (*View, error) {
	selector, err := parseSelector(s.Selector)
	if err != nil {
		return nil, fmt.Errorf("scope: %w", err)
	}
	return &View{f, scope{slices.Clone(s.Environments), slices.Clone(s.Workspaces), selector}}, nil
}

// scope restricts what is seen. Its zero value is the whole fleet.
type scope struct {
	environments, workspaces []string
	selector                 selector
}

func (s scope) whole() bool { return len(s.environments)+len(s.workspaces)+len(s.selector) == 0 }

// sight is a scope on a snapshot.
type sight struct {
	*snapshot
	environments *oneOf // nil for all
	kinds        []verdict
	workspaces   []string
	selector     *labelMatch
	states       map[uint32]uint32 // what clusters are in, by the states of their deployments
}

func (s scope) on(snap *snapshot) *sight {
	g := &sight{snapshot: snap, selector: s.selector.on(snap), workspaces: s.workspaces}
	if len(s.environments) > 0 {
		g.environments = snap.oneOf(s.environments...)
	}
	if len(s.workspaces) > 0 {
		g.kinds, g.states = make([]verdict, len(snap.kinds)), map[uint32]uint32{}
	}
	return g
}

// whole reports whether clusters are seen with all their deployments.
func (g *sight) whole() bool { return g.kinds == nil }

// deployment reports whether a deployment is seen, on a cluster that is.
func (g *sight) deployment(d *deployment) bool {
	if g.kinds == nil {
		return true
	}
	v := g.kinds[d.kind]
	if v == unknown {
		v = verdictOf(slices.Contains(g.workspaces, g.texts[g.snapshot.kinds[d.kind].workspace]))
		g.kinds[d.kind] = v
	}
	return v == yes
}

// cluster reports whether a cluster is seen, and the state in which it was reported.
func (g *sight) cluster(c *cluster) (state uint32, seen bool) {
	if g.environments != nil && !g.environments.has(c.environment) || !g.selector.matches(c) {
		return 0, false
	}
	if g.kinds == nil {
		return c.state, true
	}
	var states uint32
	for i := range c.deployments {
		if d := &c.deployments[i]; g.deployment(d) {
			seen = true
			if at := d.state - firstState; at < uint32(len(knownStates)) { //nolint:gosec // there are few
				states |= 1 << at
			}
		}
	}
	if !seen || c.state == rejectedState {
		return c.state, seen
	}
	state, known := g.states[states]
	if !known {
		var all []bundle.State
		for i, s := range knownStates {
			if states&(1<<i) != 0 {
				all = append(all, s)
			}
		}
		state = stateHandle(bundle.AgentState(false, all))
		g.states[states] = state
	}
	return state, true
}
