package hub

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestRegisteringAgain(t *testing.T) {
	base, other := newAgent(t, "plant-7"), newAgent(t, "plant-8")
	with := func(change func(*store.Cluster)) store.Cluster {
		c := base.Cluster
		change(&c)
		return c
	}
	tests := []struct {
		name    string
		cluster store.Cluster
		changed bool
		want    error
	}{
		{"the same", base.Cluster, false, nil},
		{"the same interval in words", with(func(c *store.Cluster) { c.ExpectedInterval = time.Hour }), false, nil},
		{"another interval", with(func(c *store.Cluster) { c.ExpectedInterval = time.Minute }), false, store.ErrExists},
		{"no platform", with(func(c *store.Cluster) { c.Platform = "" }), false, nil},
		{"another platform", with(func(c *store.Cluster) { c.Platform = "mine" }), false, store.ErrExists},
		{"another key", with(func(c *store.Cluster) { c.Key = other.Key }), false, store.ErrExists},
		{"another type", with(func(c *store.Cluster) { c.Type = "large" }), false, store.ErrExists},
		{"another label", with(func(c *store.Cluster) { c.Labels = map[string]string{"region": "eu"} }), false, store.ErrExists},
		{"the name for another uid", with(func(c *store.Cluster) { c.UID, c.Key = other.UID, other.Key }), false, store.ErrExists},
		{"the key for another uid", with(func(c *store.Cluster) { c.UID, c.Name = other.UID, other.Name }), false, store.ErrExists},
		{"another cluster", other.Cluster, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newHub(t)
			base.register(t, h)
			before, err := h.Registrations(t.Context())
			require.NoError(t, err)

			changed, err := h.AddCluster(t.Context(), tt.cluster)

			require.ErrorIs(t, err, tt.want)
			require.Equal(t, tt.changed, changed)
			if !changed {
				after, err := h.Registrations(t.Context())
				require.NoError(t, err)
				require.Equal(t, before, after)
			}
		})
	}
}

// A roster leaves platform and interval open, and a request the interval. Values that were given stay, in either order.
func TestWhatARegistrationLeavesOpen(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	open := a.Cluster
	open.Platform, open.ExpectedInterval = "", 24*time.Hour
	for _, step := range []struct {
		add      func(context.Context, store.Cluster) (bool, error)
		cluster  store.Cluster
		changed  bool
		platform string
	}{
		{h.AddCluster, open, true, ""},
		{h.AddCluster, a.Cluster, true, "shop"},
		{h.AddCluster, open, false, "shop"},
		{h.ReplaceCluster, open, false, "shop"},
		{h.ReplaceCluster, a.heir(t).Cluster, true, "shop"},
	} {
		changed, err := step.add(t.Context(), step.cluster)
		require.NoError(t, err)
		require.Equal(t, step.changed, changed)
		r, err := h.Registration(t.Context(), "plant-7")
		require.NoError(t, err)
		require.Equal(t, step.platform, r.Platform)
		require.Equal(t, 24*time.Hour, r.ExpectedInterval)
	}
}

func TestClustersThatAreNotAcceptable(t *testing.T) {
	good := newAgent(t, "plant-7").Cluster
	tests := []struct {
		name   string
		change func(*store.Cluster)
	}{
		{"no uid", func(c *store.Cluster) { c.UID = "" }},
		{"a uid with a slash", func(c *store.Cluster) { c.UID = "a/b" }},
		{"a name with an escape sequence", func(c *store.Cluster) { c.Name = "plant\x1b[2J" }},
		{"a name too long", func(c *store.Cluster) { c.Name = strings.Repeat("x", 254) }},
		{"no type", func(c *store.Cluster) { c.Type = "" }},
		{"no environment", func(c *store.Cluster) { c.Environment = "" }},
		{"a ring with a control character", func(c *store.Cluster) { c.Ring = "a\x07" }},
		{"no key", func(c *store.Cluster) { c.Key = nil }},
		{"a negative interval", func(c *store.Cluster) { c.ExpectedInterval = -1 }},
		{"a hostile label", func(c *store.Cluster) { c.Labels = map[string]string{"a": "\u202e"} }},
	}
	h, _ := newHub(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.change(&c)
			_, err := h.AddCluster(t.Context(), c)
			require.ErrorIs(t, err, store.ErrInvalid)
		})
	}
	require.Empty(t, registered(t, h))
}

func TestRemovedClusterIsForgottenButItsHistoryStays(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(1, 3, storetest.Item("drone", bundle.Compliant))))
	rows := transitions(t, h, a.UID)

	removed, err := h.RemoveCluster(t.Context(), a.UID)
	require.NoError(t, err)
	require.Equal(t, "plant-7", removed.Name)
	_, err = h.RemoveCluster(t.Context(), "plant-7")
	require.ErrorIs(t, err, store.ErrUnknownCluster)
	require.Empty(t, clustersOf(t, h, fleet.Query{}))
	require.Empty(t, deploymentsOf(t, h))
	require.Equal(t, rows, transitions(t, h, a.UID))

	a.register(t, h)
	status, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, 2, storetest.Item("drone", bundle.Failed))))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, receipt.Accepted)
	require.Equal(t, []string{"drone-main compliant"}, deploymentsOf(t, h), "the order of reports goes on where it was")
}

func TestAnotherProcessMayRegisterWhileTheHubServes(t *testing.T) {
	dir, c := t.TempDir(), storetest.NewClock()
	serving := openHub(t, dir, c)
	a := newAgent(t, "plant-7")
	status, _, _ := post(t, serving, a.UID, a.seal(t, a.report(1, 1)))
	require.Equal(t, http.StatusForbidden, status)

	other := openHub(t, dir, c)
	a.register(t, other)

	status, receipt, _ := post(t, serving, a.UID, a.seal(t, a.report(1, 1)))
	require.Equal(t, http.StatusOK, status)
	acked(t, other, receipt.Ack)
}

func TestReportKeys(t *testing.T) {
	a := newAgent(t, "plant-7")
	public, err := bundle.MarshalPublicKey(a.Key)
	require.NoError(t, err)
	key, err := ParseReportKey(public)
	require.NoError(t, err)
	require.Equal(t, a.Key, key)

	der, err := x509.MarshalPKCS8PrivateKey(a.private)
	require.NoError(t, err)
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ecPublic, err := bundle.MarshalPublicKey(ec.Public())
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"nothing": nil, "no PEM": []byte("hello"), "a private key": private, "a P-256 key": ecPublic,
		"two keys": append(public, public...), "garbage": []byte("-----BEGIN PUBLIC KEY-----\naGVsbG8=\n-----END PUBLIC KEY-----\n"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseReportKey(data)
			require.ErrorIs(t, err, store.ErrInvalid)
		})
	}
}
