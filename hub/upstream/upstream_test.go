package upstream_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
	"github.com/wherry-dev/wherry/hub/upstream"
)

// lower is the envelopes of a hub.
type lower struct {
	mu  sync.Mutex
	all []store.StoredEnvelope
}

func (l *lower) End(context.Context) (store.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0, nil
	}
	return l.all[len(l.all)-1].Position, nil
}

func (l *lower) Await(ctx context.Context, after store.Position) error {
	for {
		if end, _ := l.End(ctx); end > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (l *lower) Envelopes(_ context.Context, after store.Position, uid string, each func(store.StoredEnvelope) error) error {
	l.mu.Lock()
	all := slices.Clone(l.all)
	l.mu.Unlock()
	for _, e := range all {
		if e.Position > after && (uid == "" || e.UID == uid) {
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// site is an agent of the lower hub.
type site struct {
	store.Cluster
	key ed25519.PrivateKey
}

func newSite(t *testing.T, name string) site {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return site{store.Cluster{Identity: storetest.Identity(name), Key: public}, private}
}

// send has the lower hub store reports of the site, as one batch.
func (l *lower) send(t *testing.T, s site, from, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := store.Position(1)
	if len(l.all) > 0 {
		at = l.all[len(l.all)-1].Position + 1
	}
	for seq := from; seq <= until; seq++ {
		order := store.Order{Incarnation: 1, Seq: seq}
		body, err := json.Marshal(storetest.Snapshot(s.Identity, order, storetest.Item("drone", bundle.Compliant)))
		require.NoError(t, err)
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, s.key)
		require.NoError(t, err)
		l.all = append(l.all, store.StoredEnvelope{
			Position: at, UID: s.UID, Envelope: envelope,
			StoredReport: store.StoredReport{ID: bundle.ReportID(body), At: order, ReceivedAt: storetest.Epoch, Kept: true},
		})
	}
}

// upper is a real hub behind a link.
type upper struct {
	*hub.Hub
	clock   *storetest.Clock
	handler http.Handler
	// answer replaces the hub's answer if it returns true.
	answer func(w http.ResponseWriter, r *http.Request) bool
	asked  atomic.Int64
}

func newUpper(t *testing.T, clock *storetest.Clock, o hub.Options) *upper {
	o.Now = clock.Now
	h, err := hub.Open(t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return &upper{Hub: h, clock: clock, handler: h.Handler()}
}

// RoundTrip lets the forwarder's client reach the hub without a network.
func (u *upper) RoundTrip(r *http.Request) (*http.Response, error) {
	u.asked.Add(1)
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	if u.answer == nil || !u.answer(w, r) {
		u.handler.ServeHTTP(w, r)
	}
	if w.Code == 0 {
		return nil, errors.New("connection reset")
	}
	return w.Result(), nil
}

func (u *upper) add(t *testing.T, s site) {
	t.Helper()
	_, err := u.AddCluster(t.Context(), s.Cluster)
	require.NoError(t, err)
}

// newest returns the number of the newest report that the upper hub has of a site.
func (u *upper) newest(t *testing.T, s site) int64 {
	t.Helper()
	r, err := u.Registration(t.Context(), s.UID)
	require.NoError(t, err)
	return r.Newest.Seq
}

// memory is a forwarder's, which can be lost.
type memory struct {
	data []byte
	err  error
}

func (m *memory) Load() ([]byte, error) { return m.data, nil }

func (m *memory) Save(data []byte) error {
	if m.err == nil {
		m.data = data
	}
	return m.err
}

func newForwarder(t *testing.T, from *lower, to *upper, m *memory, log io.Writer) *upstream.Forwarder {
	t.Helper()
	f, err := upstream.New("http://upper.example", to.PublicKey(), from, m, upstream.Options{
		Client: &http.Client{Transport: to}, Now: to.clock.Now, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	return f
}

func TestAForwarderPassesOnWhatIsStored(t *testing.T) {
	from, to, m := &lower{}, newUpper(t, storetest.NewClock(), hub.Options{}), &memory{}
	a, b := newSite(t, "plant-a"), newSite(t, "plant-b")
	to.add(t, a)
	to.add(t, b)
	from.send(t, a, 1, 450) // more than a request has
	from.send(t, b, 1, 3)
	f := newForwarder(t, from, to, m, io.Discard)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 450, to.newest(t, a))
	require.EqualValues(t, 3, to.newest(t, b))
	s := f.Status()
	require.EqualValues(t, 453, s.Forwarded)
	require.EqualValues(t, 2, s.Position)
	require.Zero(t, s.Behind)

	asked := to.asked.Load()
	require.NoError(t, newForwarder(t, from, to, m, io.Discard).Once(t.Context()), "another process")
	require.Equal(t, asked, to.asked.Load(), "nothing is sent again")
	from.send(t, b, 4, 4)
	require.NoError(t, newForwarder(t, from, to, m, io.Discard).Once(t.Context()))
	require.EqualValues(t, 4, to.newest(t, b))
	require.Equal(t, asked+1, to.asked.Load())
}

func TestAPositionIsRememberedOnlyAfterASignedAcknowledgement(t *testing.T) {
	receipt := func(r hubapi.Receipt) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			hubapi.WriteJSON(w, http.StatusOK, r)
			return true
		}
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	from, a := &lower{}, newSite(t, "plant-a")
	from.send(t, a, 1, 3)
	ack := func(key ed25519.PrivateKey, uid string, n int) []byte {
		signed := bundle.Ack{Schema: bundle.ReportSchema, Cluster: uid}
		for _, e := range from.all[:n] {
			signed.Reports = append(signed.Reports, e.ID)
		}
		body, err := json.Marshal(signed)
		require.NoError(t, err)
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeAck, body, key)
		require.NoError(t, err)
		return envelope
	}
	tests := []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
	}{
		{"no hub answers", func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, "<html>"); return true }},
		{"nothing is acknowledged", receipt(hubapi.Receipt{Accepted: 3})},
		{"a stranger acknowledges", receipt(hubapi.Receipt{Accepted: 3, Ack: ack(stranger, a.UID, 3)})},
		{"a relay takes it", receipt(hubapi.Receipt{Relayed: true})},
		{"a proxy forbids it", func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", http.StatusForbidden)
			return true
		}},
		{"a proxy says that it is too large", func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", http.StatusRequestEntityTooLarge)
			return true
		}},
		{"the link breaks", func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) }},
		{"it is busy", func(w http.ResponseWriter, _ *http.Request) bool {
			(&hubapi.Error{Code: hubapi.CodeBusy, Message: "no", RetryAfter: time.Second}).Write(w)
			return true
		}},
		{"its database is away", func(w http.ResponseWriter, _ *http.Request) bool {
			(&hubapi.Error{Code: hubapi.CodeUnavailable, Message: "no"}).Write(w)
			return true
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			to, m := newUpper(t, storetest.NewClock(), hub.Options{}), &memory{}
			to.add(t, a)
			to.answer = func(w http.ResponseWriter, r *http.Request) (done bool) {
				defer func() {
					if recover() != nil {
						w.(*httptest.ResponseRecorder).Code, done = 0, true
					}
				}()
				return tt.answer(w, r)
			}
			f := newForwarder(t, from, to, m, io.Discard)
			require.Error(t, f.Once(t.Context()))
			require.Nil(t, m.data)
			require.NotEmpty(t, f.Status().Failed)

			to.answer = nil
			require.NoError(t, f.Once(t.Context()))
			require.EqualValues(t, 3, to.newest(t, a))
			require.Empty(t, f.Status().Failed)
		})
	}
}

