package assignments

import "github.com/wherry-dev/wherry/bundle"

// Operation is what an engine is called for.
type Operation int

// The operations. Those after Observe change the cluster.
const (
	Nothing Operation = iota
	Observe           // observe the assignment's state
	Change            // move it toward its desired state, or remove it
	Correct           // apply it again after drift
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

// Unfinished returns the operation that an unfinished assignment needs after its engine got its desired content.
func (r Record) Unfinished(adapter string) Operation {
	switch {
	case !r.Unsettled():
		return Nothing
	case r.Removing, r.Waiting() && !r.OnlySeen(), r.Item.State == bundle.Pulling && r.Stale(adapter):
		return Change // the content is still pulled to the agent's store, so no engine has it
	case r.Stale(adapter): // its engine is missing
		return Nothing
	}
	return Observe
}
