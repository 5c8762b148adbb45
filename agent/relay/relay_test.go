package relay

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// epoch is when these tests begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func keyOf(n byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)) }

var hubKey, agentKey = keyOf(1), keyOf(2)

// openRelay opens the relay of the state file in dir.
func openRelay(t testing.TB, dir string, limits Limits) (*Relay, *state.DB) {
	t.Helper()
	db, err := state.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
	return New(db, limits), db
}

// report is the envelope of a report of a cluster, padded to a size that does not depend on its seq.
func report(t testing.TB, uid string, seq int, key crypto.Signer) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(bundle.Report{
		Schema: 1, Cluster: bundle.ReportCluster{UID: uid, Name: "name-of-" + uid}, Agent: bundle.ReportAgent{Incarnation: 1, Seq: int64(seq)},
		Kind: bundle.Event, Message: fmt.Sprintf("%04d", seq),
	})
	require.NoError(t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, key)
	require.NoError(t, err)
	return envelope
}

func reports(t testing.TB, uid string, from, to int) (all []json.RawMessage) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		all = append(all, report(t, uid, seq, agentKey))
	}
	return all
}

func idOf(t testing.TB, envelope []byte) digest.Digest {
	t.Helper()
	claim, err := bundle.PeekReport(envelope)
	require.NoError(t, err)
	return claim.ID
}

// ackFor is an acknowledgement of these reports that key has signed.
func ackFor(t testing.TB, key crypto.Signer, uid string, at time.Time, envelopes ...json.RawMessage) Ack {
	t.Helper()
	ack := bundle.Ack{Schema: 1, Cluster: uid, IssuedAt: at}
	for _, e := range envelopes {
		ack.Reports = append(ack.Reports, idOf(t, e))
	}
	body, err := json.Marshal(ack)
	require.NoError(t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeAck, body, key)
	require.NoError(t, err)
	return Ack{ack, envelope}
}

func take(t testing.TB, r *Relay, uid string, now time.Time, envelopes ...json.RawMessage) hubapi.Receipt {
	t.Helper()
	receipt, err := r.Take(uid, envelopes, hubKey.Public(), now)
	require.NoError(t, err)
	require.True(t, receipt.Relayed)
	require.Nil(t, receipt.Ack)
	return receipt
}

// held are the reports of a relay, as UID and the seq of each.
func held(t testing.TB, r *Relay) (all []string) {
	t.Helper()
	require.NoError(t, r.View(func(stored []Stored) error {
		for _, s := range stored {
			envelope, err := s.Envelope()
			require.NoError(t, err)
			require.Equal(t, s.Digest, digest.FromBytes(envelope))
			require.EqualValues(t, s.Size, len(envelope))
			body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, agentKey.Public())
			require.NoError(t, err)
			parsed, err := bundle.ParseReport(body)
			require.NoError(t, err)
			all = append(all, fmt.Sprintf("%s-%d", s.UID, parsed.Agent.Seq))
		}
		return nil
	}))
	return all
}

// requireTotals compares the totals with what is there.
func requireTotals(t testing.TB, r *Relay) Status {
	t.Helper()
	got, err := r.Status()
	require.NoError(t, err)
	var want Status
	require.NoError(t, r.db.View(func(tx *bbolt.Tx) error {
		for _, b := range []struct {
			name  string
			count *int
			bytes *int64
		}{{queueReports, &want.Reports, &want.Bytes}, {queueAcks, &want.Acks, &want.AckBytes}, {queueClusters, &want.Clusters, nil}} {
			if bucket := tx.Bucket([]byte(b.name)); bucket != nil {
				require.NoError(t, bucket.ForEach(func(_, v []byte) error {
					if *b.count++; b.bytes != nil {
						*b.bytes += int64(len(v))
					}
					return nil
				}))
			}
		}
		if index := tx.Bucket([]byte(queueReports + "-index")); index != nil {
			require.Equal(t, want.Reports, index.Stats().KeyN)
		}
		return nil
	}))
	require.Equal(t, want, got)
	return got
}

