package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// socketFile is the control socket's name in the state folder. Whoever may open it commands the agent.
const socketFile = "agent.sock"

// maxCommandBytes bounds a command: the acknowledgements of a full queue.
const maxCommandBytes = 8 << 20

// command is what the socket takes, as JSON; see Client.
type command struct {
	// Wait is how long a pass observes what is progressing.
	Wait time.Duration `json:"wait,omitempty"`
	// Path is the file to import, absolute.
	Path string `json:"path,omitempty"`
	// Acks are the envelopes of acknowledgements.
	Acks []json.RawMessage `json:"acks,omitempty"`
	// Trust are the envelopes of trust documents.
	Trust [][]byte `json:"trust,omitempty"`
	// Reason and For are those of a pause.
	Reason string        `json:"reason,omitempty"`
	For    time.Duration `json:"for,omitempty"`
	// Retry has resume forget what was given up.
	Retry bool `json:"retry,omitempty"`
	// Enroll is a request to make of a hub, or to write; Answer is one that somebody has carried here, and HubKey
	// the key by which it is verified, in PEM; empty for the pinned one.
	Enroll EnrollOptions   `json:"enrol,omitzero"`
	Answer json.RawMessage `json:"answer,omitempty"`
	HubKey string          `json:"hubKey,omitempty"`
	// Wish is what is to run again.
	Wish Wish `json:"wish,omitzero"`
	// Dead is what to do with dead letters.
	Dead string `json:"dead,omitempty"`
	// Rebinding is what a rebind asks for.
	Rebinding Rebinding `json:"rebinding,omitzero"`
}

// answer is what the socket says where a command did not work.
type answer struct {
	Error string `json:"error"`
	// Kind names errors that callers branch on; see kinds.
	Kind string `json:"kind,omitempty"`
}

const (
	kindUntrusted = "untrusted"
	kindNoHubKey  = "no-hub-key"
)

// kinds are the names of errors that travel over the socket.
var kinds = map[string]error{
	kindUntrusted:  bundle.ErrUntrusted,
	kindNoHubKey:   outbox.ErrNoHubKey,
	"hub-refused":  ErrRefused,
	"other-hub":    ErrOtherHub,
	"no-hub":       ErrNoHubURL,
	"no-request":   ErrNoRequest,
	"no-rotation":  ErrNoRotation,
	"unfinished":   ErrUnfinished,
	"no-token":     bundle.ErrToken,
	"no-enrolment": bundle.ErrEnrollment,
	"must-not-run": ErrRunning,
	"not-accepted": ErrNotAccepted,
	"newest":       ErrNewest,
	"not-allowed":  ErrNotAllowed,
	"ambiguous":    ErrAmbiguous,
}

// sayError answers with an error and its kind.
func sayError(w http.ResponseWriter, err error) {
	a := answer{Error: err.Error()}
	if errors.As(err, new(*bundle.Refusal)) {
		a.Kind = kindUntrusted
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if errors.Is(err, kinds[kind]) {
			a.Kind = kind
		}
	}
	say(w, http.StatusUnprocessableEntity, a)
}

// control is the listening socket of a running agent.
type control struct {
	agent    *Agent
	listener net.Listener
}

