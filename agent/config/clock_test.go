package config

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// tunnel is a proxy that connects everybody to one address.
func tunnel(t *testing.T, to string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A machine without a battery begins in 1970. What was verified before tells that this time is over.
func TestCertificatesAreJudgedByWhatWasVerifiedIfTheClockIsEarlier(t *testing.T) {
	box, err := serve.Open(serve.Options{Address: "127.0.0.1:0", URL: "https://first-box:5001", StateDir: t.TempDir()})
	require.NoError(t, err)
	listening, err := box.Listen(t.TempDir(), "plant")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); listening.Serve(ctx) }()
	defer func() { cancel(); <-ended }()

	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, box.Served().CA, 0o600))
	key := filepath.Join(t.TempDir(), "cosign.pub")
	pem, err := bundle.MarshalPublicKey(agenttest.NewKey().Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, pem, 0o600))
	c, err := configured(t, "registry: oci://first-box:5001/plant\nplatform: plant\nenvironment: dev\nclusterType: drone\nserve: {address: ':5001', url: 'https://second-box:5001'}\n",
		"--tls-ca", ca, "--key", key, "--proxy", tunnel(t, listening.Addr().String()), "--state-dir", t.TempDir())
	require.NoError(t, err)
	var log strings.Builder
	once := func() (r agent.Result) {
		log.Reset()
		p := Process{Now: func() time.Time { return time.Unix(0, 0) }, Log: slog.New(slog.NewTextHandler(&log, nil))}
		require.NoError(t, c.Run(ctx, p, func(a *agent.Agent) error { r = a.Once(ctx, 0); return nil }))
		return r
	}
	require.Contains(t, once().Error, "certificate has expired or is not yet valid")

	db, err := state.Open(c.StateDir)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return trust.RaiseFloor(tx, 0, time.Now()) }))
	require.NoError(t, db.Close())
	r := once()
	require.Equal(t, agent.ReasonNotFound, r.Status.Reason, "the endpoint answers: %s", r.Error)
	require.Equal(t, 1, strings.Count(log.String(), "certificates are judged by the time of that document"))

	own, err := c.serveOptions(nil).CA()
	require.NoError(t, err)
	e, err := c.endpoint((&clock{now: time.Now}).Now, nil)
	require.NoError(t, err)
	require.Equal(t, string(own), string(e.Served().CA))
	require.True(t, e.Status().CAExpires.After(time.Now().AddDate(3, 0, 0)), "it counts from 2020 or later, whatever the clock says")
}
