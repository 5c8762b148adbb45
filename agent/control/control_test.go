package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errSleepy = errors.New("asleep")

func TestACommandIsAnsweredAndItsErrorHasItsKind(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir)
	require.NoError(t, err)
	server.Kind = func(err error) string {
		if errors.Is(err, errSleepy) {
			return "sleepy"
		}
		return ""
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ctx, Commands{
			"POST add":  With(func(n [2]int) (any, error) { return n[0] + n[1], nil }),
			"POST wake": With(func(struct{}) (any, error) { return nil, fmt.Errorf("too early: %w", errSleepy) }),
			"POST else": With(func(struct{}) (any, error) { return nil, errors.New("something else") }),
			"GET half": With(func(struct{}) (any, error) {
				return Stream{"text/plain", func(w io.Writer) error {
					_, _ = w.Write(bytes.Repeat([]byte("half"), 1<<20))
					return errors.New("the rest is missing")
				}}, nil
			}),
		})
	}()
	c := Dial(dir, map[string]error{"sleepy": errSleepy})
	var sum int
	require.NoError(t, c.Call(ctx, "POST add", [2]int{1, 2}, &sum))
	require.Equal(t, 3, sum)
	require.NoError(t, c.Call(ctx, "POST add", nil, &sum), "no arguments are the zero ones")
	require.Zero(t, sum)

	err = c.Call(ctx, "POST wake", nil, &sum)
	require.EqualError(t, err, "too early: asleep")
	require.ErrorIs(t, err, errSleepy)
	err = c.Call(ctx, "POST else", nil, &sum)
	require.EqualError(t, err, "something else")
	require.NotErrorIs(t, err, errSleepy)
	require.Error(t, c.Call(ctx, "POST add", "not numbers", &sum))
	require.Error(t, c.Call(ctx, "POST unknown", nil, &sum))
	require.Error(t, c.Stream(ctx, "GET half", io.Discard), "half a file is not taken for a whole one")

	cancel()
	<-ended
	require.ErrorIs(t, c.Call(t.Context(), "POST add", nil, &sum), ErrNotRunning)
}

// A socket whose path is too long for an address is opened by the number of its folder, which another folder has later.
func TestTheEndOfASocketLeavesAnothersAlone(t *testing.T) {
	own, other := filepath.Join(t.TempDir(), strings.Repeat("a", maxSocketPath)), t.TempDir()
	require.NoError(t, os.Mkdir(own, 0o700))
	server, err := Listen(own)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(other, SocketFile), nil, 0o600))
	folder, err := os.Open(other) // which has the number now
	require.NoError(t, err)
	defer folder.Close()
	require.NoError(t, server.Close())
	require.FileExists(t, filepath.Join(other, SocketFile))
}

// hanging is content that never ends, and says when it is read.
type hanging struct{ read chan struct{} }

func (h hanging) Read([]byte) (int, error) {
	close(h.read)
	select {}
}

func TestContentOfAnyLengthGoesToTheAgent(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended, begun, left := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		defer close(ended)
		server.Serve(ctx, Commands{
			"POST count": WithContent(func(_ context.Context, by int64, content io.Reader) (any, error) {
				n, err := io.Copy(io.Discard, content)
				return n * by, err
			}),
			"POST refuse": WithContent(func(_ context.Context, _ int64, content io.Reader) (any, error) {
				_, _ = io.ReadFull(content, make([]byte, 3))
				return nil, errors.New("it is not wanted")
			}),
			"POST leave": WithContent(func(_ context.Context, _ int64, content io.Reader) (any, error) {
				begun <- struct{}{}
				_, err := io.Copy(io.Discard, content)
				left <- err
				return nil, err
			}),
			"POST wait": WithContext(func(ctx context.Context, _ int64) (any, error) {
				left <- nil
				<-ctx.Done()
				left <- ctx.Err()
				return nil, ctx.Err()
			}),
		})
	}()
	c := Dial(dir, nil)
	var n int64
	many := func() io.Reader { return io.LimitReader(zeros{}, 64<<20) }
	require.NoError(t, c.Upload(ctx, "POST count", 2, many(), &n))
	require.Equal(t, int64(128<<20), n)
	require.NoError(t, c.Upload(ctx, "POST count", 2, bytes.NewReader(nil), &n))
	require.Zero(t, n)
	require.Error(t, c.Upload(ctx, "POST count", string(make([]byte, maxLineBytes)), many(), &n), "arguments that are too long")

	require.EqualError(t, c.Upload(ctx, "POST refuse", 1, many(), &n), "it is not wanted")
	h := hanging{make(chan struct{})}
	require.EqualError(t, c.Upload(ctx, "POST refuse", 1, io.MultiReader(bytes.NewReader(make([]byte, 9)), h), &n), "it is not wanted",
		"without waiting for more")

	failing := errors.New("the pipe is torn")
	require.ErrorIs(t, c.Upload(ctx, "POST leave", 1, io.MultiReader(bytes.NewReader(make([]byte, 9)), failingReader{failing}), &n), failing)
	require.Error(t, <-left, "and the agent does not take it for whole")
	<-begun

	asked, gone := context.WithCancel(ctx)
	h = hanging{make(chan struct{})}
	go func() { <-begun; gone() }() // content is read before the arguments have come to the agent
	require.ErrorIs(t, c.Upload(asked, "POST leave", 1, h, &n), context.Canceled)
	require.Error(t, <-left)

	asked, gone = context.WithCancel(ctx)
	go func() { <-left; gone() }()
	require.ErrorIs(t, c.Call(asked, "POST wait", 1, &n), context.Canceled)
	require.ErrorIs(t, <-left, context.Canceled, "the command ends with its client")

	cancel()
	<-ended
	touched := hanging{make(chan struct{})}
	require.ErrorIs(t, c.Upload(t.Context(), "POST count", 1, touched, &n), ErrNotRunning)
	select {
	case <-touched.read:
		t.Fatal("content was read for an agent that does not run")
	default:
	}
}

