package assignments

import (
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Ends counts how often in a row the agent has died while an engine was called for one content.
type Ends struct {
	Desired digest.Digest `json:"desired,omitempty"`
	// Boot identifies the start of the machine: one that loses its power is no fault of an assignment.
	Boot  string `json:"boot,omitempty"`
	Count int    `json:"count,omitempty"`
	// At is the time of the last, and Until that before which the assignment is not tried again; zero for the first.
	At    time.Time `json:"at,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// maxEnds is the number of ends after which an assignment has to wait before it is tried again.
const maxEnds = 2

// Ended returns the record of an assignment for which an engine was called when the agent died. Rest returns the time to
// wait after the n-th end that makes it wait, from zero.
func (r Record) Ended(boot string, rest func(n int) time.Duration, now time.Time) Record {
	if r.Ends.Desired != r.Desired() || r.Ends.Boot != boot {
		r.Ends = Ends{Desired: r.Desired(), Boot: boot}
	}
	r.Ends.Count++
	r.Ends.At = state.Stamp(now)
	if r.Ends.Count < maxEnds {
		return r.to(bundle.Pending, "", "", now)
	}
	r.Ends.Until = state.Stamp(now.Add(rest(r.Ends.Count - maxEnds)))
	if r.Before != nil {
		r.Item.State, r.Item.Since, r.Before = r.Before.State, r.Before.Since, nil
	}
	r = r.to(bundle.Failed, ReasonAgentDied, fmt.Sprintf("the agent has died %d times in a row while it was applied; it is tried again after %s, or at new content", r.Ends.Count, r.Ends.Until.Format(time.RFC3339)), now)
	r.Fault = reconcilers.FaultRelease
	return r
}

// Suspicion is how often in a row the agent has died at the content that the assignment is to have. One with more than another
// is tried later, and each one alone.
func (r Record) Suspicion() int {
	if r.Removing || r.Ends.Desired != r.Desired() {
		return 0
	}
	return r.Ends.Count
}

// Guilty reports whether the agent has died at the assignment so often that it is tried only when nothing else is to be done.
func (r Record) Guilty() bool { return r.Suspicion() >= maxEnds }

// Resting reports whether no engine is called for the assignment now. A clock may be set back.
func (r Record) Resting(now time.Time) bool {
	return r.Guilty() && now.Before(r.Ends.Until) && !now.Before(r.Ends.At)
}
