// Package reconcilers holds what every way of bringing a cluster or a host to its assignments has in
// common. There is one package per engine below it, and one conformance suite that all of them pass.
//
// A reconciler is handed one verified assignment at a time. It is idempotent and re-entrant: the agent
// may be killed at any point and calls it again with the same, or with newer, content.
package reconcilers

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// Reconciler is one engine.
//
// The three calls end when ctx does, and return then what they know, as Progressing or Failed. An
// error is part of the result: the state says whether trying again can help (Pending, Progressing)
// or not (Failed). Calls come from several goroutines, never two at a time for one assignment.
//
// A Reconciler may also be a Releaser, a Claimer, a Settler and a Runner. One that is an io.Closer runs something
// between calls: Close ends it, when no call is to come any more, so that a Reconciler of a later process
// can carry on.
type Reconciler interface {
	// Apply moves the engine toward a. It returns without waiting for slow engines to finish.
	Apply(ctx context.Context, a Assignment) Result
	// Observe returns how a stands, without changing anything. It works without an Apply in this process.
	Observe(ctx context.Context, a Assignment) Result
	// Remove takes away what Apply of any earlier content of a has brought, and nothing else. State
	// Removed means that it is gone. Only a.Name is sure to be set.
	Remove(ctx context.Context, a Assignment) Result
}

// Releaser is a Reconciler that marks the objects that it applies as the assignment's. The others have nothing to
// do for an assignment that goes while its objects are to stay.
type Releaser interface {
	// Release takes the marks away, and leaves everything else as it is for somebody else to take over.
	// It deletes the ledger's entry, and ends work that is under way. State Removed means that
	// nothing is ours any more. Only a.Name is sure to be set.
	Release(ctx context.Context, a Assignment) Result
}

// Claimer is a Reconciler that marks, when it applies an assignment, the result as ours. Its earlier versions did not.
type Claimer interface {
	// Claim gets, before a pass begins anything, the names of assignments that an agent of such a version has given
	// to this engine. It makes its notes, changes nothing else, and returns those of which it could not make one:
	// they come again with each pass.
	Claim(ctx context.Context, assignments []string) (left []string)
}

// Foreteller is a Reconciler that knows beforehand what Apply may bring. The agent has that kept off this
// machine, so that it is found again if this machine is lost between Apply and the next time it can tell.
type Foreteller interface {
	// Foretell returns the entry, as JSON, that the ledger has while Apply is at work on a. It changes neither
	// the cluster nor the ledger. An error means that Apply could not begin either.
	Foretell(ctx context.Context, a Assignment) ([]byte, error)
}

// Settler is a Reconciler whose engine may call an assignment compliant too early.
type Settler interface {
	// SettleTime is how long Compliant has to last until it counts, where nobody has said otherwise.
	SettleTime() time.Duration
}

// Runner is a Reconciler whose work is done by programs that end with this process.
type Runner interface {
	// Working reports whether any of them is at work, or about to be. Each ends by itself, or at its deadline.
	Working() bool
}

// Assignment is one assignment with its files.
type Assignment struct {
	bundle.Assignment
	// Dir holds the assignment's verified files. It is the agent's; reconcilers do not write there.
	Dir string
}

// Result is how an assignment stands.
type Result struct {
	State bundle.State
	// Reason is a code in CamelCase, such as Conflict; empty where the state says it all.
	Reason string
	// Fault is who can mend a failure. It is set if State is Failed, and empty otherwise.
	Fault Fault
	// Message is for people and at most bundle.MaxMessageBytes long.
	Message string
	// Revision is what the engine says it has applied; for engines that apply the files themselves, the
	// assignment's content digest.
	Revision string
	// Floating is true where Revision follows a branch or a tag.
	Floating bool
	// Changes lists what this call changed, in the order of the changes.
	Changes []Change
}

// Action is the outcome for one object.
type Action string

// The actions of an engine.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
	Kept       Action = "kept"
)

// Change is one object or file and its Action.
type Change struct {
	Object string // such as ConfigMap/shop/platform-config, or a path
	Action Action
}

// Failure is the Failed result of what another release could mend, with a message cut to the permitted length.
func Failure(reason string, err error) Result {
	return (&Error{Reason: reason, Fault: FaultRelease, Err: err}).Result()
}

// Waiting is a Pending result: the cause lies outside the assignment, and trying again can help.
func Waiting(reason string, err error) Result {
	return (&Error{Reason: reason, Err: err}).Result()
}

// ReasonInterrupted is the reason of calls that ended because their context did.
const ReasonInterrupted = "Interrupted"

// Interrupted is the result of a call that its context ended. The next call carries on.
func Interrupted(err error) Result {
	return Result{State: bundle.Progressing, Reason: ReasonInterrupted, Message: Clip(err.Error())}
}

// Clip is bundle.Clip, which makes any text a message.
func Clip(s string) string { return bundle.Clip(s) }

// Ledger keeps, for each assignment, what a reconciler has put on the cluster, so that it can be found
// again after a crash. The zero value of an entry is no entry. Save is durable when it returns nil, and
// an empty entry deletes.
type Ledger interface {
	Load(assignment string) ([]byte, error)
	Save(assignment string, entry []byte) error
}
