package oci_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// secured is a server whose authority is in a file; it tells its last connection.
type secured struct {
	*httptest.Server
	ca   string
	last *tls.ConnectionState
}

func secure(t *testing.T, change func(*tls.Config)) *secured {
	t.Helper()
	s := &secured{ca: filepath.Join(t.TempDir(), "ca.pem")}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { s.last = req.TLS }))
	s.TLS = &tls.Config{}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if change != nil {
		change(s.TLS)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	writePEM(t, s.ca, "CERTIFICATE", s.Certificate().Raw)
	return s
}

func writePEM(t *testing.T, name, kind string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
}

func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func TestConnectionsAreResumedAndMayDoWithoutPostQuantumKeys(t *testing.T) {
	t.Parallel()
	s := secure(t, nil)
	for classic, curve := range map[bool]tls.CurveID{false: tls.X25519MLKEM768, true: tls.X25519} {
		client, err := oci.NewHTTPClient(oci.Network{CAFile: s.ca, NoPostQuantum: classic})
		require.NoError(t, err)
		for i := range 3 {
			// A client that does not know yet that its connection has ended learns it from a request that fails.
			require.Eventually(t, func() bool { return get(t, client, s.URL) == nil }, time.Minute, time.Millisecond)
			require.Equal(t, curve, s.last.CurveID)
			require.Equal(t, i > 0, s.last.DidResume)
			require.Equal(t, "h2", s.last.NegotiatedProtocol)
			s.CloseClientConnections()
		}
	}
	client, err := oci.NewHTTPClient(oci.Network{})
	require.NoError(t, err)
	require.ErrorContains(t, get(t, client, s.URL), "certificate signed by unknown authority")
}

func TestAConnectionThatNobodyUsesIsClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	client, err := oci.NewHTTPClient(oci.Network{Idle: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, get(t, client, s.URL))
	<-closed
}

func TestAClientCertificateIsShownAndMayBeRenewed(t *testing.T) {
	t.Parallel()
	s := secure(t, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert })
	dir := t.TempDir()
	n := oci.Network{CAFile: s.ca, CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	_, err := oci.NewHTTPClient(n)
	require.ErrorContains(t, err, "tls.crt")
	for serial := range int64(2) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		own := &x509.Certificate{SerialNumber: big.NewInt(serial + 1), NotAfter: time.Now().Add(time.Hour)}
		cert, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
		require.NoError(t, err)
		encoded, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		writePEM(t, n.CertFile, "CERTIFICATE", cert)
		writePEM(t, n.KeyFile, "PRIVATE KEY", encoded)
		client, err := oci.NewHTTPClient(n)
		require.NoError(t, err)
		require.NoError(t, get(t, client, s.URL))
		require.Equal(t, serial+1, s.last.PeerCertificates[0].SerialNumber.Int64())
	}
	client, err := oci.NewHTTPClient(oci.Network{CAFile: s.ca})
	require.NoError(t, err)
	require.Error(t, get(t, client, s.URL))
}

func TestAProxyIsAskedForAll(t *testing.T) {
	t.Parallel()
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { asked = append(asked, req.RequestURI) }))
	t.Cleanup(proxy.Close)
	client, err := oci.NewHTTPClient(oci.Network{Proxy: proxy.URL})
	require.NoError(t, err)
	require.NoError(t, get(t, client, "http://registry.example/v2/"))
	require.Equal(t, []string{"http://registry.example/v2/"}, asked)
}

func TestANetworkThatCannotBe(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		network oci.Network
		words   string
	}{
		"a proxy without a scheme":   {oci.Network{Proxy: "proxy.example:3128"}, "the proxy is not a URL such as http://"},
		"a proxy with a password":    {oci.Network{Proxy: "http://me:secret@%"}, "the proxy is not a URL such as http://"},
		"authorities that are none":  {oci.Network{CAFile: empty}, "empty holds no certificate in PEM"},
		"authorities that are gone":  {oci.Network{CAFile: empty + "x"}, "no such file"},
		"a certificate without key":  {oci.Network{CertFile: empty}, "takes two files"},
		"a key without certificate":  {oci.Network{KeyFile: empty}, "takes two files"},
		"a certificate that is none": {oci.Network{CertFile: empty, KeyFile: empty}, "client certificate " + empty},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oci.NewHTTPClient(c.network)
			require.ErrorContains(t, err, c.words)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestAuthoritiesOfOneHostAreTrustedForNoOther(t *testing.T) {
	t.Parallel()
	box, registry := secure(t, nil), secure(t, nil) // of one authority
	host := box.Listener.Addr().String()
	client, err := oci.NewHTTPClient(oci.Network{HostCAFiles: map[string]string{host: box.ca}})
	require.NoError(t, err)
	require.NoError(t, get(t, client, box.URL))
	require.Equal(t, "h2", box.last.NegotiatedProtocol)
	require.ErrorContains(t, get(t, client, registry.URL), "certificate signed by unknown authority")

	box.Config.Handler = http.RedirectHandler(registry.URL, http.StatusTemporaryRedirect)
	require.ErrorContains(t, get(t, client, box.URL), "certificate signed by unknown authority", "a redirect leads out of it")

	client, err = oci.NewHTTPClient(oci.Network{CAFile: registry.ca, HostCAFiles: map[string]string{"elsewhere": box.ca}})
	require.NoError(t, err)
	require.NoError(t, get(t, client, registry.URL))
	_, err = oci.NewHTTPClient(oci.Network{HostCAFiles: map[string]string{host: "/nowhere.pem"}})
	require.ErrorContains(t, err, "/nowhere.pem")
}
