package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// ErrNotRunning means that no agent answers at the control socket.
var ErrNotRunning = errors.New("no agent is running")

// maxAnswerBytes bounds an answer other than a Stream.
const maxAnswerBytes = 64 << 20

// Client gives commands to the agent that runs with a state folder.
type Client struct {
	dial   func(context.Context) (net.Conn, error)
	http   *http.Client
	errors map[string]error
}

// Dial returns a client. It connects with each call. An error of a command wraps the one of errs that has the name which
// Server.Kind gave it, and ErrNotRunning where nobody listens.
func Dial(stateDir string, errs map[string]error) Client {
	dial := func(ctx context.Context) (conn net.Conn, err error) {
		err = throughShortPath(filepath.Join(stateDir, SocketFile), func(path string) error {
			conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
			return err
		})
		return conn, err
	}
	again := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return Client{dial, &http.Client{Transport: &http.Transport{DialContext: again, DisableKeepAlives: true}}, errs}
}

// Call gives a command, such as "POST sync", with args as JSON, nil for none, and reads its answer into the given value.
func (c Client) Call(ctx context.Context, command string, args, into any) error {
	var body []byte
	if args != nil {
		var err error
		if body, err = json.Marshal(args); err != nil {
			return err
		}
	}
	return c.answered(ctx, command, bytes.NewReader(body), into)
}

// Upload is Call for a command with arguments and content, which it reads as far as the agent wants it, and not at all if
// none is running. It returns when the agent has answered or gone, or ctx has ended; a read of content that hangs goes on
// by itself. An error of content is that of Upload, and the agent does not take the content for whole.
func (c Client) Upload(ctx context.Context, command string, args any, content io.Reader, into any) error {
	line, err := json.Marshal(args)
	if err != nil {
		return err
	}
	body := newBody(io.MultiReader(bytes.NewReader(append(line, '\n')), content))
	// http waits for a read of the body even when the connection has been closed.
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := c.dial(ctx)
		return closing{conn, body}, err
	}
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	defer body.end()
	err = c.answered(ctx, command, body, into)
	if failed := body.failed.Load(); err != nil && failed != nil {
		return *failed
	}
	return err
}

// body reads content in a goroutine of its own, so that it can be ended while a read hangs.
type body struct {
	content io.Reader
	begin   sync.Once
	r       *io.PipeReader
	w       *io.PipeWriter
	failed  atomic.Pointer[error] // of content; http would hide it behind an error of its own
}

func newBody(content io.Reader) *body {
	r, w := io.Pipe()
	return &body{content: content, r: r, w: w}
}

func (b *body) Read(p []byte) (int, error) {
	b.begin.Do(func() { go b.pump() })
	return b.r.Read(p)
}

func (b *body) pump() {
	_, err := io.CopyBuffer(struct{ io.Writer }{b.w}, struct{ io.Reader }{b.content}, make([]byte, maxLineBytes))
	if err != nil && !errors.Is(err, errEnded) {
		b.failed.Store(&err)
	}
	b.w.CloseWithError(err)
}

var errEnded = errors.New("the agent has gone")

func (b *body) end() { b.r.CloseWithError(errEnded) }

// closing ends a body when its connection is closed.
type closing struct {
	net.Conn
	body *body
}

func (c closing) Close() error {
	c.body.end()
	return c.Conn.Close()
}

func (c Client) answered(ctx context.Context, command string, body io.Reader, into any) error {
	resp, err := c.do(ctx, command, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(into); err != nil {
		return fmt.Errorf("agent: %s: %w", resp.Request.URL.Path[1:], err)
	}
	return nil
}

// Stream gives a command without arguments whose answer is a Stream, and writes that to w.
func (c Client) Stream(ctx context.Context, command string, w io.Writer) error {
	resp, err := c.do(ctx, command, http.NoBody)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}

func (c Client) do(ctx context.Context, command string, body io.Reader) (*http.Response, error) {
	var method, name string
	_, _ = fmt.Sscan(command, &method, &name)
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/"+name, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("agent: %w", err)
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	var f failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&f); err != nil {
		return nil, fmt.Errorf("agent answered %s", resp.Status)
	}
	return nil, remoteError{f.Error, c.errors[f.Kind]}
}

// remoteError is an error of the running agent, in its words, that wraps what its kind names here.
type remoteError struct {
	message string
	kind    error // nil where it has none, or none that is known here
}

func (e remoteError) Error() string { return e.message }
func (e remoteError) Unwrap() error { return e.kind }
