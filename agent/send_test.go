package agent

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// testHub answers as it is told to. The real hub's conversation with an agent is in hub_test.go.
type testHub struct {
	*httptest.Server
	key      ed25519.PrivateKey
	received []digest.Digest
	answer   func(h *testHub, ids []digest.Digest) (status int, body any)
}

func newTestHub(t *testing.T) *testHub {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	h := &testHub{key: key}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := agenttest.Body(r)
		require.NoError(t, err)
		require.Equal(t, "/v1/clusters/plant-7/reports", r.URL.Path)
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))
		var request struct{ Reports []dsse.Envelope }
		require.NoError(t, json.Unmarshal(body, &request))
		var ids []digest.Digest
		for _, e := range request.Reports {
			payload, err := e.DecodeB64Payload()
			require.NoError(t, err)
			ids = append(ids, bundle.ReportID(payload))
		}
		h.received = append(h.received, ids...)
		status, answer := h.answer(h, ids)
		w.WriteHeader(status)
		require.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *testHub) ack(key crypto.Signer, cluster string, ids []digest.Digest) json.RawMessage {
	return ackOf(key, cluster, ids)
}

// ackOf is an acknowledgement that key has signed.
func ackOf(key crypto.Signer, cluster string, ids []digest.Digest) json.RawMessage {
	body, err := json.Marshal(bundle.Ack{Schema: bundle.ReportSchema, Cluster: cluster, IssuedAt: epoch, Reports: ids})
	if err != nil {
		panic(err)
	}
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeAck, body, key)
	if err != nil {
		panic(err)
	}
	return envelope
}

func TestReportsAreDeletedByNothingButTheHubsOwnWord(t *testing.T) {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	type m = map[string]any
	for _, tc := range []struct {
		name     string
		answer   func(h *testHub, ids []digest.Digest) (int, any)
		left     int
		rejected int
		fails    bool
	}{
		{"acknowledged", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-7", ids)}
		}, 0, 0, false},
		{"forged", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(stranger, "plant-7", ids)}
		}, 2, 0, true},
		{"for another cluster", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-8", ids)}
		}, 2, 0, true},
		{"of other reports", func(h *testHub, _ []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-7", []digest.Digest{testID(1)})}
		}, 2, 0, true},
		{"of one of two", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-7", ids[:1])}
		}, 1, 0, true},
		{"without one", func(*testHub, []digest.Digest) (int, any) { return 200, m{} }, 2, 0, true},
		{"one refused for good", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-7", ids[:1]), "rejected": []m{{"id": ids[1], "reason": "BadReport"}}}
		}, 0, 1, false},
		{"one refused for now", func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, m{"ack": h.ack(h.key, "plant-7", ids[:1]), "rejected": []m{{"id": ids[1], "reason": "UnknownKey", "permanent": false}}}
		}, 1, 0, true},
		{"cluster unknown", func(*testHub, []digest.Digest) (int, any) { return 403, m{"error": "not registered"} }, 2, 0, true},
		{"busy", func(*testHub, []digest.Digest) (int, any) { return 503, m{} }, 2, 0, true},
		{"an answer that is none", func(*testHub, []digest.Digest) (int, any) { return 200, "hello" }, 2, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, h := twoReports(t)
			h.answer = tc.answer
			s.agent(func(a *Agent) {
				err := a.hubSink().Send(context.Background())
				require.Equal(t, tc.fails, err != nil, "%v", err)
				st, err := a.Status()
				require.NoError(t, err)
				require.Equal(t, tc.left, st.Queue.Length)
				require.Equal(t, tc.rejected, st.Queue.Rejected)
			})
		})
	}
}

func TestWithoutAPinnedKeyReportsAreSentOnceAndKept(t *testing.T) {
	s, h := twoReports(t)
	s.opts.Hub.Key = nil
	h.answer = func(h *testHub, ids []digest.Digest) (int, any) {
		return 200, map[string]any{"ack": h.ack(h.key, "plant-7", ids)}
	}
	s.agent(func(a *Agent) {
		sender := a.hubSink()
		s.send(sender)
		s.send(sender)
		require.Len(t, h.received, 2)
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, 2, st.Queue.Length)
	})
}

func TestAReportTheHubWillNotTakeDoesNotHoldUpTheOthers(t *testing.T) {
	s, h := twoReports(t)
	h.answer = func(_ *testHub, ids []digest.Digest) (int, any) {
		return 200, map[string]any{"rejected": []map[string]any{{"id": ids[0], "reason": "BadReport", "message": "no"}, {"id": ids[1], "reason": "BadReport"}}}
	}
	s.agent(func(a *Agent) {
		sender := a.hubSink()
		s.send(sender)
		s.send(sender)
		require.Len(t, h.received, 2, "offered once")
		letters, err := a.state.outbox.DeadLetters()
		require.NoError(t, err)
		require.Len(t, letters, 2)
		require.Equal(t, outbox.DeadLetter{ID: h.received[0], Seq: 1, Bytes: letters[0].Bytes, MadeAt: s.now, RejectedAt: s.now, RetryAt: s.now.Add(24 * time.Hour), Reason: "BadReport: no"}, letters[0])
		st := queueOf(t, a.state)
		require.Equal(t, outbox.Status{Rejected: 2, LastRejection: "BadReport"}, st)
		require.Len(t, openReports(t, a), 2, "they still travel by file")

		s.now = s.now.Add(24*time.Hour + time.Second)
		s.send(a.hubSink()) // also after a restart
		s.send(sender)
		require.Len(t, h.received, 4, "and again after a time, since nobody signed the refusal")

		n, err := a.state.outbox.RetryDeadLetters()
		require.NoError(t, err)
		require.Equal(t, 2, n)
		h.answer = func(h *testHub, ids []digest.Digest) (int, any) {
			return 200, map[string]any{"ack": h.ack(h.key, "plant-7", ids)}
		}
		s.send(sender)
		require.Zero(t, queueOf(t, a.state).Rejected, "acknowledged after all")
	})
}

