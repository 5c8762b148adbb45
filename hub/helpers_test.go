package hub

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func newHub(t testing.TB) (*Hub, *storetest.Clock) {
	t.Helper()
	c := storetest.NewClock()
	return openHub(t, t.TempDir(), c), c
}

func openHub(t testing.TB, dir string, c *storetest.Clock) *Hub {
	t.Helper()
	h, err := Open(dir, Options{Now: c.Now, Anonymous: access.Viewer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// agent signs reports of one cluster, as an agent does.
type agent struct {
	store.Cluster
	private ed25519.PrivateKey
}

func newAgent(t testing.TB, name string) *agent {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return &agent{store.Cluster{Identity: storetest.Identity(name), Key: public}, private}
}

func (a *agent) register(t testing.TB, h *Hub) {
	t.Helper()
	changed, err := h.AddCluster(t.Context(), a.Cluster)
	require.NoError(t, err)
	require.True(t, changed)
}

// report has the agent compliant with the given items, one hour after another.
func (a *agent) report(incarnation, seq int64, items ...bundle.Item) bundle.Report {
	return storetest.Snapshot(a.Identity, store.Order{Incarnation: incarnation, Seq: seq}, items...)
}

func (a *agent) seal(t testing.TB, r bundle.Report) []byte {
	t.Helper()
	body, err := json.Marshal(r)
	require.NoError(t, err)
	return a.sealBody(t, body)
}

func (a *agent) sealBody(t testing.TB, body []byte) []byte {
	t.Helper()
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, a.private)
	require.NoError(t, err)
	return envelope
}

func idOf(t testing.TB, r bundle.Report) digest.Digest {
	t.Helper()
	body, err := json.Marshal(r)
	require.NoError(t, err)
	return bundle.ReportID(body)
}

// post sends envelopes as uid and returns the answer's status, and its body as a receipt or an error.
func post(t testing.TB, h *Hub, uid string, envelopes ...[]byte) (int, hubapi.Receipt, hubapi.Error) {
	t.Helper()
	return postBody(t, h, uid, requestOf(t, envelopes...))
}

func requestOf(t testing.TB, envelopes ...[]byte) []byte {
	t.Helper()
	raw := make([]json.RawMessage, 0, len(envelopes))
	for _, e := range envelopes {
		raw = append(raw, e)
	}
	body, err := json.Marshal(map[string]any{"reports": raw})
	require.NoError(t, err)
	return body
}

func postBody(t testing.TB, h *Hub, uid string, body []byte) (int, hubapi.Receipt, hubapi.Error) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/clusters/"+uid+"/reports", bytes.NewReader(body))
	h.Handler().ServeHTTP(w, r)
	var receipt hubapi.Receipt
	var e hubapi.Error
	if w.Code == http.StatusOK {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &receipt), w.Body)
	} else if w.Body.Len() > 0 {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e), w.Body)
		require.NotEmpty(t, e.Message)
	}
	return w.Code, receipt, e
}

// postTo is post for goroutines other than the test's: it returns the body, whatever it is.
func postTo(h *Hub, uid string, body []byte) []byte {
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/clusters/"+uid+"/reports", bytes.NewReader(body)))
	return w.Body.Bytes()
}

// acked opens a receipt's acknowledgement as an agent that has pinned the hub's key does.
func acked(t testing.TB, h *Hub, envelope []byte) bundle.Ack {
	t.Helper()
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, envelope, h.PublicKey())
	require.NoError(t, err)
	ack, err := bundle.ParseAck(body)
	require.NoError(t, err)
	return ack
}

// storedReports returns the number of reports that are stored.
func storedReports(t testing.TB, h *Hub) (n int) {
	t.Helper()
	for _, r := range registered(t, h) {
		ids, err := h.store.From(t.Context(), r.UID, store.Order{}, 1<<20)
		require.NoError(t, err)
		n += len(ids)
	}
	return n
}

// transitions returns the length of a cluster's history, of one assignment or of all.
func transitions(t testing.TB, h *Hub, uid string, assignments ...string) (n int) {
	t.Helper()
	all, err := h.store.History(t.Context(), uid)
	require.NoError(t, err)
	for _, c := range all {
		if len(assignments) == 0 || slices.Contains(assignments, c.Assignment) {
			n++
		}
	}
	return n
}

// registered returns all clusters, registered and retired, with their keys.
func registered(t testing.TB, h *Hub) []store.Registration {
	t.Helper()
	all, err := h.Registrations(t.Context())
	require.NoError(t, err)
	retired, err := h.RetiredClusters(t.Context())
	require.NoError(t, err)
	return append(all, retired...)
}

// clustersOf returns the clusters that a query chooses.
func clustersOf(t testing.TB, h *Hub, q fleet.Query) (all []store.ClusterStatus) {
	t.Helper()
	v, err := h.Answers(t.Context(), store.AccessScope{})
	require.NoError(t, err)
	list, err := v.Clusters(t.Context(), q)
	require.NoError(t, err)
	for _, c := range list.Clusters {
		all = append(all, c.ClusterStatus)
	}
	return all
}

// onlyCluster returns the one cluster that the hub shows.
func onlyCluster(t testing.TB, h *Hub) store.ClusterStatus {
	t.Helper()
	all := clustersOf(t, h, fleet.Query{})
	require.Len(t, all, 1)
	return all[0]
}

// deployed returns the deployments that a query chooses.
func deployed(t testing.TB, h *Hub, q fleet.Query) (all []store.DeploymentStatus) {
	t.Helper()
	v, err := h.Answers(t.Context(), store.AccessScope{})
	require.NoError(t, err)
	list, err := v.Deployments(t.Context(), q)
	require.NoError(t, err)
	for _, d := range list.Deployments {
		all = append(all, d.DeploymentStatus)
	}
	return all
}

// deploymentsOf returns "assignment state" of each deployment that the hub shows.
func deploymentsOf(t testing.TB, h *Hub) (all []string) {
	t.Helper()
	for _, d := range deployed(t, h, fleet.Query{}) {
		all = append(all, fmt.Sprintf("%s %s", d.Assignment, d.ShownState()))
	}
	return all
}
