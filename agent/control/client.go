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
	"net/http/httptrace"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Errors of a Client. After ErrNotRunning and ErrForbidden nothing was sent.
var (
	// ErrNotRunning means that nobody listens at the control socket.
	ErrNotRunning = errors.New("no agent is running")
	// ErrForbidden means that this user may not open the socket.
	ErrForbidden = errors.New("this agent belongs to another user")
	// ErrSilent means that an agent has the socket and does not answer: its process is stopped, or hangs. A command that it
	// has not taken up is never executed.
	ErrSilent = errors.New("the agent is running, but does not answer")
	// ErrGone means that the agent has ended before it had answered.
	ErrGone = errors.New("the agent stopped")
)

const (
	// maxAnswerBytes bounds an answer other than a Stream.
	maxAnswerBytes = 64 << 20
	// takeTime is the time in which an agent takes a command up, answers "GET alive", and sends the next bytes of an answer.
	takeTime = 10 * time.Second
	// answerTime is the time for the answer to a command that was taken up, other than by Long and Upload. A slow disk may
	// take a while to sync.
	answerTime = time.Minute
	// forever is for timers that others replace.
	forever = 1000 * time.Hour
)

// Alive is the answer to "GET alive", which every agent has among its commands. Answering it waits for nothing.
type Alive struct {
	// Doing is the step of the pass that runs; empty between passes.
	Doing string `json:"doing,omitempty"`
	// Stuck is why the agent makes no progress; empty if it does.
	Stuck string `json:"stuck,omitempty"`
}

// Client gives commands to the agent that runs with a state folder.
type Client struct {
	// Waits is called with each new step of the agent while Long or Upload waits. Nil is nobody.
	Waits func(doing string)

	path   string // of the socket
	dial   func(context.Context) (net.Conn, error)
	http   *http.Client
	errors map[string]error
	// take, answer and every are takeTime, answerTime and the time between two questions for a sign of life.
	take, answer, every time.Duration
}

// Dial returns a client. It connects with each call. An error of a command wraps the one of errs that has the name which
// Server.Kind gave it, or one of ErrNotRunning, ErrForbidden, ErrSilent and ErrGone.
func Dial(stateDir string, errs map[string]error) Client {
	socket := filepath.Join(stateDir, SocketFile)
	dial := func(ctx context.Context) (conn net.Conn, err error) {
		err = throughShortPath(socket, func(path string) error {
			conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
			return err
		})
		return conn, err
	}
	again := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return Client{path: socket, dial: dial, http: over(again), errors: errs, take: takeTime, answer: answerTime, every: takeTime}
}

// over returns an HTTP client with connections by dial. It sends the body of a request only once the agent reads it, and
// never if that is not to happen while somebody waits: the agent then finds a request without its body, and drops it.
func over(dial func(ctx context.Context, _, _ string) (net.Conn, error)) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, ExpectContinueTimeout: forever}}
}

// Call gives a command, such as "POST pause", with args as JSON, nil for none, and reads its answer into the given value.
func (c Client) Call(ctx context.Context, command string, args, into any) error {
	return c.call(ctx, command, args, into, false)
}

// Long is Call for a command that takes as long as its work does, such as "POST sync". It waits while the agent answers
// "GET alive", and is not stuck.
func (c Client) Long(ctx context.Context, command string, args, into any) error {
	return c.call(ctx, command, args, into, true)
}

func (c Client) call(ctx context.Context, command string, args, into any, long bool) error {
	body, err := json.Marshal(args) // never empty, so that the agent has to ask for it
	if err != nil {
		return err
	}
	if long {
		return c.answered(ctx, command, bytes.NewReader(body), into, &c)
	}
	return c.answered(ctx, command, bytes.NewReader(body), into, nil)
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
	pinged := c
	c.http = over(dial)
	defer body.end()
	err = c.answered(ctx, command, body, into, &pinged)
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

// Write forgets what the agent does not take any more: it may have answered before it has read everything, and http would not
// read that answer after an error. If there is none, reading it has an error.
func (c closing) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(p), nil
	}
	return n, err
}

func (c closing) Close() error {
	c.body.end()
	return c.Conn.Close()
}

// answered gives a command and reads its answer. If ping is not nil, it waits as Long does, and asks by ping.
func (c Client) answered(ctx context.Context, command string, body io.Reader, into any, ping *Client) error {
	resp, err := c.do(ctx, command, body, ping)
	if err != nil {
		return err
	}
	defer resp.Close()
	if err := json.NewDecoder(io.LimitReader(resp, maxAnswerBytes)).Decode(into); err != nil {
		return resp.wait.failed(err)
	}
	return nil
}

