package hub

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/login"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// An operator's scope holds for what its enrollment tokens register: a cluster brings no label by which it would leave the scope,
// or get into another one's.
func TestAClusterSetsNoLabelThatScopesAskFor(t *testing.T) {
	h, _ := newHub(t)
	_, _, err := h.Access().Create(t.Context(), access.Request{Name: "op", Role: access.Operator, AccessScope: store.AccessScope{Environments: []string{"dev"}, Selector: "gpu!=true,region in (eu, us)"}})
	require.NoError(t, err)
	h.enroller.kept = (&login.Config{Roles: []login.GroupRole{{Group: "cooks", Role: access.Viewer, AccessScope: store.AccessScope{Selector: "kitchen"}}}}).Labels()
	a := newAgent(t, "north-7")
	token := newToken(t, h, func(s *store.TokenScope) { s.Labels = map[string]string{"region": "eu"} })
	_, err = h.Enroll(t.Context(), a.changedRequest(t, token, func(r *bundle.EnrollmentRequest) {
		r.Cluster.Labels = map[string]string{"gpu": "true", "region": "asia", "floor": "2", "kitchen": "yes"}
	}))
	require.NoError(t, err)
	c, err := h.Registered(t.Context(), a.UID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"region": "eu", "floor": "2"}, c.Labels)
}

// newToken makes a token for drones that is good for a day.
func newToken(t testing.TB, h *Hub, change func(*store.TokenScope)) bundle.EnrollToken {
	t.Helper()
	s := store.TokenScope{Type: "drone", ExpiresAt: h.enroller.sign.now().Add(24 * time.Hour)}
	if change != nil {
		change(&s)
	}
	token, err := h.CreateToken(t.Context(), s)
	require.NoError(t, err)
	return token
}

// request asks for the agent's enrollment by a token.
func (a *agent) request(t testing.TB, token bundle.EnrollToken) []byte {
	t.Helper()
	return a.changedRequest(t, token, func(*bundle.EnrollmentRequest) {})
}

// changedRequest is request with another body, signed as it should be.
func (a *agent) changedRequest(t testing.TB, token bundle.EnrollToken, change func(*bundle.EnrollmentRequest)) []byte {
	t.Helper()
	r := a.asks(t)
	r.Token, r.Hub = token.ID(), token.Hub
	change(&r)
	return sealRequest(t, r, a.private, token.Key())
}

func (a *agent) asks(t testing.TB) bundle.EnrollmentRequest {
	t.Helper()
	return bundle.EnrollmentRequest{Cluster: a.report(1, 1).Cluster, Key: pemOf(t, a.Key), IssuedAt: storetest.Epoch}
}

// rotation asks for next's key in the place of a's, from the report after seq on.
func (a *agent) rotation(t testing.TB, next *agent, incarnation, seq int64) []byte {
	t.Helper()
	r := a.asks(t)
	r.Key, r.Former, r.Agent = pemOf(t, next.Key), pemOf(t, a.Key), bundle.ReportAgent{Incarnation: incarnation, Seq: seq}
	return sealRequest(t, r, a.private, next.private)
}

// heir is the same cluster with another key.
func (a *agent) heir(t testing.TB) *agent {
	t.Helper()
	next := newAgent(t, a.Name)
	next.UID = a.UID
	return next
}

func pemOf(t testing.TB, key crypto.PublicKey) string {
	t.Helper()
	pem, err := bundle.MarshalPublicKey(key)
	require.NoError(t, err)
	return string(pem)
}

func sealRequest(t testing.TB, r bundle.EnrollmentRequest, keys ...crypto.Signer) []byte {
	t.Helper()
	envelope, err := bundle.SealEnrollmentRequest(r, keys...)
	require.NoError(t, err)
	return envelope
}

// enroll posts a request and returns the answer, or the error that was given instead.
func enroll(t testing.TB, h *Hub, request []byte) (bundle.Enrollment, hubapi.Error) {
	t.Helper()
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, hubapi.EnrollPath, bytes.NewReader(request)))
	if w.Code != http.StatusOK {
		var e hubapi.Error
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
		require.NotEmpty(t, e.Message)
		return bundle.Enrollment{}, e
	}
	var answer hubapi.Enrolled
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	hub, err := bundle.KeyID(h.PublicKey())
	require.NoError(t, err)
	e, _, err := bundle.OpenEnrollment(answer.Enrollment, hub)
	require.NoError(t, err)
	return e, hubapi.Error{}
}

