package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
)

// authority makes certificates for servers, and files of them.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	made int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key = newTLSKey(t)
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	writePEM(t, a.path("ca"), "CERTIFICATE", der, time.Now())
	return a
}

func newTLSKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// serve writes the files "cert" and "key", or one of them, and returns the certificate's name.
func (a *authority) serve(t *testing.T, address string, until time.Time, files ...string) string {
	t.Helper()
	a.made++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.made), Subject: pkix.Name{CommonName: "server " + time.Duration(a.made).String()},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.ParseIP(address)},
	}
	key := newTLSKey(t)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	at := time.Unix(a.made, 0) // renewals are further apart than a test's
	for _, f := range files {
		if f == "key" {
			writePEM(t, a.path(f), "PRIVATE KEY", keyDER, at)
		} else {
			writePEM(t, a.path(f), "CERTIFICATE", der, at)
		}
	}
	return c.Subject.CommonName
}

func writePEM(t *testing.T, path, kind string, der []byte, at time.Time) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	require.NoError(t, os.Chtimes(path, at, at))
}

// start serves with the authority's files and returns a function that asks with the given authority's
// certificate, on a new connection, and returns the name of the certificate that was shown.
func (a *authority) start(t *testing.T, log *bytes.Buffer) func(ca string) (string, error) {
	t.Helper()
	files, err := Open(a.path("cert"), a.path("key"), slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "https://" + l.Addr().String()
	l = tls.NewListener(l, files.Config())
	server := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return func(ca string) (string, error) {
		client, err := oci.NewHTTPClient(oci.Network{CAFile: ca})
		require.NoError(t, err)
		defer client.CloseIdleConnections()
		answer, err := client.Get(url)
		if err != nil {
			return "", err
		}
		return answer.TLS.PeerCertificates[0].Subject.CommonName, answer.Body.Close()
	}
}

func TestARenewedCertificateIsServed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a, hour := newAuthority(t), time.Now().Add(time.Hour)
	first := a.serve(t, "127.0.0.1", hour, "cert", "key")
	ask := a.start(t, &log)
	shown := func(want string) {
		t.Helper()
		got, err := ask(a.path("ca"))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	shown(first)
	a.serve(t, "127.0.0.1", hour, "cert") // its key is not there yet
	shown(first)
	shown(first)
	require.Equal(t, 1, strings.Count(log.String(), "cannot be used"), log.String())
	require.NoError(t, os.Remove(a.path("key")))
	shown(first)
	shown(a.serve(t, "127.0.0.1", hour, "cert", "key"))
	require.Equal(t, 1, strings.Count(log.String(), "certificate read again"), log.String())
	require.NotContains(t, log.String(), "expired")
}

func TestCertificatesThatAgentsRefuseSayWhatToDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		address string
		valid   time.Duration
		hint    string
	}{
		"another authority": {"127.0.0.1", time.Hour, "--tls-ca"},
		"another host":      {"192.0.2.1", time.Hour, "for other names"},
		"expired":           {"127.0.0.1", -time.Hour, "renewed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			a := newAuthority(t)
			a.serve(t, tt.address, time.Now().Add(tt.valid), "cert", "key")
			ask := a.start(t, &log)
			ca := a.path("ca")
			if name == "another authority" {
				ca = newAuthority(t).path("ca")
			}
			for range 2 {
				_, err := ask(ca)
				require.Contains(t, oci.CertificateHint(err), tt.hint, err)
			}
			require.Equal(t, tt.valid < 0, strings.Count(log.String(), "has expired") == 1, log.String())
		})
	}
	require.Empty(t, oci.CertificateHint(os.ErrNotExist))
}
