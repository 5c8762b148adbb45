package simulation

import (
	"context"
	"errors"
	"sync"
	"unique"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// reasonSimulated is the reason of a failure that the simulation was asked for.
const reasonSimulated = "SimulatedFailure"

var errSimulated = errors.New("this cluster fails on purpose")

// engine brings a cluster in memory to its assignments. It knows of each assignment the content that it was given last.
type engine struct {
	failing bool // no assignment gets other content than its first

	mu   sync.Mutex
	have map[unique.Handle[string]]unique.Handle[digest.Digest] // shared by all clusters
}

var _ reconcilers.Reconciler = (*engine)(nil)

// Apply implements reconcilers.Reconciler.
func (e *engine) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	if err := ctx.Err(); err != nil {
		return reconcilers.Interrupted(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have == nil {
		e.have = map[unique.Handle[string]]unique.Handle[digest.Digest]{}
	}
	name, desired := unique.Make(a.Name), unique.Make(a.Desired())
	action := reconcilers.Created
	if before, ok := e.have[name]; ok {
		if action = reconcilers.Configured; before == desired {
			action = reconcilers.Unchanged
		} else if e.failing {
			return reconcilers.Failure(reasonSimulated, errSimulated)
		}
	}
	e.have[name] = desired
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Desired().String(), Changes: []reconcilers.Change{{Object: a.Name, Action: action}}}
}

// Observe implements reconcilers.Reconciler.
func (e *engine) Observe(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch have, ok := e.have[unique.Make(a.Name)]; {
	case !ok:
		return reconcilers.Result{State: bundle.Drifted, Reason: "Missing", Message: a.Name + " was not applied"}
	case have.Value() != a.Desired():
		return reconcilers.Result{State: bundle.Drifted, Reason: "Differs", Message: a.Name + " has other content"}
	}
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Desired().String()}
}

// Remove implements reconcilers.Reconciler.
func (e *engine) Remove(_ context.Context, a reconcilers.Assignment) reconcilers.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.have, unique.Make(a.Name))
	return reconcilers.Result{State: bundle.Removed}
}
