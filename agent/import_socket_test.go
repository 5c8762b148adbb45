package agent

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// hungPipe gives data and then nothing more, as a medium or a pipe that hangs. It says when it hangs.
type hungPipe struct {
	io.Reader
	hangs chan struct{}
}

func newHungPipe(data []byte) hungPipe { return hungPipe{bytes.NewReader(data), make(chan struct{})} }

func (s hungPipe) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		close(s.hangs)
		select {}
	}
	return n, nil
}

func TestARunningAgentTakesAPackageThroughItsSocket(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval = nil, time.Hour
	s.now = time.Now()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	path := s.export(s.stream)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	s.registry.away.Store(true)
	c := s.running()
	unchanged := func(why string) {
		t.Helper()
		st, err := c.Status(t.Context())
		require.NoError(t, err)
		require.Nil(t, st.Release.Running, why)
		require.NoDirExists(t, filepath.Join(s.host, "a-x"))
		p, err := c.ImportProgress(t.Context())
		require.NoError(t, err)
		require.Zero(t, p)
	}

	r, err := c.Import(t.Context(), ImportRequest{Stdin: bytes.NewReader(data[:len(data)/2])})
	require.NoError(t, err)
	require.Equal(t, Broken, r.Verdict, "a pipe that ends too early")
	unchanged(r.Error)

	ctx, cancel := context.WithCancel(t.Context())
	pipe := newHungPipe(data[:len(data)/2])
	go func() { <-pipe.hangs; cancel() }()
	_, err = c.Import(ctx, ImportRequest{Stdin: pipe})
	require.ErrorIs(t, err, context.Canceled, "Ctrl-C")

	_, err = c.Import(t.Context(), ImportRequest{Paths: []string{filepath.Join(t.TempDir(), "nowhere.tar")}})
	require.ErrorIs(t, err, ErrUnreadable)
	_, err = c.Import(t.Context(), ImportRequest{Paths: []string{t.TempDir()}})
	require.ErrorIs(t, err, ErrUnreadable, "a mount point whose medium the agent does not see")
	_, err = c.Import(t.Context(), ImportRequest{Paths: []string{"-"}})
	require.ErrorIs(t, err, ErrUnreadable, "the agent's own standard input is nobody's")

	r, err = c.Import(t.Context(), ImportRequest{Stdin: bytes.NewReader(data)})
	require.NoError(t, err)
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	requireFile(t, s.host, "a-x/f", "1")
	r, err = c.Import(t.Context(), ImportRequest{Paths: []string{path}})
	require.NoError(t, err)
	require.Equal(t, Idle, r.Verdict, "once more")
	r, err = c.Import(t.Context(), ImportRequest{Each: [][]string{{path}, {path}}})
	require.NoError(t, err)
	require.Equal(t, Idle, r.Verdict, "by the files of several packages")
	_, err = c.Import(t.Context(), ImportRequest{Each: [][]string{{path}, {filepath.Join(t.TempDir(), "nowhere.tar")}}})
	require.ErrorIs(t, err, ErrUnreadable)
}
