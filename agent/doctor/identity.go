package doctor

import (
	"context"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

// checkIdentity reports a hub's objection to this agent's identity, and requests that no hub has answered.
func checkIdentity(ctx context.Context, e *examination) diagnosis.Finding {
	s, err := agent.NewClient(e.StateDir).Status(ctx)
	if err != nil {
		state, err := agent.ReadState(e.StateDir)
		if err != nil {
			return diagnosis.Skipf("no agent has run here, or its state cannot be read")
		}
		s, err = state.Status(e.Now())
		_ = state.Close() // it was only read
		if err != nil {
			return diagnosis.Skipf("the state cannot be read")
		}
	}
	id := s.Identity
	switch {
	case id.Reason != "":
		return diagnosis.Failf(identityRemedy(id.Reason), "%s: %s", id.Reason, id.Message)
	case id.Waiting != "" && (id.HubKeyID == "" || id.Waiting != enroll.AsIs): // an enrolled agent needs no second answer
		return diagnosis.Warnf(waitingRemedy(id.Waiting), "a request for %s is not answered yet", id.Waiting)
	case id.HubKeyID == "":
		return diagnosis.Skipf("no hub has enrolled this agent; key %s", id.KeyID)
	default:
		return diagnosis.Okf("enrolled by the hub with key %s; key %s", id.HubKeyID, id.KeyID)
	}
}

func waitingRemedy(kind enroll.Kind) string {
	const byFile = "; or carry the file of enroll --request and take the answer with enroll --accept"
	switch kind {
	case enroll.Rotate:
		return "nothing, where the hub is out of reach: a running agent asks again by itself, as does enroll --rotate" + byFile
	case enroll.Anew:
		return "run enroll --new-identity --yes again, such as with another token or --cluster-name" + byFile
	}
	return "run enroll again, such as with another token" + byFile
}

func identityRemedy(reason string) string {
	switch reason {
	case agent.ReasonSharedIdentity:
		return "on the copy: end the agent and run enroll --new-identity --yes with a token; on the original: enroll --rotate"
	case agent.ReasonKeyReplaced:
		return "if this is a copy of another machine, end the agent and run enroll --new-identity --yes with a token; if it was restored from a backup, have it registered again with wherry hub clusters add --replace"
	case agent.ReasonRetired:
		return "take the machine out of service, or have it registered again with wherry hub clusters add"
	}
	return "ask whoever runs the hub"
}
