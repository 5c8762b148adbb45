package clustermemory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
)

// server answers each request with the next of answers, and records the requests.
type server struct {
	answers []string // CODE BODY
	asked   []string
	bodies  []map[string]any
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body) // a GET has none
	s.bodies = append(s.bodies, body)
	var code int
	var text string
	fmt.Sscanf(s.answers[0], "%d %s", &code, &text)
	w.WriteHeader(code)
	fmt.Fprint(w, s.answers[0][4:])
	s.answers = s.answers[1:]
}

func open(t *testing.T, create bool, answers ...string) (*Store, *server) {
	t.Helper()
	s := &server{answers: answers}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	store, err := Open(&rest.Config{Host: h.URL}, Name{Namespace: "there", Name: "memory"}, create)
	require.NoError(t, err)
	return store, s
}

const (
	secrets = "/api/v1/namespaces/there/secrets"
	leases  = "/apis/coordination.k8s.io/v1/namespaces/there/leases"
)

func TestASecretIsMadeWithItsNamespaceAndThenReplaced(t *testing.T) {
	store, s := open(t, true, `404 {}`, `404 {"message":"namespaces \"there\" not found"}`, `201 {}`,
		`201 {"metadata":{"resourceVersion":"5"}}`, `200 {"metadata":{"resourceVersion":"6"}}`, `409 {"message":"the object has been modified"}`)
	m := store.Memory()
	data, err := m.Load(t.Context())
	require.NoError(t, err)
	require.Nil(t, data)
	require.NoError(t, m.Save(t.Context(), []byte("one")))
	require.NoError(t, m.Save(t.Context(), []byte("two")))
	require.ErrorIs(t, m.Save(t.Context(), []byte("three")), lease.ErrChanged)
	require.Equal(t, []string{
		"GET " + secrets + "/memory", "POST " + secrets, "POST /api/v1/namespaces", "POST " + secrets, "PUT " + secrets + "/memory", "PUT " + secrets + "/memory",
	}, s.asked)
	require.Equal(t, map[string]any{"memory": "dHdv"}, s.bodies[4]["data"])
	require.Equal(t, "5", s.bodies[4]["metadata"].(map[string]any)["resourceVersion"])
	require.Equal(t, "6", s.bodies[5]["metadata"].(map[string]any)["resourceVersion"])
}

func TestSomebodyElsesSecretIsNotNothing(t *testing.T) {
	store, _ := open(t, false, `200 {"metadata":{"resourceVersion":"1"},"data":{"password":"eA=="}}`)
	data, err := store.Memory().Load(t.Context())
	require.NoError(t, err)
	require.NotNil(t, data)
}

func TestWhatAnAPIServerSays(t *testing.T) {
	for _, tc := range []struct {
		answer string
		is     error
	}{
		{`403 {"message":"secrets is forbidden"}`, lease.ErrDenied},
		{`422 {"message":"type: field is immutable"}`, lease.ErrDenied},
		{`413 too large`, lease.ErrDenied},
		{`409 {"message":"modified"}`, lease.ErrChanged},
		{`404 {"message":"gone"}`, lease.ErrChanged},
	} {
		store, _ := open(t, false, tc.answer)
		require.ErrorIs(t, store.Memory().Save(t.Context(), nil), tc.is, tc.answer)
	}
	for _, answer := range []string{`401 {"message":"Unauthorized"}`, `429 {}`, `500 {}`, `503 {}`, `200 <html>`} {
		store, _ := open(t, false, answer)
		err := store.Memory().Save(t.Context(), nil)
		require.Error(t, err, answer)
		require.NotErrorIs(t, err, lease.ErrDenied, answer)
		require.NotErrorIs(t, err, lease.ErrChanged, answer)
	}
}

func TestALeaseReadsAsItWasWritten(t *testing.T) {
	store, s := open(t, false, `404 {}`, `201 {}`)
	l := store.Lease()
	none, err := l.Read(t.Context())
	require.NoError(t, err)
	require.Zero(t, none)
	claim := lease.Claim{Holder: "plant-7", Duration: 3 * time.Minute, Acquired: time.Unix(1, 0).UTC(), Renewed: time.Unix(2, 5000).UTC(), Transitions: 2}
	_, err = l.Write(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"holderIdentity": "plant-7", "leaseDurationSeconds": 180.0, "leaseTransitions": 2.0,
		"acquireTime": "1970-01-01T00:00:01.000000Z", "renewTime": "1970-01-01T00:00:02.000005Z",
	}, s.bodies[1]["spec"])
	body, err := json.Marshal(s.bodies[1])
	require.NoError(t, err)
	s.answers = []string{"200 " + string(body)}
	again, err := l.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, claim, again)
	require.Equal(t, []string{"GET " + leases + "/memory", "POST " + leases, "GET " + leases + "/memory"}, s.asked)
}

func TestStreamsHaveNamesOfTheirOwn(t *testing.T) {
	a := NameFor(bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "drone"})
	b := NameFor(bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "large"})
	require.NotEqual(t, a, b)
	require.Equal(t, Name{Namespace: "wherry-system", Name: "wherry-agent-memory-40d9b023e2"}, a, "for ever")
}
