//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// walledHost is the registry's, of a network that is set aside for documentation: no host has it, and only the
// proxy knows where it is.
const walledHost = "192.0.2.7"

const proxyPassword = "open-sesame"

// walled is a registry behind a proxy that asks for a password. It asks for a client certificate itself.
type walled struct {
	*shelf
	proxy   *httptest.Server
	tunnels atomic.Int64 // that the proxy has made
}

func newWalled(t *testing.T) *walled {
	t.Helper()
	w := &walled{shelf: newShelf(t)}
	clients := x509.NewCertPool()
	clients.AddCert(w.certificate("client"))
	w.certificate("stranger")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, err := wire.ServeKnown(l, net.ParseIP(walledHost), w.handler, clients)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	w.write("authority.pem", server.Authority)
	w.proxy = httptest.NewServer(w.tunnel(l.Addr().String()))
	t.Cleanup(w.proxy.Close)
	return w
}

// certificate writes one that has signed itself, and its key, to NAME.crt and NAME.key.
func (w *walled) certificate(name string) *x509.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	require.NoError(w.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(w.t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(w.t, err)
	w.write(name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	w.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return cert
}

// tunnel is a proxy that knows one host, and one user.
func (w *walled) tunnel(target string) http.HandlerFunc {
	return func(answer http.ResponseWriter, req *http.Request) {
		switch known := "Basic " + base64.StdEncoding.EncodeToString([]byte("plant-7:"+proxyPassword)); {
		case req.Header.Get("Proxy-Authorization") != known:
			answer.Header().Set("Proxy-Authenticate", `Basic realm="plant"`)
			answer.WriteHeader(http.StatusProxyAuthRequired)
			return
		case req.Method != http.MethodConnect || req.Host != walledHost+":443":
			answer.WriteHeader(http.StatusForbidden)
			return
		}
		w.tunnels.Add(1)
		far, err := net.Dial("tcp", target)
		if err != nil {
			answer.WriteHeader(http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, _, err := answer.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(far, near); far.Close() }()
		_, _ = io.Copy(near, far)
	}
}

// agent runs wherry-agent as a site would that has such a proxy.
func (w *walled) agent(command, password, certificate string, more ...string) ran {
	w.t.Helper()
	proxy := strings.Replace(w.proxy.URL, "http://", "http://plant-7:"+password+"@", 1)
	p := w.place("oci://" + walledHost + "/edge")
	args := append([]string{command}, p.flags()...)
	args = append(args, "--proxy", proxy, "--tls-ca", w.path("authority.pem"))
	if certificate != "" {
		args = append(args, "--tls-cert", w.path(certificate+".crt"), "--tls-key", w.path(certificate+".key"))
	}
	return program(w.t, w.dir, "wherry-agent", append(args, more...)...)
}

// A site may have a proxy with a password in between, and a registry that requires client certificates.
func TestAnAgentBehindAProxyShowsItsCertificate(t *testing.T) {
	t.Parallel()
	w := newWalled(t)
	w.publish("first")
	for _, c := range []struct{ name, password, certificate, says string }{
		{"without a certificate", proxyPassword, "", "certificate required"},
		{"with another's certificate", proxyPassword, "stranger", "bad certificate|unknown certificate authority"},
		{"with another password", "mistaken", "client", "Proxy Authentication Required"},
	} {
		var r ran
		// A server that closes the connection during a request may lose its error message.
		for tries := 0; tries < 10 && !regexp.MustCompile(c.says).MatchString(r.stderr+r.stdout); tries++ {
			r = w.agent("once", c.password, c.certificate)
			require.Equal(t, 3, r.code, c.name)
		}
		require.Regexp(t, c.says, r.stderr+r.stdout, c.name)
		require.NotContains(t, r.stderr+r.stdout, c.password, c.name)
		require.NoDirExists(t, w.path("state-applied"), c.name)
	}
	for _, content := range []string{"first", "second"} {
		w.publish(content)
		before := w.tunnels.Load()
		r := w.agent("once", proxyPassword, "client")
		require.Zero(t, r.code, r.stderr)
		require.NotContains(t, r.stderr+r.stdout, proxyPassword)
		w.requireApplied(content)
		require.Equal(t, int64(1), w.tunnels.Load()-before, "one connection is enough")
	}
	r := w.agent("doctor", proxyPassword, "client", "-o", "json")
	require.Zero(t, r.code, r.stderr)
	require.NotContains(t, r.stderr+r.stdout, proxyPassword)
}
