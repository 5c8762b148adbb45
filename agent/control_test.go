package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// running has an agent run until the test ends, and waits until it answers.
func (s *site) running() Client {
	s.t.Helper()
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := ErrRebound
		for errors.Is(err, ErrRebound) {
			err = s.agentOn(state).Run(ctx)
		}
		ended <- err
	}()
	s.t.Cleanup(func() {
		cancel()
		require.NoError(s.t, <-ended)
		require.NoError(s.t, state.Close())
		require.NoFileExists(s.t, filepath.Join(s.dir, control.SocketFile))
	})
	c := NewClient(s.dir)
	require.Eventually(s.t, func() bool {
		_, err := c.Status(ctx)
		return err == nil
	}, time.Minute, time.Millisecond)
	return c
}

func TestARunningAgentSyncsWhenAsked(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval = nil, time.Hour
	s.dir = filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12), "state") // longer than a socket's address
	s.now = time.Now()
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	c := s.running()
	info, err := os.Stat(filepath.Join(s.dir, control.SocketFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Eventually(t, func() bool {
		st, err := c.Status(context.Background())
		return err == nil && st.State == bundle.Compliant && st.Release.Running != nil && st.NextTry != nil
	}, time.Minute, 5*time.Millisecond)
	d := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))

	r, err := c.Sync(context.Background(), 0)

	require.NoError(t, err)
	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	requireFile(t, s.host, "a-x/f", "2")
	s.registry.away.Store(true)
	r, err = c.Sync(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, Unreachable, r.Verdict)
	require.NotEmpty(t, r.Error)
}

func TestARunningAgentPollsCorrectsDriftAndTriesAgain(t *testing.T) {
	s := newSite(t)
	s.opts.Now, s.opts.Interval, s.opts.DriftInterval = nil, 20*time.Millisecond, 20*time.Millisecond
	s.now = time.Now()
	s.registry.away.Store(true)
	s.running()
	s.registry.away.Store(false)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	require.Eventually(t, s.has("a-x/f", "1"), time.Minute, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(s.host, "a-x/f"), []byte("changed"), 0o600))
	require.Eventually(t, s.has("a-x/f", "1"), time.Minute, 5*time.Millisecond)
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.Eventually(t, s.has("a-x/f", "2"), time.Minute, 5*time.Millisecond)
}

func TestTheSocketIsNotThereWithoutAnAgent(t *testing.T) {
	_, err := NewClient(t.TempDir()).Status(context.Background())
	require.ErrorIs(t, err, control.ErrNotRunning)
	_, err = NewClient(filepath.Join(t.TempDir(), "nowhere")).Status(context.Background())
	require.ErrorIs(t, err, control.ErrNotRunning)

	dir := t.TempDir() // left by an agent that was killed
	state := openTestState(t, dir)
	socket, err := newSite(t).agentOn(state).listen()
	require.NoError(t, err)
	require.NoError(t, socket.Close())
	_, err = NewClient(dir).Status(context.Background())
	require.ErrorIs(t, err, control.ErrNotRunning)
}

func TestReportsLeaveARunningAgentAsAFile(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	c := s.running()
	var file bytes.Buffer
	require.Eventually(t, func() bool {
		st, err := c.Status(context.Background())
		return err == nil && st.Queue.Length > 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, c.Reports(context.Background(), &file))
	path := filepath.Join(t.TempDir(), "reports.tar")
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	envelopes, err := airgap.ReadReports(path)
	require.NoError(t, err)
	require.NotEmpty(t, envelopes)

	_, err = c.Acknowledge(context.Background(), nil)
	require.ErrorIs(t, err, outbox.ErrNoHubKey)
}

func (s *site) has(name, want string) func() bool {
	return func() bool {
		data, err := os.ReadFile(filepath.Join(s.host, name))
		return err == nil && string(data) == want
	}
}
