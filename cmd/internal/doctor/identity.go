package doctor

import (
	"context"

	"github.com/wherry-dev/wherry/agent"
)

// identity says what a hub has found wrong with who this agent is, and what it was asked for in vain.
func (e *examination) identity(ctx context.Context) {
	const check = "identity"
	s, err := agent.NewClient(e.StateDir).Status(ctx)
	if err != nil {
		state, err := agent.ReadState(e.StateDir)
		if err != nil {
			e.skipped(check, "no agent has run here, or its state cannot be read")
			return
		}
		s, err = state.Status(e.Now())
		_ = state.Close() // it was only read
		if err != nil {
			e.skipped(check, "the state cannot be read")
			return
		}
	}
	id := s.Identity
	switch {
	case id.Reason != "":
		e.failed(check, identityRemedy(id.Reason), "%s: %s", id.Reason, id.Message)
	case id.Waiting != "" && (id.HubKeyID == "" || id.Waiting != agent.EnrollAsIs): // who is enrolled needs no second answer
		e.warned(check, waitingRemedy(id.Waiting), "a request for %s is not answered yet", id.Waiting)
	case id.HubKeyID == "":
		e.skipped(check, "no hub has enrolled this agent; key %s", id.KeyID)
	default:
		e.ok(check, "enrolled by the hub with key %s; key %s", id.HubKeyID, id.KeyID)
	}
}

func waitingRemedy(kind agent.EnrollKind) string {
	const byFile = "; or carry the file of enroll --request and take the answer with enroll --accept"
	switch kind {
	case agent.EnrollRotate:
		return "nothing, where the hub is out of reach: a running agent asks again by itself, as does enroll --rotate" + byFile
	case agent.EnrollAnew:
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
