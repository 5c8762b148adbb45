package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle/regularfile"
)

// Network says how registries are reached. The zero value is right where nothing stands between: the proxy of
// the environment, the system's authorities, no client certificate.
type Network struct {
	// CAFile holds authorities in PEM that are trusted beside the system's.
	CAFile string
	// CertFile and KeyFile are a client certificate with its chain, and its key, in PEM. They are read for each
	// new connection, so that they may be renewed while the program runs.
	CertFile, KeyFile string
	// Proxy is the URL of a proxy (http, https or socks5) for all requests. Empty asks HTTPS_PROXY, HTTP_PROXY
	// and NO_PROXY.
	Proxy string
	// NoPostQuantum leaves the key exchanges out that a quantum computer cannot break. They cost more than a
	// kilobyte each way with each new connection, which on the thinnest links is what a poll costs otherwise.
	NoPostQuantum bool
	// MaxBandwidth bounds how many bytes a second are received, by all connections of the client together and
	// with all that protocols add. Zero is no bound.
	MaxBandwidth int64
	// Idle is how long a connection is kept on which nothing is asked. Zero means 90 s. Both ends probe such a one
	// every 15 s, with some 200 bytes each time, so that one which nobody will use again is better closed.
	Idle time.Duration
}

// NewHTTPClient returns a client for Options.HTTPClient. It keeps TLS sessions, so that a new connection to a host
// that was spoken to before needs no certificates, and connections, for as long as the client is used: make one,
// and not one for each poll. Files are read, but nothing is sent.
func NewHTTPClient(n Network) (*http.Client, error) {
	t := newTransport()
	t.IdleConnTimeout = cmp.Or(n.Idle, idleTime)
	if n.MaxBandwidth > 0 {
		dial, shared := t.DialContext, &bandwidth{rate: n.MaxBandwidth}
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return shared.limit(conn), nil
		}
	}
	if n.Proxy != "" {
		proxy, err := url.Parse(n.Proxy)
		if err != nil || proxy.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
			return nil, errors.New("the proxy is not a URL such as http://proxy.example:3128") // which may hold a password
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	if n.NoPostQuantum {
		t.TLSClientConfig.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384}
	}
	if n.CAFile != "" {
		authorities, err := readAuthorities(n.CAFile)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = authorities
	}
	if (n.CertFile == "") != (n.KeyFile == "") {
		return nil, errors.New("a client certificate takes two files: the certificate and its key")
	}
	if n.CertFile != "" {
		if _, err := n.certificate(nil); err != nil {
			return nil, err
		}
		t.TLSClientConfig.GetClientCertificate = n.certificate
	}
	return retrying(t), nil
}

func readAuthorities(file string) (*x509.CertPool, error) {
	data, err := regularfile.Read(file, maxSettingBytes)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil { // a system without any
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}

func (n Network) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(n.CertFile, n.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with key %s: %w", n.CertFile, n.KeyFile, err)
	}
	return &pair, nil
}