func onlyToken(t testing.TB, h *Hub) store.Token {
	t.Helper()
	all, err := h.Tokens(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

func TestATokenRegistersOneAgentOnce(t *testing.T) {
	h, c := newHub(t)
	token := newToken(t, h, func(s *store.TokenScope) { s.Labels = map[string]string{"site": "north"} })
	a, b := newAgent(t, "plant-7"), newAgent(t, "plant-8")
	request := a.request(t, token)

	e, refused := enroll(t, h, request)

	require.Empty(t, refused)
	kid, err := bundle.KeyID(a.Key)
	require.NoError(t, err)
	_, id, err := bundle.OpenEnrollmentRequest(request)
	require.NoError(t, err)
	want := a.asks(t).Cluster
	want.Labels = map[string]string{"site": "north"}
	require.Equal(t, bundle.Enrollment{
		Schema: 1, Cluster: want, KeyID: kid, Request: id, HubKey: pemOf(t, h.PublicKey()), IssuedAt: storetest.Epoch,
	}, e)
	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 1)))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, receipt.Accepted)

	// The answer was lost: neither time nor use stand in the way.
	c.Add(48 * time.Hour)
	e, refused = enroll(t, h, a.changedRequest(t, token, func(r *bundle.EnrollmentRequest) { r.IssuedAt = storetest.Epoch.Add(time.Second) }))
	require.Empty(t, refused)
	require.NotEqual(t, id, e.Request)
	require.Equal(t, kid, e.KeyID)

	_, refused = enroll(t, h, b.request(t, token))
	require.Equal(t, hubapi.CodeTokenUsed, refused.Code)
	require.Zero(t, onlyToken(t, h).Left)
	require.Len(t, registered(t, h), 1)
}