func TestAStateThatCannotBeKeptIsAnError(t *testing.T) {
	from, to, a := &lower{}, newUpper(t, storetest.NewClock(), hub.Options{}), newSite(t, "plant-a")
	to.add(t, a)
	from.send(t, a, 1, 3)
	f := newForwarder(t, from, to, &memory{err: errors.New("disk is full")}, io.Discard)
	require.ErrorContains(t, f.Once(t.Context()), "disk is full")
}

func TestAClusterThatTheUpperHubDoesNotKnowHoldsUpNoOther(t *testing.T) {
	clock := storetest.NewClock()
	from, to, m := &lower{}, newUpper(t, clock, hub.Options{}), &memory{}
	known, unknown := newSite(t, "plant-a"), newSite(t, "plant-b")
	to.add(t, known)
	for seq := int64(1); seq <= 5; seq++ {
		from.send(t, unknown, seq, seq)
		from.send(t, known, seq, seq)
	}
	f := newForwarder(t, from, to, m, io.Discard)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 5, to.newest(t, known))
	require.Equal(t, map[hubapi.Code]int{hubapi.CodeUnknownCluster: 1}, f.Status().Waiting)

	asked := to.asked.Load()
	from.send(t, unknown, 6, 7)
	require.NoError(t, f.Once(t.Context()))
	require.Equal(t, asked, to.asked.Load(), "it is not asked each time")
	clock.Add(time.Minute)
	require.NoError(t, f.Once(t.Context()))
	require.Equal(t, asked+1, to.asked.Load(), "and costs one request when its time has come")

	to.add(t, unknown)
	f = newForwarder(t, from, to, m, io.Discard) // as after a restart
	clock.Add(time.Hour)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 7, to.newest(t, unknown))
	require.Empty(t, f.Status().Waiting)
	require.EqualValues(t, 12, f.Status().Forwarded)
}

