package agent

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// command is what the socket takes, as JSON; see Client.
type command struct {
	// Wait is the time for which a pass observes progressing assignments.
	Wait time.Duration `json:"wait,omitempty"`
	// Own are values that the site would set at Path.
	Own sitevalues.Own `json:"own,omitzero"`
	// Path is the place of Own.
	Path string `json:"path,omitempty"`
	// Import is the site package to import.
	Import ImportRequest `json:"import,omitzero"`
	// Acks are the envelopes of acknowledgements.
	Acks []json.RawMessage `json:"acks,omitempty"`
	// Trust are the envelopes of trust documents.
	Trust [][]byte `json:"trust,omitempty"`
	// Reason and For are the reason and the duration of a pause.
	Reason string        `json:"reason,omitempty"`
	For    time.Duration `json:"for,omitempty"`
	// Retry makes resume empty the quarantine.
	Retry bool `json:"retry,omitempty"`
	// Enroll is a request to send to a hub, or to write to a file; Answer is an answer that came by media, and HubKey
	// the key that verifies it, in PEM; empty means the pinned one.
	Enroll enroll.Options  `json:"enrol,omitzero"`
	Answer json.RawMessage `json:"answer,omitempty"`
	HubKey string          `json:"hubKey,omitempty"`
	// Wish is the rollback that a person asks for.
	Wish Wish `json:"wish,omitzero"`
	// UID is the cluster whose reports a relay is to forget.
	UID string `json:"uid,omitempty"`
	// Dead is the operation on dead letters.
	Dead string `json:"dead,omitempty"`
	// Rebinding is the argument of rebind.
	Rebinding Rebinding `json:"rebinding,omitzero"`
}

// kindUntrusted is the name of bundle.ErrUntrusted over the socket.
const kindUntrusted = "untrusted"

// kinds are the names of errors that travel over the socket.
var kinds = map[string]error{
	kindUntrusted:  bundle.ErrUntrusted,
	"no-hub-key":   outbox.ErrNoHubKey,
	"foreign-ack":  queue.ErrForeignAck,
	"hub-refused":  enroll.ErrRefused,
	"other-hub":    enroll.ErrOtherHub,
	"no-hub":       enroll.ErrNoHubURL,
	"no-request":   enroll.ErrNoRequest,
	"no-rotation":  enroll.ErrNoRotation,
	"unfinished":   enroll.ErrUnfinished,
	"no-token":     bundle.ErrToken,
	"no-enrolment": bundle.ErrEnrollment,
	"must-not-run": ErrRunning,
	"not-accepted": ErrNotAccepted,
	"newest":       ErrNewest,
	"not-allowed":  ErrNotAllowed,
	"ambiguous":    ErrAmbiguous,
	"no-release":   ErrNoRelease,
	"unreadable":   ErrUnreadable,
}

// kindOf is the name of an error in kinds.
func kindOf(err error) (kind string) {
	if errors.As(err, new(*bundle.Refusal)) || outbox.IsUntrusted(err) {
		kind = kindUntrusted
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		if errors.Is(err, kinds[k]) {
			kind = k
		}
	}
	return kind
}

// ErrRunning means that something cannot be done while the agent runs.
var ErrRunning = errors.New("the agent is running")

var errRunningAnew = fmt.Errorf("%w: stop it before you change its identity", ErrRunning)

// What the command "POST dead" does with dead letters.
const (
	deadRetry = "retry"
	deadDrop  = "drop"
)

// howMany is how many dead letters, or reports, there were.
type howMany struct {
	Count int `json:"count"`
}

// listen opens the control socket.
func (a *Agent) listen() (*control.Server, error) {
	s, err := control.Listen(a.state.Dir())
	if err == nil {
		s.Kind, s.Log = kindOf, a.opts.Log
	}
	return s, err
}

