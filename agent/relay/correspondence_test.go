package relay

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// correspondence is the agents of a site, their relay, media, and a hub. Media are lost, repeated and mixed up, others send in the
// agents' names, and the relay's disk is lost or set back.
type correspondence struct {
	testing.TB
	random *rand.Rand
	now    time.Time

	agents []*member
	dir    string // of the relay
	relay  *Relay
	db     *state.DB
	backup []byte

	stored  map[digest.Digest]bool // at the hub, for good
	reports [][][]byte             // files on their way, and any that were not thrown away
	acks    [][]Ack
}

// member is an agent of the site.
type member struct {
	uid  string
	box  *outbox.Outbox
	db   *state.DB
	sink *outbox.HubSink
	made []digest.Digest
}

func newCorrespondence(t testing.TB, seed uint64, limits Limits) *correspondence {
	w := &correspondence{TB: t, random: rand.New(rand.NewPCG(seed, 0)), now: epoch, dir: t.TempDir(), stored: map[digest.Digest]bool{}}
	w.relay, w.db = openRelay(t, w.dir, limits)
	for i := range 3 {
		m := &member{uid: fmt.Sprintf("agent-%d", i)}
		db, err := state.Open(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
		m.db, m.box = db, outbox.New(db)
		m.sink = &outbox.HubSink{
			Outbox: m.box, Client: &http.Client{Transport: w},
			Sender: outbox.Sender{
				UID: func() string { return m.uid }, Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
				Hub: func() queue.Hub { return queue.Hub{URL: "https://first-box:5001", Key: hubKey.Public()} },
			},
			First: func(context.Context) error { return nil },
			Heard: func(*hubapi.IdentityHint) error { return nil },
			Sleep: func(context.Context, time.Duration) error { return nil },
		}
		w.agents = append(w.agents, m)
	}
	return w
}

// RoundTrip is the site's network.
func (w *correspondence) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	w.relay.Handler(Options{
		Own: func() string { return "own" }, HubKey: func() crypto.PublicKey { return hubKey.Public() },
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}).ServeHTTP(answer, r)
	if w.random.IntN(8) == 0 {
		return nil, errors.New("the answer is lost")
	}
	return answer.Result(), nil
}

func (w *correspondence) any() *member { return w.agents[w.random.IntN(len(w.agents))] }

// report makes one that tells of a failure of its own, so that it never becomes superfluous.
func (w *correspondence) report(m *member) {
	r := bundle.Report{
		Schema: 1, Cluster: bundle.ReportCluster{UID: m.uid}, Agent: bundle.ReportAgent{Incarnation: 1, Seq: int64(len(m.made) + 1)}, Kind: bundle.Event,
		Items: []bundle.Item{{Assignment: fmt.Sprint(len(m.made)), State: bundle.Failed, Reason: "x"}},
	}
	body, err := json.Marshal(r)
	require.NoError(w, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, agentKey)
	require.NoError(w, err)
	require.NoError(w, m.db.Update(func(tx *bbolt.Tx) error {
		return outbox.Append(tx, outbox.Entry{Report: r, Body: body, Envelope: envelope, Last: outbox.Last{Seq: r.Agent.Seq, At: w.now}}, outbox.Limits{})
	}))
	m.made = append(m.made, bundle.ReportID(body))
}

func (w *correspondence) send(m *member) { _ = m.sink.Send(w.Context()) }

// forge has a stranger send in an agent's name.
func (w *correspondence) forge() {
	m := w.any()
	body := bodyOf(w, report(w, m.uid, 1000+w.random.IntN(1000), keyOf(9)))
	r := httptest.NewRequest(http.MethodPost, "/v1/clusters/"+m.uid+"/reports", bytes.NewReader(body))
	if answer, err := w.RoundTrip(r); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
	}
}

func (w *correspondence) export() {
	var file [][]byte
	require.NoError(w, w.relay.View(func(all []Stored) error {
		for _, s := range all {
			envelope, err := s.Envelope()
			require.NoError(w, err)
			file = append(file, bytes.Clone(envelope))
		}
		return nil
	}))
	w.reports = append(w.reports, file)
}