func TestEnrollmentsThatAreRefused(t *testing.T) {
	a, other := newAgent(t, "plant-7"), newAgent(t, "plant-8")
	elsewhere, _ := newHub(t)
	tests := []struct {
		name    string
		request func(t *testing.T, h *Hub, c *storetest.Clock) []byte
		want    hubapi.Code
	}{
		{"a stolen token that has expired", func(t *testing.T, h *Hub, c *storetest.Clock) []byte {
			token := newToken(t, h, nil)
			c.Add(25 * time.Hour)
			return a.request(t, token)
		}, hubapi.CodeTokenExpired},
		{"a token that was revoked", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			token := newToken(t, h, nil)
			require.NoError(t, h.RevokeToken(t.Context(), token.ID()))
			return a.request(t, token)
		}, hubapi.CodeTokenRevoked},
		{"a token that was used", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			token := newToken(t, h, nil)
			enroll(t, h, other.request(t, token))
			return a.request(t, token)
		}, hubapi.CodeTokenUsed},
		{"a token for another type", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			return a.request(t, newToken(t, h, func(s *store.TokenScope) { s.Type = "large" }))
		}, hubapi.CodeWrongScope},
		{"a token for another environment", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			return a.request(t, newToken(t, h, func(s *store.TokenScope) { s.Environment = "prod" }))
		}, hubapi.CodeWrongScope},
		{"a token for another ring", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			return a.request(t, newToken(t, h, func(s *store.TokenScope) { s.Ring = "canary" }))
		}, hubapi.CodeWrongScope},
		{"the id of a token, and no token", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			r := a.asks(t)
			r.Token = newToken(t, h, nil).ID()
			return sealRequest(t, r, a.private)
		}, hubapi.CodeBadToken},
		{"a guessed token", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			token, err := bundle.NewEnrollToken(h.PublicKey())
			require.NoError(t, err)
			return a.request(t, token)
		}, hubapi.CodeBadToken},
		{"no token", func(t *testing.T, _ *Hub, _ *storetest.Clock) []byte { return sealRequest(t, a.asks(t), a.private) }, hubapi.CodeBadToken},
		{"a token of another hub", func(t *testing.T, _ *Hub, _ *storetest.Clock) []byte {
			return a.request(t, newToken(t, elsewhere, nil))
		}, hubapi.CodeWrongHub},
		{"a key that did not sign", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			token := newToken(t, h, nil)
			r := a.asks(t)
			r.Token, r.Hub = token.ID(), token.Hub
			return sealRequest(t, r, other.private, token.Key())
		}, hubapi.CodeBadSignature},
		{"the uid of another agent", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			other.register(t, h)
			return a.changedRequest(t, newToken(t, h, nil), func(r *bundle.EnrollmentRequest) { r.Cluster.UID = other.UID })
		}, hubapi.CodeExists},
		{"the name of another agent", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			other.register(t, h)
			return a.changedRequest(t, newToken(t, h, nil), func(r *bundle.EnrollmentRequest) { r.Cluster.Name = other.Name })
		}, hubapi.CodeExists},
		{"a cluster that was retired", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			a.register(t, h)
			_, err := h.RetireCluster(t.Context(), a.UID, "scrapped")
			require.NoError(t, err)
			return a.request(t, newToken(t, h, nil))
		}, hubapi.CodeRetired},
		{"a key that was retired, under another uid", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			a.register(t, h)
			_, err := h.RetireCluster(t.Context(), a.UID, "scrapped")
			require.NoError(t, err)
			return a.changedRequest(t, newToken(t, h, nil), func(r *bundle.EnrollmentRequest) { r.Cluster.UID = "another" })
		}, hubapi.CodeRetired},
		{"a replay of before the registration was ended", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			request := a.request(t, newToken(t, h, func(s *store.TokenScope) { s.Uses = 2 }))
			enroll(t, h, request)
			_, err := h.RemoveCluster(t.Context(), a.UID)
			require.NoError(t, err)
			return request
		}, hubapi.CodeTokenUsed},
		{"a hostile name", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			return a.changedRequest(t, newToken(t, h, nil), func(r *bundle.EnrollmentRequest) { r.Cluster.Name = "\x1b[2J" })
		}, hubapi.CodeBadRequest},
		{"a key of 160,000 bits, which takes seconds to verify with", func(t *testing.T, h *Hub, _ *storetest.Clock) []byte {
			n := new(big.Int).Lsh(big.NewInt(1), 160_000-1)
			return a.changedRequest(t, newToken(t, h, nil), func(r *bundle.EnrollmentRequest) {
				r.Key = pemOf(t, &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
			})
		}, hubapi.CodeBadRequest},
		{"something else", func(*testing.T, *Hub, *storetest.Clock) []byte { return []byte(`{"reports":[]}`) }, hubapi.CodeBadRequest},
		{"too much", func(*testing.T, *Hub, *storetest.Clock) []byte { return make([]byte, bundle.MaxEnrollmentBytes+1) }, hubapi.CodeTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, c := newHub(t)
			request := tt.request(t, h, c)
			before := registered(t, h)
			_, refused := enroll(t, h, request)
			require.Equal(t, tt.want, refused.Code, refused.Message)
			require.Equal(t, before, registered(t, h), "nothing is registered")
		})
	}
}

func TestManyAgentsAtOnceGetNoMoreUsesThanThereAre(t *testing.T) {
	h, _ := newHub(t)
	token := newToken(t, h, func(s *store.TokenScope) { s.Uses = 3 })
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		request := newAgent(t, name).request(t, token)
		all.Go(func() { _, _ = h.Enroll(t.Context(), request) })
		all.Go(func() { _, _ = h.Enroll(t.Context(), request) })
	}
	all.Wait()
	require.Len(t, registered(t, h), 3)
	require.Equal(t, store.TokenUsedUp, onlyToken(t, h).State)
}

