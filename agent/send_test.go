package agent

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
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
		body, err := io.ReadAll(r.Body)
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
		}, 1, 1, false},
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
				err := newSender(a).sendAll(context.Background())
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
	s.opts.HubKey = nil
	h.answer = func(h *testHub, ids []digest.Digest) (int, any) {
		return 200, map[string]any{"ack": h.ack(h.key, "plant-7", ids)}
	}
	s.agent(func(a *Agent) {
		sender := newSender(a)
		require.NoError(t, sender.sendAll(context.Background()))
		require.NoError(t, sender.sendAll(context.Background()))
		require.Len(t, h.received, 2)
		st, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, 2, st.Queue.Length)
	})
}

func TestAReportTheHubWillNotTakeDoesNotHoldUpTheOthers(t *testing.T) {
	s, h := twoReports(t)
	h.answer = func(_ *testHub, ids []digest.Digest) (int, any) {
		return 200, map[string]any{"rejected": []map[string]any{{"id": ids[0], "reason": "BadReport"}, {"id": ids[1], "reason": "BadReport"}}}
	}
	s.agent(func(a *Agent) {
		sender := newSender(a)
		require.NoError(t, sender.sendAll(context.Background()))
		require.NoError(t, sender.sendAll(context.Background()))
		require.Len(t, h.received, 2, "offered once")
		s.now = s.now.Add(skipTime + 1)
		require.NoError(t, sender.sendAll(context.Background()))
		require.Len(t, h.received, 4, "and again after a time, since nobody signed the refusal")
	})
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
		}, 0, ErrForeignAck},
		{"a forged one beside ours", func(h *testHub, ids []digest.Digest) [][]byte {
			return [][]byte{h.ack(h.key, "plant-7", ids), h.ack(stranger, "plant-7", ids)}
		}, 0, bundle.ErrUntrusted},
		{"nothing", func(*testHub, []digest.Digest) [][]byte { return nil }, 0, ErrForeignAck},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, h := twoReports(t)
			s.agent(func(a *Agent) {
				batch, err := a.state.batch(0, 10, 1<<20, func(digest.Digest) bool { return false })
				require.NoError(t, err)
				got, err := a.Acknowledge(tc.acks(h, []digest.Digest{batch[0].ID, batch[1].ID}))
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
	s.opts.HubURL, s.opts.HubKey = h.URL, h.key.Public()
	return s, h
}