func TestAnAgentThatDiesIsNoticedThoughThereIsNothingToSend(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, SocketFile))
	require.NoError(t, err)
	h := hanging{make(chan struct{})}
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
			<-h.read
			_ = conn.Close()
		}
	}()
	require.ErrorIs(t, Dial(dir, nil).Upload(t.Context(), "POST any", 1, h, new(int)), ErrGone)
	require.NoError(t, l.Close())
}

// stopped is a listener of an agent whose process is stopped: its connections are accepted by the kernel alone, until it goes on.
func stopped(t *testing.T) (dir string, goOn func(Commands)) {
	dir = t.TempDir()
	server, err := Listen(dir)
	require.NoError(t, err)
	return dir, func(c Commands) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); server.Serve(ctx, c) }()
		t.Cleanup(func() { cancel(); <-ended })
	}
}

func TestAnAgentThatIsStoppedIsNotWaitedForAndDropsWhatWasAbandoned(t *testing.T) {
	dir, goOn := stopped(t)
	c := Dial(dir, nil)
	c.take = time.Millisecond
	for name, ask := range map[string]func() error{
		"a question": func() error { return c.Call(t.Context(), "GET status", nil, new(int)) },
		"a change":   func() error { return c.Call(t.Context(), "POST pause", 1, new(int)) },
		"long work":  func() error { return c.Long(t.Context(), "POST pause", 1, new(int)) },
		"content":    func() error { return c.Upload(t.Context(), "POST import", 1, io.LimitReader(zeros{}, 1<<20), new(int)) },
		"a stream":   func() error { return c.Stream(t.Context(), "GET reports", io.Discard) },
	} {
		err := ask()
		require.ErrorIs(t, err, ErrSilent, name)
		require.ErrorContains(t, err, "within 1ms", name)
	}
	done := make(chan string, 9)
	note := func(what string) Handler { return With(func(int) (any, error) { done <- what; return 1, nil }) }
	goOn(Commands{
		"GET status": note("status"), "POST pause": note("pause"), "POST resume": note("resume"), "GET reports": note("reports"),
		"POST import": WithContent(func(_ context.Context, _ int, content io.Reader) (any, error) {
			done <- "import"
			return 1, nil
		}),
	})
	c.take = takeTime
	require.NoError(t, c.Call(t.Context(), "POST resume", 1, new(int)), "connections are accepted in order")
	close(done)
	for what := range done {
		require.NotContains(t, []string{"pause", "import"}, what, "it was abandoned")
	}
}

func TestLongWorkIsWaitedForWhileTheAgentLives(t *testing.T) {
	dir, goOn := stopped(t)
	alive, doing := make(chan Alive), make(chan string)
	goOn(Commands{
		"GET alive": With(func(struct{}) (any, error) { return <-alive, nil }),
		"POST sync": WithContext(func(ctx context.Context, _ int) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
	})
	c := Dial(dir, nil)
	c.Waits = func(step string) { doing <- step }
	failed := make(chan error)
	c.take = time.Millisecond
	ask := func(ctx context.Context) { failed <- c.Long(ctx, "POST sync", 1, new(int)) }
	c.take, c.answer = time.Minute, time.Nanosecond
	c.every = time.Millisecond
	go ask(t.Context())
	alive <- Alive{Doing: "fetch"}
	require.Equal(t, "fetch", <-doing)
	alive <- Alive{Doing: "fetch"}
	alive <- Alive{Doing: "apply"}
	require.Equal(t, "apply", <-doing, "each step is told once")
	alive <- Alive{Doing: "apply", Stuck: "step apply has shown no sign of life for 15m0s"}
	err := <-failed
	require.ErrorIs(t, err, ErrSilent)
	require.ErrorContains(t, err, "no sign of life for 15m0s")
}

func TestASocketOfAnotherUserNamesTheUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may open every socket: the error is made by hand")
	}
	err := forbidden(filepath.Join(t.TempDir(), SocketFile))
	require.ErrorIs(t, err, ErrForbidden)
	me, uerr := user.Current()
	require.NoError(t, uerr)
	require.EqualError(t, err, "this agent belongs to "+me.Username)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
