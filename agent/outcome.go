package agent

import (
	"context"
	"errors"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Verdict is the outcome of a step, or of a pass as a whole.
type Verdict string

// The verdicts, from good to bad.
const (
	// Done: the step did its work; the pass goes on with the next.
	Done Verdict = "done"
	// Idle: there was nothing new to fetch. The running release is still observed.
	Idle Verdict = "idle"
	// Deferred: a newer release was accepted, and may be fetched later; see Options.Window.
	Deferred Verdict = "deferred"
	// Unreachable: bundles could not be read. It is a normal state; the agent tries again.
	Unreachable Verdict = "unreachable"
	// Refused: the newest offered release is not trusted, or not meant for this agent.
	Refused Verdict = "refused"
	// Broken: this machine has failed: a full disk, a read-only folder, a damaged file.
	Broken Verdict = "broken"
	// Interrupted: the agent was stopped. The next start goes on from there.
	Interrupted Verdict = "interrupted"
)

// outcome is what a step returns. Err is nil for Done and Idle.
type outcome struct {
	Verdict Verdict
	Err     error
	// moved is true for a pass since which another release runs, or that has given engines something new of
	// the same one.
	moved bool
	// answered is true where the registry has said what its tag names, and only lacks an earlier release that is to
	// run, or has other bytes for it.
	answered bool
	// older is true where nothing is new, since the offer is older than what another registry has brought.
	older bool
	// frozen is why the pass has changed nothing in the cluster; nil where it might.
	frozen *freeze.Freeze
}

var (
	done = outcome{Verdict: Done}
	idle = outcome{Verdict: Idle}
)

// mute reports whether the registries have not answered, or this machine is at fault, so that asking again at once is no use.
func (o outcome) mute() bool { return o.Verdict == Unreachable && !o.answered || o.Verdict == Broken }

// outcomeOf tells the kinds of error apart, once for all steps.
func outcomeOf(ctx context.Context, err error) outcome {
	var refusal *bundle.Refusal
	var here *state.LocalError
	switch {
	case err == nil:
		return done
	case ctx.Err() != nil:
		return outcome{Verdict: Interrupted, Err: context.Cause(ctx)}
	case errors.As(err, &here):
		return outcome{Verdict: Broken, Err: err}
	case errors.As(err, &refusal):
		return outcome{Verdict: Refused, Err: err}
	case errors.As(err, new(*window.ClosedError)):
		return outcome{Verdict: Deferred, Err: err}
	}
	return outcome{Verdict: Unreachable, Err: err}
}

// reason is the code under which status and reports show an outcome; empty for good ones.
func (o outcome) reason() string {
	var refusal *bundle.Refusal
	switch o.Verdict {
	case Refused:
		if errors.As(o.Err, &refusal) {
			return string(refusal.Reason)
		}
	case Deferred:
		return ReasonOutsideWindow
	case Unreachable:
		if errors.Is(o.Err, errdef.ErrNotFound) {
			return ReasonNotFound
		}
		if errors.As(o.Err, new(*oci.WithheldError)) {
			return ReasonCredentialsWithheld
		}
		return ReasonUnreachable
	case Broken:
		return ReasonLocalFailure
	}
	return ""
}
