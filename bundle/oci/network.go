package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// Network configures the connections to registries. The zero value uses the environment's proxy, the system's
// certificate authorities and no client certificate.
type Network struct {
	// CAFile is a file of certificate authorities, in PEM, that are trusted beside the system's.
	CAFile string
	// HostCAFiles are files of authorities that are trusted for one host alone, beside the others, by HOST or HOST:PORT.
	HostCAFiles map[string]string
	// CertFile and KeyFile are the files of a client certificate with its chain, and of its key, in PEM. They are
	// read for each new connection, so that they may be renewed while the program runs.
	CertFile, KeyFile string
	// Proxy is the URL of a proxy (http, https or socks5) for all requests. Empty means HTTPS_PROXY, HTTP_PROXY
	// and NO_PROXY of the environment.
	Proxy string
	// NoPostQuantum turns off the key exchanges that resist quantum computers. They add more than a kilobyte each
	// way to each new connection: on the thinnest links, as much as a poll costs otherwise.
	NoPostQuantum bool
	// MaxBandwidth bounds the bytes per second that all connections of the client receive together, including
	// headers and TLS. Zero means no bound.
	MaxBandwidth int64
	// Idle is the time for which an idle connection stays open. Zero means 90 s. Both ends probe an idle connection
	// every 15 s, with some 200 bytes each time, so close one that will not be used again.
	Idle time.Duration
	// Each, if not nil, returns the transport that sends each attempt of a request, around the one that has the connections.
	Each func(connections http.RoundTripper) http.RoundTripper
	// Now is the time by which certificates are judged; nil means time.Now.
	Now func() time.Time
	// Dial, if not nil, makes the connections, in place of the system's way.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// NewHTTPClient returns a client for Options.HTTPClient. The client keeps connections and TLS sessions; a resumed session
// needs no certificates on the wire. So make one client and reuse it for all polls. NewHTTPClient reads the files of n,
// but sends no request.
func NewHTTPClient(n Network) (_ *http.Client, err error) {
	t := newTransport()
	t.IdleConnTimeout = cmp.Or(n.Idle, idleTime)
	t.TLSClientConfig.Time = n.Now
	if n.Dial != nil {
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := n.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return stallingConn{conn}, nil
		}
	}
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
	var base http.RoundTripper = t
	if len(n.HostCAFiles) > 0 {
		if base, err = n.byHost(t); err != nil {
			return nil, err
		}
	}
	if n.Each != nil {
		base = n.Each(base)
	}
	return retrying(base), nil
}

// hostTransports sends requests for some hosts by transports of their own.
type hostTransports struct {
	*http.Transport // for the others
	of              map[authHost]*http.Transport
}

// byHost returns t with a transport of its own for each host that has authorities of its own.
func (n Network) byHost(t *http.Transport) (*hostTransports, error) {
	routes := &hostTransports{t, map[authHost]*http.Transport{}}
	for _, text := range slices.Sorted(maps.Keys(n.HostCAFiles)) {
		host, err := parseAuthHost(text)
		if err != nil {
			return nil, fmt.Errorf("authorities of a host: %w", err)
		}
		files := []string{n.HostCAFiles[text]}
		if n.CAFile != "" {
			files = append(files, n.CAFile)
		}
		own := t.Clone()
		if own.TLSClientConfig.RootCAs, err = readAuthorities(files...); err != nil {
			return nil, err
		}
		routes.of[host] = own
	}
	return routes, nil
}

// RoundTrip sends req by the transport of its host.
func (h *hostTransports) RoundTrip(req *http.Request) (*http.Response, error) {
	if host, err := hostOfURL(req.URL); err == nil && h.of[host] != nil {
		return h.of[host].RoundTrip(req)
	}
	return h.Transport.RoundTrip(req)
}

// CloseIdleConnections closes those of all hosts.
func (h *hostTransports) CloseIdleConnections() {
	h.Transport.CloseIdleConnections()
	for _, t := range h.of {
		t.CloseIdleConnections()
	}
}

func readAuthorities(files ...string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil { // a system without any
		pool = x509.NewCertPool()
	}
	for _, file := range files {
		data, err := diskfile.Read(file, maxSettingBytes)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", file)
		}
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