func TestReportsAreKeptByClusterAndArrivalAndOnceEach(t *testing.T) {
	dir := t.TempDir()
	r, db := openRelay(t, dir, Limits{})
	b, a := reports(t, "b", 1, 2), reports(t, "a", 1, 3)
	require.Equal(t, 2, take(t, r, "b", epoch, b[1], b[0]).Accepted)
	require.Equal(t, 3, take(t, r, "a", epoch.Add(time.Minute), a...).Accepted)
	receipt := take(t, r, "a", epoch.Add(time.Hour), a[2], a[0], a[0])
	require.Equal(t, []int{0, 3}, []int{receipt.Accepted, receipt.Duplicates})
	receipt = take(t, r, "b", epoch, b[0], b[0])
	require.Equal(t, []int{0, 2}, []int{receipt.Accepted, receipt.Duplicates})

	require.NoError(t, db.Close())
	r, _ = openRelay(t, dir, Limits{})
	require.Equal(t, []string{"a-1", "a-2", "a-3", "b-2", "b-1"}, held(t, r))
	status := requireTotals(t, r)
	clusters, err := r.Clusters()
	require.NoError(t, err)
	require.Equal(t, Cluster{"a", "name-of-a", 3, status.Bytes / 5 * 3, epoch.Add(time.Minute), epoch.Add(time.Minute)}, clusters[0])
	require.Equal(t, 2, clusters[1].Reports)

	n, err := r.Drop("a")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = r.Drop("nobody")
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, []string{"b-2", "b-1"}, held(t, r))
	requireTotals(t, r)
}

func TestAForgedSignatureKeepsNoReportOut(t *testing.T) {
	r, _ := openRelay(t, t.TempDir(), Limits{})
	take(t, r, "a", epoch, report(t, "a", 1, keyOf(9)))
	true1 := report(t, "a", 1, agentKey)
	require.Equal(t, 1, take(t, r, "a", epoch, true1).Accepted)
	require.Equal(t, 2, requireTotals(t, r).Reports)
	done, err := r.Acknowledge([]Ack{ackFor(t, hubKey, "a", epoch, true1)})
	require.NoError(t, err)
	require.Equal(t, Acknowledged{Deleted: 2, Kept: 1}, done)
	requireTotals(t, r)
}

func TestNoClusterPushesOutAnother(t *testing.T) {
	size := int64(len(report(t, "a", 1, agentKey)))
	for _, tc := range []struct {
		name   string
		limits Limits
		bring  []json.RawMessage // of a, where 3 of b are
		want   []string          // of a
	}{
		{"reports of a cluster, of which the newest count", Limits{10, 3, 1 << 20, 100, 1 << 20}, reports(t, "a", 1, 5), []string{"a-3", "a-4", "a-5"}},
		{"bytes of a cluster", Limits{10, 100, 4 * size, 100, 1 << 20}, reports(t, "a", 1, 5), []string{"a-2", "a-3", "a-4", "a-5"}},
		{"reports in all", Limits{10, 100, 1 << 20, 5, 1 << 20}, reports(t, "a", 1, 5), []string{"a-4", "a-5"}},
		{"bytes in all", Limits{10, 100, 1 << 20, 100, 4*size + size/2}, reports(t, "a", 1, 5), []string{"a-5"}},
		{"clusters", Limits{1, 100, 1 << 20, 100, 1 << 20}, reports(t, "a", 1, 5), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := openRelay(t, t.TempDir(), tc.limits)
			take(t, r, "b", epoch, reports(t, "b", 1, 3)...)
			for range 2 { // much later, the same are known, and no more fit
				now := epoch.Add(100 * lapsedAfter)
				receipt := take(t, r, "a", now, tc.bring...)
				require.Len(t, receipt.Rejected, len(tc.bring)-len(tc.want))
				for _, x := range receipt.Rejected {
					require.Equal(t, hubapi.CodeUnavailable, x.Reason)
					require.False(t, x.Permanent)
				}
				require.Equal(t, append(append([]string(nil), tc.want...), "b-1", "b-2", "b-3"), held(t, r))
				requireTotals(t, r)
			}
		})
	}
}

// An agent offers what it has each hour. What it has coalesced meanwhile, or what another has sent in its name, makes room.
func TestWhatAnAgentOffersNoMoreMakesRoom(t *testing.T) {
	r, _ := openRelay(t, t.TempDir(), Limits{10, 6, 1 << 20, 100, 1 << 20})
	all := reports(t, "a", 1, 9)
	now := epoch
	take(t, r, "a", now, all[:6]...)
	for range 4 {
		now = now.Add(hubapi.OfferAgain)
		require.Equal(t, 2, take(t, r, "a", now, all[0], all[5]).Duplicates)
	}
	require.Len(t, held(t, r), 6, "nothing goes without need")
	receipt := take(t, r, "a", now, all[6], all[7])
	require.Equal(t, 2, receipt.Accepted)
	require.Equal(t, []string{"a-1", "a-4", "a-5", "a-6", "a-7", "a-8"}, held(t, r), "the longest here went first")
	requireTotals(t, r)
	receipt = take(t, r, "a", now.Add(-1000*time.Hour), all[8])
	require.Len(t, receipt.Rejected, 1, "a clock that was set back makes nothing old")
}