func TestTokensThatAreNotAcceptable(t *testing.T) {
	h, _ := newHub(t)
	good := store.TokenScope{Type: "drone", ExpiresAt: storetest.Epoch.Add(time.Hour)}
	for name, change := range map[string]func(*store.TokenScope){
		"no type":         func(s *store.TokenScope) { s.Type = "" },
		"expired already": func(s *store.TokenScope) { s.ExpiresAt = storetest.Epoch },
		"for ever":        func(s *store.TokenScope) { s.ExpiresAt = storetest.Epoch.AddDate(2, 0, 0) },
		"too many uses":   func(s *store.TokenScope) { s.Uses = store.MaxTokenUses + 1 },
		"a hostile label": func(s *store.TokenScope) { s.Labels = map[string]string{"a": "\x07"} },
	} {
		s := good
		change(&s)
		_, err := h.CreateToken(t.Context(), s)
		require.ErrorIs(t, err, store.ErrInvalid, name)
	}
	require.ErrorIs(t, h.RevokeToken(t.Context(), "none"), store.ErrUnknownToken)
}

func TestARotatedKeySpeaksForWhatCameBefore(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(1, 3)))
	b := a.heir(t)
	request := a.rotation(t, b, 1, 5)

	first, refused := enroll(t, h, request)
	require.Empty(t, refused)
	again, refused := enroll(t, h, request)
	require.Empty(t, refused, "the answer was lost")
	require.Equal(t, first, again)

	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 4)), a.seal(t, a.report(1, 6)), b.seal(t, b.report(2, 7)))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 2, receipt.Accepted)
	require.Len(t, receipt.Rejected, 1)
	require.Equal(t, hubapi.CodeKeyReplaced, receipt.Rejected[0].Reason)
	require.Equal(t, hubapi.CodeKeyReplaced, receipt.Identity.Reason)
	status, _, e := post(t, h, a.UID, a.seal(t, a.report(9, 1)))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, hubapi.CodeKeyReplaced, e.Code)

	// The former key changes nothing any more, nor do its old requests.
	_, refused = enroll(t, h, a.rotation(t, a.heir(t), 1, 9))
	require.Equal(t, hubapi.CodeKeyReplaced, refused.Code)
	c := a.heir(t)
	_, refused = enroll(t, h, b.rotation(t, c, 2, 7))
	require.Empty(t, refused)
	_, refused = enroll(t, h, request)
	require.Equal(t, hubapi.CodeKeyReplaced, refused.Code, "a replay")
	_, refused = enroll(t, h, newAgent(t, "plant-7").rotation(t, a.heir(t), 1, 1))
	require.Equal(t, hubapi.CodeUnknownKey, refused.Code, "a stranger")
}

func TestReplacingAKeyByHandLeavesTheFormerNothingToSay(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	b := a.heir(t)
	_, refused := enroll(t, h, a.rotation(t, b, 1, 5))
	require.Empty(t, refused)
	changed, err := h.ReplaceCluster(t.Context(), a.heir(t).Cluster)
	require.NoError(t, err)
	require.True(t, changed)
	status, _, e := post(t, h, a.UID, a.seal(t, a.report(1, 1)), b.seal(t, b.report(1, 6)))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, hubapi.CodeUnknownKey, e.Code)
}

func TestARetiredClusterIsToldSo(t *testing.T) {
	h, _ := newHub(t)
	a, b := newAgent(t, "plant-7"), newAgent(t, "plant-8")
	a.register(t, h)
	b.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(1, 1, storetest.Item("drone", bundle.Compliant))))
	rows := transitions(t, h, a.UID)

	retired, err := h.RetireCluster(t.Context(), "plant-7", "sold in May")
	require.NoError(t, err)
	require.Equal(t, a.UID, retired.UID)
	_, err = h.RetireCluster(t.Context(), "plant-7", "again")
	require.NoError(t, err)

	status, _, e := post(t, h, a.UID, a.seal(t, a.report(1, 2)))
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, hubapi.Error{Code: hubapi.CodeRetired, Message: `cluster "uid-plant-7" was retired on 2026-11-21: sold in May`}, e)
	result, err := h.Import(t.Context(), [][]byte{a.seal(t, a.report(1, 2))}, store.ViaMedia)
	require.NoError(t, err)
	require.Equal(t, hubapi.CodeRetired, result.Rejected[0].Reason)
	require.True(t, result.Rejected[0].Permanent)
	require.Equal(t, "plant-8", onlyCluster(t, h).Name)
	require.Equal(t, rows, transitions(t, h, a.UID))
	all, err := h.RetiredClusters(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "sold in May", all[0].RetiredReason)
	all, err = h.Registrations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)

	// Its name is free, and a person may bring the cluster itself back.
	c := newAgent(t, "plant-9")
	c.Name = "plant-7"
	c.register(t, h)
	a.Name = "plant-7-old"
	a.register(t, h)
	status, _, _ = post(t, h, a.UID, a.seal(t, a.report(1, 3)))
	require.Equal(t, http.StatusOK, status)
}

