// Package control is the socket at which a running agent takes commands from people on its machine.
//
// The agent calls Listen and then Serve with its table of commands; a program calls Dial and then Client.Call. A
// command has a name, arguments and an answer, both as JSON over HTTP on a Unix socket in the state folder. Whoever may
// open the socket commands the agent: it is made with rights for its owner alone.
//
// The package knows no command. What the commands are, and their types, is the agent's.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// SocketFile is the socket's name in the state folder.
const SocketFile = "agent.sock"

const (
	// maxCommandBytes bounds a command: the acknowledgements of a full queue.
	maxCommandBytes = 8 << 20
	// maxLineBytes bounds the arguments of a command with content.
	maxLineBytes = 64 << 10
)

var errTooLarge = errors.New("the command is too large")

// Handler executes a command with the arguments in body, and returns its answer: a value to send as JSON, or a Stream. Once
// body was read to its end, ctx ends when the client has gone. A client sends the body when it is read: if the client has
// given up before, reading fails, and the command must not be executed. See With and WithContent.
type Handler func(ctx context.Context, body io.Reader) (answer any, err error)

// Stream is an answer that is no JSON. Once it has begun to write, an error breaks the connection off, so that the client
// does not take a part for the whole.
type Stream struct {
	ContentType string
	Write       func(io.Writer) error
}

// Commands are handlers by their command's method and name, such as "POST sync".
type Commands map[string]Handler

// With returns the handler of a command whose arguments are a C, as JSON. Without arguments it is the zero C.
func With[C any](do func(C) (any, error)) Handler {
	return WithContext(func(_ context.Context, c C) (any, error) { return do(c) })
}

// WithContext is With for a command that ends when the client has gone, which ends its context.
func WithContext[C any](do func(context.Context, C) (any, error)) Handler {
	return func(ctx context.Context, body io.Reader) (any, error) {
		args, err := io.ReadAll(io.LimitReader(body, maxCommandBytes+1))
		if err == nil && len(args) > maxCommandBytes {
			err = errTooLarge
		}
		if err != nil {
			return nil, err
		}
		c, err := parse[C](args)
		if err != nil {
			return nil, err
		}
		return do(ctx, c)
	}
}

// WithContent returns the handler of a command that Client.Upload gives: its arguments, and content of any length. Content
// ends with an error if the client has gone before its end.
func WithContent[C any](do func(ctx context.Context, c C, content io.Reader) (any, error)) Handler {
	return func(ctx context.Context, body io.Reader) (any, error) {
		content := bufio.NewReaderSize(body, maxLineBytes)
		line, err := content.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errTooLarge
		}
		if err != nil {
			return nil, err
		}
		c, err := parse[C](line)
		if err != nil {
			return nil, err
		}
		return do(ctx, c, content)
	}
}

func parse[C any](args []byte) (c C, err error) {
	if len(args) > 0 {
		err = json.Unmarshal(args, &c)
	}
	return c, err
}

// failure is the answer of a command that did not work.
type failure struct {
	Error string `json:"error"`
	// Kind names errors that callers branch on; see Server.Kind.
	Kind string `json:"kind,omitempty"`
}

// Server is the listening socket of a running agent.
type Server struct {
	// Kind returns a name for each error that callers branch on, for Client.Errors; empty for other errors.
	Kind func(error) string
	// Log gets a line about each client that misbehaves.
	Log *slog.Logger

	listener net.Listener
	path     string
}

// Listen opens the socket in a state folder. The state file's lock, which this process holds, says that a socket from
// before has no owner any more. The caller calls Serve or Close.
func Listen(stateDir string) (*Server, error) {
	path := filepath.Join(stateDir, SocketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	var l net.Listener
	err := throughShortPath(path, func(short string) error {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err == nil {
			listener.SetUnlinkOnClose(false) // short may name another agent's socket by then
			l = listener
		}
		return err
	})
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Server{listener: l, path: path}, nil
}

// Close closes and removes a socket that is not served.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	defer os.Remove(s.path)
	return s.listener.Close()
}

// Serve takes commands until ctx ends, and removes the socket then. A command that runs is waited for, for a moment.
func (s *Server) Serve(ctx context.Context, commands Commands) {
	mux := http.NewServeMux()
	for command, do := range commands {
		var method, name string
		_, _ = fmt.Sscan(command, &method, &name)
		mux.HandleFunc(method+" /"+name, func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, do) })
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if s.Log != nil {
		server.ErrorLog = slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)
	}
	ServeUntil(ctx, s.listener, server)
	_ = os.Remove(s.path)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request, do Handler) {
	_ = http.NewResponseController(w).EnableFullDuplex() // an early answer must not wait for content that nobody wants
	answer, err := do(r.Context(), r.Body)
	if err != nil {
		f := failure{Error: err.Error()}
		if s.Kind != nil {
			f.Kind = s.Kind(err)
		}
		send(w, http.StatusUnprocessableEntity, f)
		return
	}
	if stream, ok := answer.(Stream); ok {
		w.Header().Set("Content-Type", stream.ContentType)
		if err := stream.Write(w); err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	send(w, http.StatusOK, answer)
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the other side has gone
}

// ServeUntil answers until ctx ends, and lets requests that are being answered have a moment then.
func ServeUntil(ctx context.Context, l net.Listener, server *http.Server) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close()
	}
	<-ended
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