func TestTheFormOfAReportIsAllThatIsChecked(t *testing.T) {
	good := report(t, "a", 1, agentKey)
	many := strings.Replace(string(good), `"signatures":[`, `"signatures":[`+strings.Repeat(`{"keyid":"","sig":""},`, hubapi.MaxSignatures), 1)
	for _, tc := range []struct {
		name     string
		envelope string
		want     hubapi.Code // empty if it is taken
	}{
		{"a report", string(good), ""},
		{"of another cluster", string(report(t, "b", 1, agentKey)), hubapi.CodeWrongCluster},
		{"without a signature", `{"payloadType":"` + bundle.PayloadTypeReport + `","payload":"e30=","signatures":[]}`, hubapi.CodeBadReport},
		{"too many signatures", many, hubapi.CodeBadReport},
		{"an acknowledgement", string(ackFor(t, hubKey, "a", epoch, good).Envelope), hubapi.CodeBadReport},
		{"no JSON inside", `{"payloadType":"` + bundle.PayloadTypeReport + `","payload":"eA==","signatures":[{}]}`, hubapi.CodeBadReport},
		{"no base64", `{"payloadType":"` + bundle.PayloadTypeReport + `","payload":"!","signatures":[{}]}`, hubapi.CodeBadReport},
		{"a number", `1`, hubapi.CodeBadReport},
		{"too large", `"` + strings.Repeat("x", bundle.MaxReportBytes) + `"`, hubapi.CodeTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := openRelay(t, t.TempDir(), Limits{})
			receipt := take(t, r, "a", epoch, json.RawMessage(tc.envelope))
			if tc.want == "" {
				require.Equal(t, 1, receipt.Accepted)
				return
			}
			require.Len(t, receipt.Rejected, 1)
			require.Equal(t, tc.want, receipt.Rejected[0].Reason)
			require.True(t, receipt.Rejected[0].Permanent)
			require.Zero(t, requireTotals(t, r))
		})
	}
}

func TestAcknowledgementsAreHandedToWhoOffersWhatTheyName(t *testing.T) {
	r, _ := openRelay(t, t.TempDir(), Limits{})
	a, b := reports(t, "a", 1, 3), reports(t, "b", 1, 1)
	take(t, r, "a", epoch, a...)
	take(t, r, "b", epoch, b...)
	ack := ackFor(t, hubKey, "a", epoch, a[0], a[1])
	for i := range 3 {
		done, err := r.Acknowledge([]Ack{ack})
		require.NoError(t, err)
		require.Equal(t, []int{2, 0, 0}[i], done.Deleted)
		require.Equal(t, 1, done.Kept, "once each")
		require.Equal(t, []string{"a-3", "b-1"}, held(t, r))
		requireTotals(t, r)
	}
	require.Empty(t, take(t, r, "b", epoch, b...).Acks)
	require.Empty(t, take(t, r, "a", epoch, a[2]).Acks, "it names nothing of these")

	receipt := take(t, r, "a", epoch, a...)
	require.Equal(t, []int{0, 3}, []int{receipt.Accepted, receipt.Duplicates})
	require.Equal(t, []json.RawMessage{ack.Envelope}, receipt.Acks)
	require.Equal(t, []string{"a-3", "b-1"}, held(t, r), "what the hub has is not stored again")

	// With another hub's key pinned, the former acknowledgements count no more.
	receipt, err := r.Take("a", a, keyOf(7).Public(), epoch)
	require.NoError(t, err)
	require.Empty(t, receipt.Acks)
	require.Equal(t, 2, receipt.Accepted)
}