// A development cluster that is deleted goes by itself, and comes back with the token that registered it.
func TestAnEphemeralClusterGoesAndComesBack(t *testing.T) {
	h, c := newHub(t)
	token := newToken(t, h, func(s *store.TokenScope) { s.EphemeralSeconds = 2 * 60 * 60 })
	a := newAgent(t, "kind-7")
	_, refused := enroll(t, h, a.request(t, token))
	require.Empty(t, refused.Code)
	c.Add(time.Hour)
	status, _, _ := post(t, h, a.UID, a.seal(t, a.report(1, 1)))
	require.Equal(t, http.StatusOK, status)
	c.Add(3 * time.Hour)
	_, err := h.store.RetireSilent(t.Context())
	require.NoError(t, err)
	_, _, e := post(t, h, a.UID, a.seal(t, a.report(1, 2)))
	require.Equal(t, hubapi.CodeRetired, e.Code)
	require.Contains(t, e.Message, "silent for more than 2h")

	_, refused = enroll(t, h, a.request(t, token))
	require.Empty(t, refused, "the same key uses nothing up, of a token with one use")
	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 2)))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, receipt.Accepted)
	require.Zero(t, onlyToken(t, h).Left)

	c.Add(3 * time.Hour)
	_, err = h.store.RetireSilent(t.Context())
	require.NoError(t, err)
	_, refused = enroll(t, h, a.heir(t).request(t, token))
	require.Equal(t, hubapi.CodeTokenUsed, refused.Code, "another key is another use")
	_, refused = enroll(t, h, a.changedRequest(t, token, func(r *bundle.EnrollmentRequest) { r.Cluster.Type = "robot" }))
	require.Equal(t, hubapi.CodeWrongScope, refused.Code)
	c.Add(24 * time.Hour)
	_, refused = enroll(t, h, a.request(t, token))
	require.Equal(t, hubapi.CodeTokenUsed, refused.Code, "it has expired")

	log, err := h.store.AuditLog(t.Context(), 0, 100)
	require.NoError(t, err)
	var lines []string
	for _, e := range log {
		lines = append(lines, e.Actor+": "+e.Action)
	}
	require.Equal(t, []string{
		"local: create enrollment token", a.UID + ": enroll cluster", "hub: retire cluster", a.UID + ": enroll cluster", "hub: retire cluster",
	}, lines)
}

// A hub that serves looks for silent clusters by itself.
func TestAHubThatServesRetiresSilentClusters(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, err := Open(dir, Options{Anonymous: access.Viewer})
		require.NoError(t, err)
		token := newToken(t, h, func(s *store.TokenScope) { s.EphemeralSeconds = 2 * 60 * 60 })
		a := newAgent(t, "kind-7")
		_, err = h.Enroll(t.Context(), a.request(t, token))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			h.retireSilent(ctx)
			close(ended)
		}()
		time.Sleep(2*time.Hour - time.Second)
		require.Len(t, registered(t, h), 1)
		require.Nil(t, registered(t, h)[0].RetiredAt)
		time.Sleep(2 * time.Minute)
		require.NotNil(t, registered(t, h)[0].RetiredAt)
		cancel()
		<-ended
		require.NoError(t, h.Close())
	})
}

// An enrollment token of a restored backup registers nobody until it is accepted.
func TestATokenThatWaitsRegistersNobody(t *testing.T) {
	h, _ := newHub(t)
	token, a := newToken(t, h, nil), newAgent(t, "plant-7")
	_, err := h.store.HoldTokens(t.Context())
	require.NoError(t, err)
	_, refused := enroll(t, h, a.request(t, token))
	require.Equal(t, hubapi.CodeUnavailable, refused.Code)
	n, err := h.AcceptTokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	done, _ := enroll(t, h, a.request(t, token))
	require.Equal(t, a.UID, done.Cluster.UID)
}
