package assignments

import "github.com/wherry-dev/wherry/bundle"

// Operation is what an engine is called for.
type Operation int

// The operations. Those after Observe change the cluster.
const (
	Nothing Operation = iota
	Observe           // how the assignment stands
	Change            // move it toward what it should be, or take it away
	Correct           // give again what has drifted
)

// Changes reports whether an engine is called to change something.
func (o Operation) Changes() bool { return o > Observe }

// Due returns what an assignment needs before its engine was asked anything. Adapter is the engine that is to have it,
// and configured whether the agent has that one.
func (r Record) Due(adapter string, configured bool) Operation {
	failed, drifted := r.Item.State == bundle.Failed, r.Item.State == bundle.Drifted
	switch {
	case r.Removing:
		return Change
	case !configured:
		return Nothing
	case r.Stale(adapter):
		return Change
	case r.OnlySeen() && (failed || r.Waiting()):
		return Observe
	case drifted && r.Corrected():
		return Correct
	case failed, r.Waiting():
		return Change
	}
	return Nothing
}

// Unfinished returns what an assignment needs that is not through yet, once its engine was given what it is to have.
func (r Record) Unfinished(adapter string) Operation {
	switch {
	case !r.Unsettled():
		return Nothing
	case r.Removing, r.Waiting() && !r.OnlySeen():
		return Change
	case r.Stale(adapter): // its engine is missing
		return Nothing
	}
	return Observe
}
