package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
)

func TestOutsideTheWindowNothingIsFetched(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.opts.Window = window.Transfer{Opens: 1 * time.Hour, Closes: 5 * time.Hour} // it is one in the afternoon
	next := s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	s.registry.blobs.Store(0)
	for range 2 {
		r := s.once()
		require.Equal(t, Deferred, r.Verdict)
		require.Equal(t, bundle.Pending, r.Status.State)
		require.Equal(t, "OutsideWindow", r.Status.Reason)
		require.Contains(t, r.Status.Message, "the transfer window 01:00-05:00 (UTC) opens at 2026-03-02T01:00:00Z")
		require.Equal(t, good.Digest, r.Status.Release.Running.Digest)
		require.Equal(t, next.Digest, r.Status.Release.Desired.Digest)
		require.Equal(t, bundle.Compliant, r.Status.Items[0].State)
		require.Equal(t, 2, r.Status.Queue.Length, "which is reported once")
	}
	require.Zero(t, s.registry.blobs.Load())
	s.agent(func(a *Agent) {
		a.opts.Interval = 24 * time.Hour
		p := plan{agent: a}
		p.passed(scope{from: a.source}, outcome{Verdict: Deferred}, s.now)
		opens := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
		require.True(t, p.contact.After(opens) && p.contact.Before(opens.Add(windowRush)), "%s", p.contact)
	})

	s.now = time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	r := s.once()
	require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
	require.Empty(t, r.Status.Reason)
	requireFile(t, s.host, "a-x/f", "2")
}

// A release on a medium does not use the link.
func TestAMediumDoesNotWaitForTheWindow(t *testing.T) {
	s := newSite(t)
	s.opts.Window = window.Transfer{Opens: 1 * time.Hour, Closes: 5 * time.Hour}
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	path := s.export(s.stream)
	s.agent(func(a *Agent) {
		require.Equal(t, bundle.Compliant, a.Import(context.Background(), ImportRequest{Paths: []string{path}}).Status.State)
	})
}

// A window that closes interrupts a transfer, which goes on in the next one.
func TestAWindowThatClosesInterruptsATransfer(t *testing.T) {
	t.Parallel() // as most of its time is waited

	for left := time.Second; ; left *= 2 { // until half of the layer arrives before the window closes
		s := newSite(t)
		d := s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
		s.opts.Window = window.Transfer{Opens: 1 * time.Hour, Closes: 5 * time.Hour}
		s.now = time.Date(2026, 3, 2, 5, 0, 0, 0, time.UTC).Add(-left)
		tree := s.layer(d)
		layer := s.blobBytes(tree)
		half := len(layer) / 2
		release := s.stallAfter(tree.Digest, layer, half)
		r := s.once()
		require.Equal(t, "OutsideWindow", r.Status.Reason, r.Error)
		require.Nil(t, r.Status.Release.Running)
		release()
		s.now = time.Date(2026, 3, 3, 1, 0, 0, 0, time.UTC)
		ranges := s.ranges(tree.Digest, layer)
		r = s.once()
		require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
		if slices.Equal([]int{half}, *ranges) { // what has arrived is not fetched again
			return
		}
		require.Less(t, left, time.Minute, "bytes %v", *ranges)
	}
}
