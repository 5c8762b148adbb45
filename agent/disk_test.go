package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// Each write to the state file that a pass makes fails in turn, once, or for good until the next pass, or its sync does.
// The agent reports its machine as the cause, keeps the running release and its state, and goes on when the disk works
// again, in the same process as well as in the next one. A sample is each seventh write.
func TestEveryWriteOfAPassMayFail(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fault
		errno syscall.Errno
		first int // the write that fails first
		many  int // how many do
	}{
		{"the disk is full for a moment", faultErrno, syscall.ENOSPC, 1, 1},
		{"the disk stays full", faultErrno, syscall.ENOSPC, 2, 1000},
		{"the disk tears a page", faultPartly, syscall.EIO, 2, 1},
		{"the file system is read-only", faultErrno, syscall.EROFS, 1, 1000},
		{"a sync fails", faultSync, 0, 1, 4},
		{"no sync succeeds", faultSync, 0, 2, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.opts.Reports.Heartbeat = time.Nanosecond // each pass has something to report
			s.publish(s.draft(1, map[string]string{"a-x/f": "1", "b-x/f": "1"}))
			s.once()
			seq, failures := int64(1), 0
			for n, hit := tc.first, true; hit; n += sweeptest.Every(7) {
				text := fmt.Sprint(n)
				files := map[string]string{"a-x/f": text, fmt.Sprint(string(rune('b'+n%2)), "-x/f"): text}
				s.publish(s.draft(int64(n+1), files))
				s.now = s.now.Add(time.Minute)
				s.agent(func(a *Agent) {
					disk := underState(a.state, 1)
					disk.errno = tc.errno
					hit = false
					disk.deed = func(write int) fault {
						if n <= write && write < n+tc.many {
							hit = true
							return tc.fault
						}
						return faultNone
					}
					r := a.Once(context.Background(), 0)
					switch {
					case !hit:
					case r.Verdict == Broken:
						failures++
						require.Contains(t, r.Error, "write state", "write %d", n)
					case tc.fault != faultSync: // which may have been none of these
						require.Contains(t, s.log.String(), "left-overs stay on the disk", "write %d", n)
					}
					s.log.Reset()
					disk.deed = func(int) fault { return faultNone }
					seq = s.requireWell(a, files, seq)
				})
			}
			require.Greater(t, failures, 3)
		})
	}
}

// requireWell makes a pass on a disk that works.
func (s *site) requireWell(a *Agent, files map[string]string, seq int64) int64 {
	t := s.t
	r := a.Once(context.Background(), 0)
	require.Contains(t, []Verdict{Done, Idle}, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State, r.Status.Message)
	require.Empty(t, r.Status.Reason)
	for path, content := range files {
		requireFile(t, s.host, path, content)
	}
	require.Len(t, s.folders(), len(files))
	m := recall(t, a.state, s.stream)
	require.GreaterOrEqual(t, m.seq, seq)
	for n := int64(1); n <= m.seq; n++ {
		require.Contains(t, m.queue, n, "no report is lost")
	}
	require.Equal(t, r.Status.Release.Running.Digest, m.order.Digest)
	return m.seq
}

// What a disk has lost of the state file is noticed, or was not needed: no agent begins with a lower order than it had,
// or as somebody else.
func TestALostSectorOfTheStateIsNoticed(t *testing.T) {
	s := newSite(t)
	for n := range int64(4) {
		s.publish(s.draft(n+1, map[string]string{"a-x/f": fmt.Sprint(n), "b-x/f": fmt.Sprint(n)}))
		s.once()
	}
	whole, err := os.ReadFile(filepath.Join(s.dir, state.File))
	require.NoError(t, err)
	var id enroll.Identity
	s.agent(func(a *Agent) { id = a.state.who.Identity() })
	opened, size := 0, os.Getpagesize()
	path := filepath.Join(s.dir, state.File)
	try := func(data []byte) {
		_ = os.Remove(path) // where bbolt has panicked it keeps the file locked
		require.NoError(t, os.WriteFile(path, data, 0o600))
		st, err := OpenState(s.dir, nil)
		if err != nil {
			require.ErrorIs(t, err, state.ErrDamaged)
			return
		}
		defer st.Close()
		opened++
		require.Equal(t, id, st.who.Identity())
		order, _, err := st.judgedSoFar(s.stream, 0)
		if err != nil {
			require.ErrorIs(t, err, state.ErrDamaged)
			return
		}
		require.EqualValues(t, 4, order.Sequence)
	}
	for at := 0; at < len(whole); at += sector {
		for _, end := range []int{at + sector, (at/size + 1) * size} {
			lost := bytes.Clone(whole)
			clear(lost[at:end])
			try(lost)
		}
		try(whole[:at])
	}
	require.Greater(t, opened, 3, "one of the two pages that make commits count is enough")
}

// An agent that is killed, or loses its power, while bbolt makes the file has an empty one at most.
func TestAnEmptyStateFileIsANewOneWhereNothingIsStored(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, state.File), nil, 0o600))
	_, err := ReadState(dir)
	require.ErrorIs(t, err, state.ErrNoState)
	require.NoError(t, openTestState(t, dir).Close())

	require.NoError(t, os.Mkdir(filepath.Join(dir, state.StoreDir), 0o700))
	require.NoError(t, os.Truncate(filepath.Join(dir, state.File), 0))
	_, err = ReadState(dir)
	require.ErrorIs(t, err, state.ErrDamaged)
	_, err = OpenState(dir, nil)
	require.ErrorIs(t, err, state.ErrDamaged)
}