func TestWhatIsRefusedForGoodIsRecordedOnceAndHoldsUpNothing(t *testing.T) {
	clock := storetest.NewClock()
	from, to, m := &lower{}, newUpper(t, clock, hub.Options{}), &memory{}
	a, retired, other := newSite(t, "plant-a"), newSite(t, "plant-b"), newSite(t, "plant-c")
	to.add(t, a)
	to.add(t, retired)
	_, err := to.RetireCluster(t.Context(), retired.UID, "sold")
	require.NoError(t, err)
	from.send(t, a, 1, 4)
	from.all[1].Envelope = []byte(`{"no":"envelope"}`)
	from.send(t, retired, 1, 2)
	// Signed by a key that speaks for another cluster.
	from.send(t, other, 1, 1)
	from.all[len(from.all)-1].UID = a.UID
	var log bytes.Buffer
	f := newForwarder(t, from, to, m, &log)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 4, to.newest(t, a))
	s := f.Status()
	require.EqualValues(t, 3, s.RefusedCount)
	var codes []string
	for _, r := range s.Refused {
		codes = append(codes, r.UID+" "+string(r.Code))
	}
	require.ElementsMatch(t, []string{a.UID + " BadReport", retired.UID + " Retired", retired.UID + " Retired"}, codes)
	require.Equal(t, map[hubapi.Code]int{hubapi.CodeUnknownKey: 1}, s.Waiting, "that key may yet be registered")

	for range 10 {
		clock.Add(24 * time.Hour)
		require.NoError(t, f.Once(t.Context()))
	}
	s = f.Status()
	require.Empty(t, s.Waiting, "but not for ever")
	require.Equal(t, hubapi.CodeUnknownKey, s.Refused[len(s.Refused)-1].Code)
	require.Equal(t, 2, strings.Count(log.String(), "reason=Retired"), "%s", &log)
	require.Equal(t, 1, strings.Count(log.String(), "refused for good by the upper hub\" cluster="+a.UID+" report="+string(from.all[len(from.all)-1].ID)), "%s", &log)
}

func TestAQuotaOfTheUpperHubIsKept(t *testing.T) {
	clock := storetest.NewClock()
	from, to, m := &lower{}, newUpper(t, clock, hub.Options{Admission: admission.Options{Quota: admission.Quota{Reports: 500}}}), &memory{}
	a, b := newSite(t, "plant-a"), newSite(t, "plant-b")
	to.add(t, a)
	to.add(t, b)
	from.send(t, a, 1, 1990) // all of one position
	from.send(t, b, 1, 2)
	f := newForwarder(t, from, to, m, io.Discard)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 2, to.newest(t, b), "others go on")
	require.Equal(t, map[hubapi.Code]int{hubapi.CodeOverQuota: 1}, f.Status().Waiting)
	hours := 0
	for ; len(f.Status().Waiting) > 0; hours++ {
		require.Less(t, hours, 10)
		clock.Add(time.Hour)
		require.NoError(t, f.Once(t.Context()))
	}
	require.EqualValues(t, 1990, to.newest(t, a))
	require.EqualValues(t, 1992, f.Status().Forwarded, "nothing is sent twice")
}

func TestARestoredDatabaseIsForwardedAnew(t *testing.T) {
	from, to, m, a := &lower{}, newUpper(t, storetest.NewClock(), hub.Options{}), &memory{}, newSite(t, "plant-a")
	to.add(t, a)
	for seq := range int64(9) {
		from.send(t, a, seq+1, seq+1)
	}
	require.NoError(t, newForwarder(t, from, to, m, io.Discard).Once(t.Context()))
	from.all = from.all[:3]
	for seq := range int64(9) { // which have the positions of others now
		from.send(t, a, seq+21, seq+21)
	}
	f := newForwarder(t, from, to, m, io.Discard)
	require.NoError(t, f.Once(t.Context()))
	require.EqualValues(t, 29, to.newest(t, a))
	require.EqualValues(t, 9+12, f.Status().Forwarded)
}

func TestAnotherUpstreamIsToldEverything(t *testing.T) {
	from, a, m := &lower{}, newSite(t, "plant-a"), &memory{data: []byte(`{"upstream":"http://former.example","position":1}`)}
	to := newUpper(t, storetest.NewClock(), hub.Options{})
	to.add(t, a)
	from.send(t, a, 1, 3)
	require.NoError(t, newForwarder(t, from, to, m, io.Discard).Once(t.Context()))
	require.EqualValues(t, 3, to.newest(t, a))
}

func TestALinkThatIsCutIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storetest.NewClock()
		from, to, a := &lower{}, newUpper(t, clock, hub.Options{}), newSite(t, "plant-a")
		to.add(t, a)
		from.send(t, a, 1, 3)
		cut := true
		to.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			if cut {
				w.(*httptest.ResponseRecorder).Code = 0
			}
			return cut
		}
		var log bytes.Buffer
		f := newForwarder(t, from, to, &memory{}, &log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		require.Less(t, to.asked.Load(), int64(24*60), "it backs off")
		require.Greater(t, to.asked.Load(), int64(24*10))
		require.Equal(t, 1, strings.Count(log.String(), "not forwarded"), "and says it once")
		cut = false
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 3, f.Status().Forwarded)
		from.send(t, a, 4, 4)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 4, to.newest(t, a))
		cancel()
		require.NoError(t, <-ended)
	})
}
