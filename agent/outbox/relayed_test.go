package outbox

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// answering is the other end of a HubSink without a network.
type answering func(n int) hubapi.Receipt

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := agenttest.Body(r)
	if err != nil {
		return nil, err
	}
	var request hubapi.Reports
	if err := json.Unmarshal(sent, &request); err != nil {
		return nil, err
	}
	body, err := json.Marshal(f(len(request.Reports)))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{}}, err
}

// follower is a HubSink for a relay, and how many reports each of its requests had.
type follower struct {
	*HubSink
	offered []int
	acks    []json.RawMessage // of the next answers
	log     bytes.Buffer
	heard   int
}

func newFollower(t *testing.T, o *Outbox, key ed25519.PublicKey) *follower {
	f := &follower{}
	f.HubSink = &HubSink{
		Outbox: o,
		Sender: Sender{
			UID: func() string { return "plant-7" }, Hub: func() queue.Hub { return queue.Hub{URL: "https://first-box:5001", Key: key} },
			Now: time.Now, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		},
		First: func(context.Context) error { return nil },
		Heard: func(*hubapi.IdentityHint) error { f.heard++; return nil },
		Client: &http.Client{Transport: answering(func(n int) hubapi.Receipt {
			f.offered = append(f.offered, n)
			return hubapi.Receipt{Relayed: true, Accepted: n, Acks: f.acks}
		})},
	}
	o.HubChanged()
	return f
}

func queuedIDs(t *testing.T, o *Outbox) (ids []digest.Digest) {
	t.Helper()
	all, err := o.batch(0, func(queued) bool { return true })
	require.NoError(t, err)
	for _, q := range all {
		ids = append(ids, q.ID)
	}
	return ids
}

// more queues one report more, as the agent does.
func more(t *testing.T, o *Outbox, seq uint64) {
	t.Helper()
	require.NoError(t, o.db.Update(func(tx *bbolt.Tx) error {
		e := queued{ID: testID(int(seq)), At: time.Now(), seq: seq, envelope: []byte("{}")}
		return errors.Join(Last{Seq: int64(seq)}.Save(tx), enqueue(tx, e, nil, Limits{}.WithDefaults()))
	}))
	o.Wake()
}

func TestARelayIsOfferedEverythingOnceAndAgainAfterAnHour(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	o := unsynced(t)
	for seq := range uint64(3) {
		more(t, o, seq+1)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(t, o, key.Public().(ed25519.PublicKey))
		f.wakeIn(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		synctest.Wait()
		require.Equal(t, []int{3}, f.offered)
		require.Zero(t, f.heard, "a relay knows nothing of identities")

		time.Sleep(10 * time.Minute)
		more(t, o, 4)
		synctest.Wait()
		require.Equal(t, []int{3, 1}, f.offered, "what was handed over is not offered with each new report")

		time.Sleep(hubapi.OfferAgain)
		synctest.Wait()
		require.Equal(t, []int{3, 1, 4}, f.offered)
		require.Equal(t, 4, statusOf(t, o).Length, "a relay's word deletes nothing")
		require.Empty(t, statusOf(t, o).Unsent)

		stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
		ids := queuedIDs(t, o)
		f.acks = []json.RawMessage{ackOf(stranger, "plant-7", ids), ackOf(key, "plant-8", ids), json.RawMessage(`{}`), ackOf(key, "plant-7", ids[:3])}
		time.Sleep(2 * hubapi.OfferAgain)
		synctest.Wait()
		require.Equal(t, 1, statusOf(t, o).Length, "what the hub has signed for this cluster deletes")
		require.Contains(t, f.log.String(), "not believed")

		f.acks = []json.RawMessage{ackOf(key, "plant-7", ids)}
		time.Sleep(2 * hubapi.OfferAgain)
		synctest.Wait()
		require.Zero(t, statusOf(t, o).Length)
		n := len(f.offered)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		require.Len(t, f.offered, n, "an empty queue asks for nothing")
	})
}

// wakeIn replaces the channels by such as belong to the bubble of synctest.
func (f *follower) wakeIn(t *testing.T) {
	t.Helper()
	f.forHub, f.hubKnown = make(chan struct{}, 1), make(chan struct{}, 1)
}

func TestWithoutAHubKeyARelayIsOfferedReportsAgainAndNoneIsDeleted(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	o := unsynced(t)
	more(t, o, 1)
	f := newFollower(t, o, nil)
	f.HubSink.Hub = func() queue.Hub { return queue.Hub{URL: "https://first-box:5001"} }
	now := epoch
	f.Now = func() time.Time { return now }
	f.acks = []json.RawMessage{ackOf(key, "plant-7", queuedIDs(t, o))}
	require.NoError(t, f.Send(t.Context()))
	require.NoError(t, f.Send(t.Context()))
	require.Equal(t, []int{1}, f.offered)
	now = now.Add(2 * hubapi.OfferAgain)
	require.NoError(t, f.Send(t.Context()))
	require.Equal(t, []int{1, 1}, f.offered)
	require.Equal(t, 1, statusOf(t, o).Length)

	now = now.Add(-30 * 24 * time.Hour)
	require.NoError(t, f.Send(t.Context()))
	require.Equal(t, []int{1, 1, 1}, f.offered, "a clock that was set back does not silence it")
}

func TestWhatARelayRefusesIsNotHandedOver(t *testing.T) {
	o := unsynced(t)
	more(t, o, 1)
	more(t, o, 2)
	f := newFollower(t, o, nil)
	f.Client = &http.Client{Transport: answering(func(int) hubapi.Receipt {
		return hubapi.Receipt{Relayed: true, Accepted: 1, Rejected: []hubapi.Rejection{{ID: testID(1), Reason: hubapi.CodeUnavailable}}}
	})}
	f.Now = func() time.Time { return epoch }
	require.Error(t, f.Send(t.Context()))
	require.Equal(t, map[digest.Digest]bool{testID(2): true}, f.handed.ids)
}