// A process that ends before a commit has answered nobody, and one that ends after it has everything on its disk.
func TestARelayAnswersForWhatIsOnTheDiskAlone(t *testing.T) {
	r, db := openRelay(t, t.TempDir(), Limits{})
	a, b := reports(t, "a", 1, 2), reports(t, "b", 1, 1)
	take(t, r, "b", epoch, b...)
	ended := func(at string, do func()) {
		t.Helper()
		db.Moment = func(moment string) {
			if moment == at {
				panic("the process ends")
			}
		}
		require.PanicsWithValue(t, "the process ends", do)
		db.Moment = nil
		requireTotals(t, r)
	}
	bring := func() { _, _ = r.Take("a", a, hubKey.Public(), epoch) }
	ended("commit: before", bring)
	require.Equal(t, []string{"b-1"}, held(t, r))
	ended("commit: after", bring)
	require.Equal(t, []string{"a-1", "a-2", "b-1"}, held(t, r))
	require.Equal(t, 2, take(t, r, "a", epoch, a...).Duplicates)

	ack := ackFor(t, hubKey, "a", epoch, a...)
	answer := func() { _, _ = r.Acknowledge([]Ack{ack}) }
	ended("commit: before", answer)
	require.Equal(t, []string{"a-1", "a-2", "b-1"}, held(t, r))
	ended("commit: after", answer)
	require.Equal(t, []string{"b-1"}, held(t, r))
	require.Equal(t, []json.RawMessage{ack.Envelope}, take(t, r, "a", epoch, a...).Acks)

	drop := func() { _, _ = r.Drop("b") }
	ended("commit: before", drop)
	require.Equal(t, []string{"b-1"}, held(t, r))
	ended("commit: after", drop)
	require.Empty(t, held(t, r))
}

func TestAcknowledgementsAreBounded(t *testing.T) {
	r, _ := openRelay(t, t.TempDir(), Limits{})
	a := reports(t, "a", 1, maxClusterAcks+3)
	for i, e := range a {
		_, err := r.Acknowledge([]Ack{ackFor(t, hubKey, "a", epoch.Add(time.Duration(i)), e)})
		require.NoError(t, err)
	}
	require.Equal(t, maxClusterAcks, requireTotals(t, r).Acks)
	require.Empty(t, take(t, r, "a", epoch, a[2]).Acks, "the newest stay")
	require.Len(t, take(t, r, "a", epoch, a[3]).Acks, 1)

	var others []Ack
	for i := range maxAcks + 10 {
		uid := fmt.Sprintf("other-%d", i)
		others = append(others, Ack{bundle.Ack{Cluster: uid}, []byte(`{"of":"` + uid + `"}`)})
	}
	_, err := r.Acknowledge(append([]Ack{ackFor(t, hubKey, "a", epoch.Add(time.Hour), a[2])}, others...))
	require.NoError(t, err)
	require.Equal(t, maxAcks, requireTotals(t, r).Acks)
	require.Len(t, take(t, r, "a", epoch, a[2]).Acks, 1, "a cluster that reports here comes before those that do not")
}

// site is a handler with a relay behind it.
func site(t testing.TB, limits Limits) (*Relay, http.Handler) {
	r, _ := openRelay(t, t.TempDir(), limits)
	return r, r.Handler(Options{
		Own: func() string { return "own" }, HubKey: func() crypto.PublicKey { return hubKey.Public() },
		Now: func() time.Time { return epoch }, Log: slog.New(slog.DiscardHandler),
	})
}

func post(h http.Handler, uid, encoding string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/clusters/"+uid+"/reports", body)
	r.Header.Set("Content-Encoding", encoding)
	h.ServeHTTP(w, r)
	return w
}