// Stream gives a command without arguments whose answer is a Stream, and writes that to w.
func (c Client) Stream(ctx context.Context, command string, w io.Writer) error {
	resp, err := c.do(ctx, command, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Close()
	if _, err = io.Copy(w, resp); err != nil {
		return resp.wait.failed(err)
	}
	return nil
}

// do sends a request and returns its good answer, which the caller closes.
func (c Client) do(ctx context.Context, command string, body io.Reader, ping *Client) (*answer, error) {
	var method, name string
	_, _ = fmt.Sscan(command, &method, &name)
	w := c.waitFor(ctx, name, ping)
	if method == http.MethodGet {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(w.traced(), method, "http://agent/"+name, body)
	if err != nil {
		w.end()
		return nil, err
	}
	if method != http.MethodGet {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := c.http.Do(req)
	switch {
	case err != nil:
		defer w.end()
		return nil, w.failed(err)
	case resp.StatusCode == http.StatusOK:
		w.taken()
		return &answer{resp.Body, w}, nil
	}
	defer w.end()
	defer resp.Body.Close()
	var f failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&f); err != nil {
		return nil, fmt.Errorf("agent answered %s", resp.Status)
	}
	return nil, remoteError{f.Error, c.errors[f.Kind]}
}

// answer is one that arrives. A reader that hears nothing for a while gives up.
type answer struct {
	io.ReadCloser
	wait *wait
}

func (a *answer) Read(p []byte) (int, error) {
	a.wait.timer.Reset(a.wait.client.take)
	return a.ReadCloser.Read(p)
}

func (a *answer) Close() error {
	defer a.wait.end()
	return a.ReadCloser.Close()
}

// wait is the wait for an answer. It ends when its timer does.
type wait struct {
	client Client
	name   string
	ping   *Client // nil unless the answer may take as long as it likes
	caller context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	sent   atomic.Bool // there was a connection
	pings  sync.WaitGroup

	mu           sync.Mutex
	begun, ended bool
}

func (c Client) waitFor(ctx context.Context, name string, ping *Client) *wait {
	w := &wait{client: c, name: name, ping: ping, caller: ctx}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(c.take, w.expire)
	return w
}

// expire ends it because nothing was heard.
func (w *wait) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		w.cancel(fmt.Errorf("%w: it has taken up %q, and has not answered in time", ErrSilent, w.name))
		return
	}
	w.cancel(fmt.Errorf("%w: it has not taken up %q within %v, and will not do so later", ErrSilent, w.name, w.client.take))
}

// traced returns a context for the request: it notes how far that is.
func (w *wait) traced() context.Context {
	return httptrace.WithClientTrace(w.ctx, &httptrace.ClientTrace{
		GotConn:        func(httptrace.GotConnInfo) { w.sent.Store(true) },
		Got100Continue: w.taken,
	})
}

// taken notes that the agent has taken the command up.
func (w *wait) taken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.ended {
		return
	}
	w.begun = true
	if w.ping == nil {
		w.timer.Reset(w.client.answer)
		return
	}
	w.timer.Stop()
	w.pings.Go(w.listen)
}

// listen asks for signs of life until the answer is there.
func (w *wait) listen() {
	ticker := time.NewTicker(w.client.every)
	defer ticker.Stop()
	doing := ""
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-ticker.C:
		}
		var a Alive
		err := w.ping.Call(w.ctx, "GET alive", nil, &a)
		switch {
		case errors.Is(err, ErrSilent):
			w.cancel(fmt.Errorf("%w: it has taken up %q, and then there was no sign of life for %v", ErrSilent, w.name, w.client.take))
		case a.Stuck != "":
			w.cancel(fmt.Errorf("%w: it has taken up %q, and %s", ErrSilent, w.name, a.Stuck))
		case a.Doing != "" && a.Doing != doing && w.ping.Waits != nil:
			doing = a.Doing
			w.ping.Waits(doing)
		}
	}
}

// end ends everything of it.
func (w *wait) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
	w.pings.Wait()
}

// failed returns the error of a request that has got no answer.
func (w *wait) failed(err error) error {
	switch cause := context.Cause(w.ctx); {
	case w.caller.Err() != nil:
		return fmt.Errorf("agent: %w", err)
	case errors.Is(cause, ErrSilent):
		return cause
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return ErrNotRunning
	case errors.Is(err, fs.ErrPermission):
		return forbidden(w.client.path)
	case errors.Is(err, syscall.EAGAIN): // so many have asked before that the socket takes no more
		return fmt.Errorf("%w: too many requests wait", ErrSilent)
	case w.sent.Load():
		return fmt.Errorf("%w before it had answered %q", ErrGone, w.name)
	}
	return fmt.Errorf("agent: %w", err)
}

// forbidden returns the error of a socket that this user may not open, with its owner as far as that can be seen.
func forbidden(path string) error {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if owner := ownerOf(path); owner != "" {
			return remoteError{"this agent belongs to " + owner, ErrForbidden}
		}
	}
	return ErrForbidden
}

// remoteError is an error of the running agent, in its words, that wraps what its kind names here.
type remoteError struct {
	message string
	kind    error // nil where it has none, or none that is known here
}

func (e remoteError) Error() string { return e.message }
func (e remoteError) Unwrap() error { return e.kind }
