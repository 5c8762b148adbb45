package agentcmd

import (
	"errors"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// silentHint is the hint for an agent that does not answer.
const silentHint = "its process is stopped, or hangs: look at its log, and restart it; it goes on where it was"

// Kinds has the exit codes and hints of the errors that the agent's commands return as they are.
var Kinds = cli.Kinds{
	cli.Is(control.ErrForbidden, cli.Failed, "use sudo"),
	cli.Is(control.ErrSilent, cli.Failed, silentHint),
	cli.Is(control.ErrGone, cli.Failed, "start it again; status shows whether the command was carried out"),
	func(err error) *cli.Error {
		var e *config.Error
		if !errors.As(err, &e) {
			return nil
		}
		code := map[config.Kind]int{config.Invalid: cli.Usage, config.Refused: cli.Denied, config.Unusable: cli.Failed}[e.Kind]
		return &cli.Error{Code: code, Err: e.Err, Hint: e.Hint}
	},
	cli.Is(agent.ErrNotAccepted, cli.No, "rollback --list shows what was"),
	cli.Is(agent.ErrAmbiguous, cli.Usage, "rollback --list shows them"),
	cli.Is(agent.ErrNewest, cli.No, "resume ends a rollback, and pause keeps what runs"),
	cli.Is(agent.ErrNotAllowed, cli.Denied, "rollback --list shows what may; resume --retry has releases that were given up tried again"),
	cli.Is(bundle.ErrToken, cli.Usage, `give the whole line that "wherry hub tokens create" printed`),
	cli.Is(enroll.ErrNoHubURL, cli.Usage, "give --hub URL, or without a link to it --request FILE"),
	cli.Is(outbox.ErrNoHubKey, cli.Usage, `give --hub-key with what "wherry hub keys show" prints`),
	cli.Is(enroll.ErrOtherHub, cli.Denied, "nothing was changed; --replace-hub leaves the hub that it is enrolled at, and a key that is configured is changed there"),
	cli.Is(enroll.ErrNoRotation, cli.No, "enroll --rotate --request FILE begins one; list its key, then end it with --rotate --listed"),
	cli.Is(enroll.ErrUnfinished, cli.No, "end it first, with --rotate, or with --accept and the answer to its file"),
	cli.Is(enroll.ErrRefused, cli.Denied, `no identity was changed here; "wherry hub tokens create" makes another token, and "wherry hub clusters list" shows who is registered`),
}
