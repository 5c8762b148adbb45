package timeline

import (
	"fmt"

	"github.com/wherry-dev/wherry/hub/store"
)

// MaxProcesses is how many processes of a cluster's agent a store remembers, newest first. A copy that was silent for as
// many restarts is found by its conflicts alone.
const MaxProcesses = 64

// TakeTurns returns the evidence of a report that two agents share an identity: another process of the agent has made
// reports from first to last, before and after it. Processes of one agent follow one another, so that the numbers of their
// reports do not interleave, whatever order the reports arrive in.
func TakeTurns(seq, first, last int64) string {
	return fmt.Sprintf("report %d came from another process than those around it, from %d to %d", seq, first, last)
}

// SameNumber returns the evidence of a conflict that two agents share an identity.
func SameNumber(at store.Order) string {
	return fmt.Sprintf("there are two reports with incarnation %d and seq %d", at.Incarnation, at.Seq)
}