// visit has any file arrive at the hub, which answers for what it stored.
func (w *correspondence) visit(file [][]byte) {
	named := map[string][]digest.Digest{}
	for _, envelope := range file {
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, agentKey.Public())
		if err != nil {
			continue // a stranger's
		}
		r, err := bundle.ParseReport(body)
		require.NoError(w, err)
		w.stored[bundle.ReportID(body)] = true
		named[r.Cluster.UID] = append(named[r.Cluster.UID], bundle.ReportID(body))
	}
	var acks []Ack
	for _, m := range w.agents { // in a fixed order, so that a seed is a history
		ids := named[m.uid]
		if len(ids) == 0 {
			continue
		}
		ack := bundle.Ack{Schema: 1, Cluster: m.uid, IssuedAt: w.now, Reports: ids}
		body, err := json.Marshal(ack)
		require.NoError(w, err)
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeAck, body, hubKey)
		require.NoError(w, err)
		acks = append(acks, Ack{ack, envelope})
	}
	w.acks = append(w.acks, acks)
}

func (w *correspondence) apply(acks []Ack) {
	_, err := w.relay.Acknowledge(acks)
	require.NoError(w, err)
}

// reopen ends the relay, changes its disk, and starts it again.
func (w *correspondence) reopen(change func(path string)) {
	require.NoError(w, w.db.Close())
	change(filepath.Join(w.dir, state.File))
	w.relay, w.db = openRelay(w, w.dir, w.relay.limits)
}

func (w *correspondence) waiting(m *member) map[digest.Digest]bool {
	envelopes, err := m.box.Reports()
	require.NoError(w, err)
	ids := map[digest.Digest]bool{}
	for _, e := range envelopes {
		ids[idOf(w, e)] = true
	}
	return ids
}

// check finds every report with its agent or at the hub.
func (w *correspondence) check() {
	for _, m := range w.agents {
		left := w.waiting(m)
		for _, id := range m.made {
			require.True(w, left[id] || w.stored[id], "a report of %s is lost", m.uid)
		}
	}
	requireTotals(w, w.relay)
}

func (w *correspondence) step() {
	w.now = w.now.Add(time.Duration(w.random.IntN(60)) * time.Minute)
	switch w.random.IntN(14) {
	case 0, 1, 2:
		w.report(w.any())
	case 3, 4, 5, 6:
		w.send(w.any())
	case 7, 8:
		w.export()
	case 9, 10:
		if n := len(w.reports); n > 0 { // any that there ever was, in any order and often
			w.visit(w.reports[w.random.IntN(n)])
		}
	case 11:
		if n := len(w.acks); n > 0 {
			w.apply(w.acks[w.random.IntN(n)])
		}
	case 12:
		w.forge()
	default:
		w.mishap()
	}
}

func (w *correspondence) mishap() {
	switch w.random.IntN(4) {
	case 0:
		w.reopen(func(path string) { require.NoError(w, os.Remove(path)) })
	case 1:
		w.reopen(func(path string) {
			var err error
			w.backup, err = os.ReadFile(path)
			require.NoError(w, err)
		})
	case 2:
		if w.backup != nil {
			w.reopen(func(path string) { require.NoError(w, os.WriteFile(path, w.backup, 0o600)) })
		}
	case 3: // somebody tidies up the stranger's, and what else there is
		_, err := w.relay.Drop(w.any().uid)
		require.NoError(w, err)
	}
}

func TestNoReportIsLostHoweverMediaTravel(t *testing.T) {
	for seed := uint64(0); seed < 12; seed += uint64(sweeptest.Every(3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			limits := Limits{}
			if seed%2 == 1 {
				limits = Limits{Clusters: 2, ClusterReports: 4, ClusterBytes: 1 << 20, Reports: 7, Bytes: 1 << 20}
			}
			w := newCorrespondence(t, seed, limits)
			for range 150 {
				w.step()
				w.check()
			}
			// From here on people do as they should, and all queues end empty.
			for trip := 0; ; trip++ {
				require.Less(t, trip, 100)
				left := 0
				for _, m := range w.agents {
					for range 3 {
						w.now = w.now.Add(2 * hubapi.OfferAgain)
						w.send(m)
					}
					left += len(w.waiting(m))
				}
				w.check()
				if left == 0 {
					break
				}
				w.export()
				w.visit(w.reports[len(w.reports)-1])
				w.apply(w.acks[len(w.acks)-1])
				for _, c := range w.clusters() { // what is the stranger's alone is cleared away
					if len(w.waiting(w.agent(c.UID))) == 0 {
						_, err := w.relay.Drop(c.UID)
						require.NoError(t, err)
					}
				}
			}
		})
	}
}

func (w *correspondence) clusters() []Cluster {
	all, err := w.relay.Clusters()
	require.NoError(w, err)
	return all
}

func (w *correspondence) agent(uid string) *member {
	for _, m := range w.agents {
		if m.uid == uid {
			return m
		}
	}
	w.Fatalf("no agent %s", uid)
	return nil
}