// listen opens the socket. The state file's lock, which this process holds, says that a socket from
// before has no owner any more.
func (a *Agent) listen() (*control, error) {
	path := filepath.Join(a.state.Dir(), socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	var l net.Listener
	err := throughShortPath(path, func(short string) (err error) {
		l, err = net.Listen("unix", short)
		return err
	})
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &control{a, l}, nil
}

// maxSocketPath is what the kernels' address structure holds for sure.
const maxSocketPath = 100

// throughShortPath calls f with a name for path that fits into a socket's address.
func throughShortPath(path string, f func(string) error) error {
	if len(path) <= maxSocketPath {
		return f(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// serve answers until ctx ends, which ends a pass that runs as well.
func (c *control) serve(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", c.getStatus)
	// A pass belongs to the agent: it goes on when the one who asked for it has gone.
	mux.HandleFunc("POST /sync", c.pass(func(cmd command) Result { return c.agent.sync(ctx, cmd.Wait) }))
	mux.HandleFunc("POST /import", c.pass(func(cmd command) Result { return c.agent.importFile(ctx, cmd.Path, scope{wait: cmd.Wait}) }))
	mux.HandleFunc("GET /reports", c.getReports)
	mux.HandleFunc("POST /ack", c.postAck)
	mux.HandleFunc("GET /dead", c.getDead)
	mux.HandleFunc("POST /dead", c.postDead)
	mux.HandleFunc("GET /trust", c.getTrust)
	mux.HandleFunc("POST /trust", do(func(cmd command) (any, error) { return c.agent.InstallTrust(cmd.Trust...) }))
	c.serveEnroll(ctx, mux)
	mux.HandleFunc("POST /rollback", do(func(cmd command) (any, error) { return c.agent.RollBack(cmd.Wish) }))
	mux.HandleFunc("GET /releases", do(func(command) (any, error) { return c.agent.state.Releases(c.agent.opts.Now()) }))
	mux.HandleFunc("POST /pause", do(func(cmd command) (any, error) { return c.agent.Pause(cmd.Reason, cmd.For) }))
	mux.HandleFunc("POST /rebind", do(func(cmd command) (any, error) { return c.agent.Rebind(cmd.Rebinding) }))
	mux.HandleFunc("POST /resume", do(func(cmd command) (any, error) { return c.agent.Resume(cmd.Retry) }))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(c.agent.opts.Log.Handler(), slog.LevelDebug),
	}
	serveUntil(ctx, c.listener, server)
	_ = os.Remove(filepath.Join(c.agent.state.Dir(), socketFile))
}

func (c *control) getStatus(w http.ResponseWriter, _ *http.Request) {
	s, err := c.agent.Status()
	if err != nil {
		say(w, http.StatusInternalServerError, answer{Error: err.Error()})
		return
	}
	say(w, http.StatusOK, s)
}

func (c *control) pass(make func(command) Result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		cmd, ok := hear(w, r)
		if !ok {
			return
		}
		result := make(cmd)
		nudge(c.agent.wake)
		say(w, http.StatusOK, result)
	}
}

func (c *control) getReports(w http.ResponseWriter, _ *http.Request) {
	envelopes, err := c.agent.state.outbox.Reports()
	if err != nil {
		say(w, http.StatusInternalServerError, answer{Error: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := airgap.WriteReports(w, envelopes); err != nil {
		panic(http.ErrAbortHandler) // the other side must not take half a file for a whole one
	}
}

func (c *control) postAck(w http.ResponseWriter, r *http.Request) {
	cmd, ok := hear(w, r)
	if !ok {
		return
	}
	envelopes := make([][]byte, len(cmd.Acks))
	for i, e := range cmd.Acks {
		envelopes[i] = e
	}
	result, err := c.agent.Acknowledge(envelopes)
	if err != nil {
		a := answer{Error: err.Error()}
		switch {
		case outbox.IsUntrusted(err):
			a.Kind = kindUntrusted
		case errors.Is(err, outbox.ErrNoHubKey):
			a.Kind = kindNoHubKey
		}
		say(w, http.StatusUnprocessableEntity, a)
		return
	}
	say(w, http.StatusOK, result)
}

func (c *control) getTrust(w http.ResponseWriter, _ *http.Request) {
	t, err := c.agent.Trust()
	if err != nil {
		say(w, http.StatusInternalServerError, answer{Error: err.Error()})
		return
	}
	say(w, http.StatusOK, t)
}

// do answers with what f has done, or with its error.
func do(f func(command) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		cmd, ok := hear(w, r)
		if !ok {
			return
		}
		done, err := f(cmd)
		if err != nil {
			sayError(w, err)
			return
		}
		say(w, http.StatusOK, done)
	}
}

func hear(w http.ResponseWriter, r *http.Request) (cmd command, ok bool) {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommandBytes)).Decode(&cmd)
	if err != nil && !errors.Is(err, io.EOF) {
		say(w, http.StatusBadRequest, answer{Error: err.Error()})
		return cmd, false
	}
	return cmd, true
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the other side has gone
}