func TestTheNewestReportIsSentBeforeABacklogAndAtTheHubsPace(t *testing.T) {
	s, h := twoReports(t)
	var batches [][]digest.Digest
	h.answer = func(h *testHub, ids []digest.Digest) (int, any) {
		batches = append(batches, ids)
		return 200, map[string]any{"ack": h.ack(h.key, "plant-7", ids), "pace": map[string]any{"reportsPerMinute": 250}}
	}
	s.agent(func(a *Agent) {
		require.NoError(t, a.state.db.Update(func(tx *bbolt.Tx) error {
			for i := range 1200 {
				seq := uint64(i + 3)
				e := outbox.Entry{Body: fmt.Append(nil, seq), Envelope: sealedBody(h.key, fmt.Sprint(seq)), Last: outbox.Last{Seq: int64(seq), At: s.now}}
				e.Report.Items = []bundle.Item{{Assignment: fmt.Sprint(i), State: bundle.Failed}}
				if err := outbox.Append(tx, e, a.opts.Reports.Queue); err != nil {
					return err
				}
			}
			return nil
		}))
		sender := a.hubSink()
		var slept []time.Duration
		sender.Sleep = func(_ context.Context, d time.Duration) error { slept = append(slept, d); return nil }
		s.send(sender)
		require.Zero(t, queueOf(t, a.state).Length)
		var sizes []int
		for _, b := range batches {
			sizes = append(sizes, len(b))
		}
		require.Equal(t, []int{1, 500, 500, 199}, sizes)
		require.Equal(t, digest.FromString("1202"), batches[0][0])
		require.Equal(t, digest.FromString("3"), batches[1][0], "the rest oldest first")
		require.Zero(t, slept[0])
		require.Less(t, slept[1], time.Second)
		require.GreaterOrEqual(t, slept[2], 2*time.Minute)
		require.Less(t, slept[2], 4*time.Minute)
	})
}

func sealedBody(key crypto.Signer, body string) []byte {
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, []byte(body), key)
	if err != nil {
		panic(err)
	}
	return envelope
}

// send makes one round, which has to go well.
func (s *site) send(sender *outbox.HubSink) {
	s.t.Helper()
	require.NoError(s.t, sender.Send(context.Background()))
}

func TestAnUnreachableHubDoesNotShowInAPass(t *testing.T) {
	s, h := twoReports(t)
	h.Close()
	s.publish(s.draft(3, map[string]string{"a-x/f": "3"}))
	r := s.once()
	require.Equal(t, Done, r.Verdict)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Contains(t, s.log.String(), "reports stay in the queue")
}

func TestAcknowledgementsByFile(t *testing.T) {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for _, tc := range []struct {
		name    string
		acks    func(h *testHub, ids []digest.Digest) [][]byte
		deleted int
		err     error
	}{
		{"ours", func(h *testHub, ids []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-7", ids)}
		}, 2, nil},
		{"ours among others", func(h *testHub, ids []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-8", ids[:1]), h.ack(h.key, "plant-7", ids[1:])}
		}, 1, nil},
		{"older, of reports that are gone", func(h *testHub, _ []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-7", []digest.Digest{testID(9)})}
		}, 0, nil},
		{"none of ours", func(h *testHub, ids []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-8", ids)}
		}, 0, queue.ErrForeignAck},
		{"a forged one beside ours", func(h *testHub, ids []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-7", ids), h.ack(stranger, "plant-7", ids)}
		}, 0, bundle.ErrUntrusted},
		{"nothing", func(*testHub, []digest.Digest) [][]byte { return nil }, 0, queue.ErrForeignAck},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, h := twoReports(t)
			s.agent(func(a *Agent) {
				got, err := a.Acknowledge(tc.acks(h, waiting(t, a)))
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.deleted, got.Deleted)
				st, err := a.Status()
				require.NoError(t, err)
				require.Equal(t, 2-tc.deleted, st.Queue.Length)
			})
		})
	}
}

// twoReports returns a site with two reports in the queue, none of which was sent, and its hub.
func twoReports(t *testing.T) (*site, *testHub) {
	s, h := newSite(t), newTestHub(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	require.Equal(t, 2, s.once().Status.Queue.Length)
	s.opts.Hub.URL, s.opts.Hub.Key = h.URL, h.key.Public()
	return s, h
}
