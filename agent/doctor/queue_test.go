package doctor

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

func TestTheQueueIsWarnedOf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for name, tc := range map[string]struct {
		queue outbox.Status
		hub   string
		want  diagnosis.Result
		says  string
	}{
		"empty":                      {outbox.Status{}, "", diagnosis.OK, "0 reports waiting"},
		"old, and there is no hub":   {outbox.Status{Length: 3, Oldest: before(2 * oldQueue)}, "", diagnosis.OK, "3 reports waiting, the oldest since 2026-02-13"},
		"old, and there is a hub":    {outbox.Status{Length: 3, Oldest: before(2 * oldQueue)}, "http://hub", diagnosis.Warning, "3 reports waiting"},
		"not old":                    {outbox.Status{Length: 3, Oldest: before(oldQueue / 2)}, "http://hub", diagnosis.OK, "3 reports waiting"},
		"the hub will not take some": {outbox.Status{Length: 3, Rejected: 2, LastRejection: "UnknownCluster"}, "http://hub", diagnosis.Warning, "2 the hub will not take: UnknownCluster"},
		"the hub does not know it":   {outbox.Status{Length: 3, Unsent: map[string]string{"http://hub": "hub answered 403"}}, "http://hub", diagnosis.Warning, "3 reports waiting; not taken by http://hub: hub answered 403"},
		"some were given up":         {outbox.Status{Dropped: 7}, "", diagnosis.Warning, "7 were given up"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{Subject: Subject{Hub: Hub{URL: tc.hub}, Now: func() time.Time { return now }}, waiting: &tc.queue}
			got := checkQueue(t.Context(), e)
			require.Equal(t, tc.want, got.Result)
			require.Contains(t, got.Message, tc.says)
			require.Equal(t, tc.want == diagnosis.OK, got.Remedy == "")
		})
	}
}

func TestAnAddressThatSomebodyElseHas(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &examination{Subject: Subject{Listen: l.Addr().String()}}
	got := checkListen(t.Context(), e)
	require.Equal(t, diagnosis.Failed, got.Result)
	require.Contains(t, got.Message, "address already in use")
	e.live = true
	got = checkListen(t.Context(), e)
	require.Equal(t, diagnosis.OK, got.Result, "it is the agent itself that has it")
	require.NoError(t, l.Close())
	e.live = false
	got = checkListen(t.Context(), e)
	require.Equal(t, diagnosis.OK, got.Result)
}