// commands are what the control socket takes. Passes that have begun, and requests to the hub, end with ctx and not with the
// call: they belong to the agent, and go on when the one who asked for them has gone. After a pass, the loop of Run plans anew.
func (a *Agent) commands(ctx context.Context) control.Commands {
	return control.Commands{
		"GET alive":  control.With(func(command) (any, error) { return control.Alive{Doing: a.pulse.Step(), Stuck: a.pulse.Stuck()}, nil }),
		"GET status": control.With(func(command) (any, error) { return a.Status() }),
		"POST sync": control.WithContext(func(asked context.Context, cmd command) (any, error) {
			defer nudge(a.wake)
			return a.syncFor(ctx, asked, cmd.Wait), nil
		}),

		"GET import": control.With(func(command) (any, error) { return a.importProgress(), nil }),
		"POST import": control.WithContext(func(asked context.Context, cmd command) (any, error) {
			defer nudge(a.wake)
			return a.importFor(ctx, asked, cmd.Import)
		}),
		"POST import/content": control.WithContent(func(asked context.Context, cmd command, content io.Reader) (any, error) {
			defer nudge(a.wake)
			cmd.Import.Paths, cmd.Import.Stdin = []string{"-"}, content
			return a.importFor(ctx, asked, cmd.Import)
		}),

		"GET reports": control.With(func(command) (any, error) { return a.reportsFile() }),
		"POST ack":    control.With(func(cmd command) (any, error) { return a.Acknowledge(envelopes(cmd.Acks)) }),
		"GET relay":   control.With(func(command) (any, error) { return a.state.relay.Clusters() }),
		"POST forget": control.With(func(cmd command) (any, error) { return a.state.forget(cmd.UID) }),
		"GET dead":    control.With(func(command) (any, error) { return a.state.outbox.DeadLetters() }),
		"POST dead":   control.With(func(cmd command) (any, error) { return a.changeDeadLetters(cmd.Dead) }),

		"GET values":        control.With(func(command) (any, error) { return a.state.SiteValues() }),
		"POST values/check": control.With(func(cmd command) (any, error) { return a.state.CheckSiteValues(cmd.Own, cmd.Path) }),

		"GET trust":  control.With(func(command) (any, error) { return a.Trust() }),
		"POST trust": control.With(func(cmd command) (any, error) { return a.InstallTrust(cmd.Trust...) }),

		"POST enrol":         sameCluster(func(cmd command) (any, error) { return a.Enroller().Enroll(ctx, cmd.Enroll) }),
		"POST enrol/request": sameCluster(func(cmd command) (any, error) { return a.enrollRequest(cmd.Enroll.Kind) }),
		"POST enrol/accept":  sameCluster(func(cmd command) (any, error) { return a.acceptBy(cmd.Answer, cmd.HubKey) }),
		"POST enrol/end":     sameCluster(func(command) (any, error) { return a.Enroller().EndRotation() }),

		"GET releases":  control.With(func(command) (any, error) { return a.state.Releases(a.opts.Now()) }),
		"POST rollback": control.With(func(cmd command) (any, error) { return a.RollBack(cmd.Wish) }),
		"POST pause":    control.With(func(cmd command) (any, error) { return a.Pause(cmd.Reason, cmd.For) }),
		"POST resume":   control.With(func(cmd command) (any, error) { return a.Resume(cmd.Retry) }),
		"POST rebind":   control.With(func(cmd command) (any, error) { return a.Rebind(cmd.Rebinding) }),
	}
}

// sameCluster is a command about the agent's identity. One that runs cannot become another cluster.
func sameCluster(do func(command) (any, error)) control.Handler {
	return control.With(func(cmd command) (any, error) {
		if cmd.Enroll.Kind == enroll.Anew {
			return nil, errRunningAnew
		}
		return do(cmd)
	})
}

// reportsFile is a file of all reports that wait.
func (a *Agent) reportsFile() (control.Stream, error) {
	return control.Stream{ContentType: "application/x-tar", Write: a.state.WriteReports}, nil
}

func (s *State) forget(uid string) (n howMany, err error) {
	n.Count, err = s.relay.Drop(uid)
	return n, err
}

func envelopes(raw []json.RawMessage) [][]byte {
	all := make([][]byte, len(raw))
	for i, e := range raw {
		all[i] = e
	}
	return all
}

func (a *Agent) changeDeadLetters(how string) (n howMany, err error) {
	switch how {
	case deadRetry:
		n.Count, err = a.state.outbox.RetryDeadLetters()
	case deadDrop:
		n.Count, err = a.state.outbox.DropDeadLetters()
	default:
		err = errors.New("dead letters can be retried or dropped")
	}
	return n, err
}

type enrollRequest struct {
	Request []byte `json:"request"`
}

func (a *Agent) enrollRequest(kind enroll.Kind) (enrollRequest, error) {
	request, err := a.Enroller().Request(kind)
	return enrollRequest{request}, err
}

// acceptBy is enroll.Enroller.Accept in an agent that runs, which stays the cluster that it is.
func (a *Agent) acceptBy(answer []byte, hubKey string) (enroll.Enrolled, error) {
	switch waiting, err := a.state.who.Waiting(); {
	case err != nil:
		return enroll.Enrolled{}, err
	case waiting == enroll.Anew:
		return enroll.Enrolled{}, errRunningAnew
	}
	var key crypto.PublicKey
	if hubKey != "" {
		keys, err := bundle.ParsePublicKeys([]byte(hubKey))
		if err != nil || len(keys) != 1 {
			return enroll.Enrolled{}, fmt.Errorf("%w: the hub's key cannot be read", bundle.ErrEnrollment)
		}
		key = keys[0]
	}
	return a.Enroller().Accept(answer, key)
}
