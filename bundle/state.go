package bundle

// State is the state of an assignment or of a whole agent. The words are the same in every
// adapter, report, page and table.
type State string

// The states of an assignment. Those of an agent are the same; see AgentState.
const (
	Pending     State = "pending"
	Pulling     State = "pulling"
	Verifying   State = "verifying"
	Rejected    State = "rejected"
	Applying    State = "applying"
	Progressing State = "progressing"
	Compliant   State = "compliant"
	Drifted     State = "drifted"
	Failed      State = "failed"
	Suspended   State = "suspended"
	Removed     State = "removed"
)

// agentOrder lists the states by precedence: an agent has the first one that any of its items has.
var agentOrder = [...]State{Failed, Drifted, Pulling, Verifying, Applying, Progressing, Pending, Suspended}

// AgentState combines the states of an agent's items into one. A refused newest release takes precedence,
// because the items then belong to an older release.
func AgentState(refused bool, items []State) State {
	if refused {
		return Rejected
	}
	present := map[State]bool{}
	for _, s := range items {
		present[s] = true
	}
	for _, s := range agentOrder {
		if present[s] {
			return s
		}
	}
	return Compliant
}