func bodyOf(t testing.TB, envelopes ...json.RawMessage) []byte {
	t.Helper()
	data, err := json.Marshal(hubapi.Reports{Reports: envelopes})
	require.NoError(t, err)
	return data
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(data)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestTheHandlerSpeaksTheHubsProtocol(t *testing.T) {
	r, h := site(t, Limits{2, 2, 1 << 20, 100, 1 << 20})
	a := reports(t, "a", 1, 3)
	for _, tc := range []struct {
		name, uid, encoding string
		body                []byte
		status              int
		code                hubapi.Code
	}{
		{"reports", "a", "", bodyOf(t, a[0]), 200, ""},
		{"compressed", "a", "gzip", gzipped(t, bodyOf(t, a[1])), 200, ""},
		{"again", "a", "", bodyOf(t, a[0], a[1], a[2]), 200, ""},
		{"full", "a", "", bodyOf(t, a[2]), 503, hubapi.CodeUnavailable},
		{"of no use to try again", "a", "", bodyOf(t, report(t, "b", 1, agentKey)), 200, ""},
		{"its own", "own", "", bodyOf(t, report(t, "own", 1, agentKey)), 403, hubapi.CodeWrongCluster},
		{"no uid", "-", "", bodyOf(t, a[0]), 400, hubapi.CodeBadRequest},
		{"no reports", "a", "", []byte(`{}`), 400, hubapi.CodeBadRequest},
		{"too many", "a", "", bodyOf(t, make([]json.RawMessage, hubapi.MaxReports+1)...), 400, hubapi.CodeBadRequest},
		{"no JSON", "a", "", []byte(`{`), 400, hubapi.CodeBadRequest},
		{"no gzip", "a", "gzip", []byte(`{`), 400, hubapi.CodeBadRequest},
		{"another encoding", "a", "br", []byte(`{}`), 400, hubapi.CodeBadRequest},
		{"too large", "a", "", make([]byte, hubapi.MaxRequestBytes+1), 413, hubapi.CodeTooLarge},
		{"a bomb", "a", "gzip", gzipped(t, make([]byte, hubapi.MaxInflatedBytes+1)), 413, hubapi.CodeTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := post(h, tc.uid, tc.encoding, bytes.NewReader(tc.body))
			require.Equal(t, tc.status, w.Code, w.Body)
			var said hubapi.Error
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &said))
			require.Equal(t, tc.code, said.Code)
			require.Equal(t, tc.status == 503, w.Header().Get("Retry-After") != "")
		})
	}
	require.Equal(t, []string{"a-1", "a-2"}, held(t, r))
}

func TestBodiesThatArriveAreBounded(t *testing.T) {
	_, h := site(t, Limits{})
	begun := make(chan struct{})
	var senders []*io.PipeWriter
	done := make(chan int)
	for range maxBodiesOfAddress {
		from, to := io.Pipe()
		senders = append(senders, to)
		go func() { done <- post(h, "a", "", &announced{from, begun}).Code }()
		<-begun
	}
	w := post(h, "a", "", bytes.NewReader(bodyOf(t, reports(t, "a", 1, 1)...)))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.LessOrEqual(t, 2*maxBodiesOfAddress, maxBodies, "one address leaves others half")
	address, err := hubapi.ReportsURL("http://box", "b")
	require.NoError(t, err)
	other := httptest.NewRequest(http.MethodPost, address, bytes.NewReader(bodyOf(t, reports(t, "b", 1, 1)...)))
	other.RemoteAddr = "192.0.2.99:1234"
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, other)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	for _, to := range senders {
		require.NoError(t, to.Close())
		require.Equal(t, http.StatusBadRequest, <-done)
	}
	require.Equal(t, http.StatusOK, post(h, "a", "", bytes.NewReader(bodyOf(t, reports(t, "a", 1, 1)...))).Code)
}

// announced tells of its first read.
type announced struct {
	io.Reader
	begun chan<- struct{}
}

func (a *announced) Read(p []byte) (int, error) {
	if a.begun != nil {
		a.begun <- struct{}{}
		a.begun = nil
	}
	return a.Reader.Read(p)
}

func FuzzBodies(f *testing.F) {
	f.Add("a", "", bodyOf(f, report(f, "a", 1, agentKey)))
	f.Add("a", "gzip", gzipped(f, bodyOf(f, report(f, "a", 2, agentKey))))
	f.Add("b", "", []byte(`{"reports":[{"payloadType":"application/vnd.wherry.report.v1+json","payload":"e30=","signatures":[{}]}]}`))
	r, h := site(f, Limits{})
	f.Fuzz(func(t *testing.T, uid, encoding string, body []byte) {
		w := httptest.NewRecorder()
		address, err := hubapi.ReportsURL("http://box", uid)
		if err != nil {
			return
		}
		req, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Encoding", encoding)
		h.ServeHTTP(w, req)
		require.NotEqual(t, http.StatusInternalServerError, w.Code)
		for _, s := range heldBy(t, r) {
			require.True(t, bundle.IsClusterUID(s.UID))
		}
	})
}

func heldBy(t testing.TB, r *Relay) (all []Stored) {
	t.Helper()
	require.NoError(t, r.View(func(stored []Stored) error { all = stored; return nil }))
	return all
}
