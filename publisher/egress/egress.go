// Package egress reaches the servers that a platform names, for everything that is fetched: git repositories, charts and
// artifacts. It decides where requests and logins may go.
//
// Begin with [New] and the places that a person, the settings and the platform's own objects name. These are reached whatever
// their address, and a login of ~/.netrc goes to them, over TLS and to that origin alone. All other places come from texts that
// teams write, or from answers of servers: they get no login, and only public addresses are reached, and those that
// [Access.Allow] was called with. An address is judged when the connection is made, after the name was resolved.
// Behind a proxy of the environment, which is the operator's, names are resolved by the proxy, and only literal addresses and
// localhost are judged here.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/publisher/meter"
)

const (
	dialTime = 15 * time.Second
	// idleTime is the time for which an idle connection stays open: an Access ends with its publication.
	idleTime = 15 * time.Second
	// maxIdle is the number of idle connections to one host, of those who ask for several things at once.
	maxIdle = 16
)

// Access is the access to servers of one publication. It is safe for use by several goroutines.
type Access struct {
	mu      sync.Mutex
	own     map[place]bool // hosts with their ports
	origins map[place]bool // those that may get a login: of https URLs
	allowed []allowance
	private bool // all private addresses are allowed

	connections *http.Transport
	proxy       func(*http.Request) (*url.URL, error)
	connecting  func(address string) error // for tests; may be nil
}

// place is a host in lower case and a port. An empty port stands for the usual ones of git and HTTP.
type place struct{ host, port string }

// allowance is an entry of allowPrivate: a network, or a place.
type allowance struct {
	entry   string
	network netip.Prefix
	place   place
}

// New returns an Access for which places are own; see [Access.Own].
func New(places ...string) *Access {
	a := &Access{own: map[place]bool{}, origins: map[place]bool{}, proxy: http.ProxyFromEnvironment}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // a program has replaced it
		base = &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTime}
	}
	a.connections = base.Clone()
	a.connections.Proxy = func(r *http.Request) (*url.URL, error) { return a.proxy(r) }
	a.connections.DialContext = a.Dial
	a.connections.IdleConnTimeout, a.connections.MaxIdleConnsPerHost = idleTime, maxIdle
	a.Own(places...)
	return a
}

// Own adds places that a person, the settings or the platform's own objects name: URLs, host:path as ssh has it,
// oci://HOST/PREFIX, or HOST/PATH of a registry. What names no server is passed over.
func (a *Access) Own(places ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range places {
		p, scheme := placeOf(text)
		if p.host == "" {
			continue
		}
		a.own[p] = true
		if scheme == "https" {
			p.port = cmp.Or(p.port, "443")
			a.origins[p] = true
		}
	}
}

// placeOf returns the server that text names, and the scheme of a URL. The host is empty if it names none.
func placeOf(text string) (p place, scheme string) {
	text, _, _ = strings.Cut(text, "#") // a branch
	if scheme, _, found := strings.Cut(text, "://"); found {
		u, err := url.Parse(text)
		if err != nil || strings.EqualFold(scheme, "file") {
			return place{}, ""
		}
		return place{canonical(u.Hostname()), u.Port()}, strings.ToLower(u.Scheme)
	}
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "oci-") {
		return place{}, ""
	}
	before, _, _ := strings.Cut(text, "/")
	if user, rest, found := strings.Cut(before, "@"); found && !strings.Contains(user, ":") {
		before = rest
	}
	host, port, found := strings.Cut(before, ":")
	if strings.Trim(port, "0123456789") != "" || found && port == "" { // host:path
		port = ""
	} else if !found && !strings.Contains(host, ".") && host != "localhost" { // a folder
		return place{}, ""
	}
	return place{canonical(host), port}, ""
}

func canonical(host string) string {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return host
}

// Allow lets places that are not own have the private addresses that entries name; see [CheckAllowed]. Entries with a mistake
// allow nothing.
func (a *Access) Allow(entries ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		if allowed, err := parseAllowed(e); err == nil {
			allowed.entry = e
			a.allowed = append(a.allowed, allowed)
		}
	}
}

// AllowPrivate lets places that are not own have any private address, as for what a registry that a person named redirects to.
func (a *Access) AllowPrivate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.private = true
}

// Owns reports whether text names a server that is own.
func (a *Access) Owns(text string) bool {
	p, _ := placeOf(text)
	return a.owns(p)
}

// usualPorts are those of a host that is named without a port.
var usualPorts = []string{"", "22", "80", "443"}

func (a *Access) owns(p place) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own[p] || slices.Contains(usualPorts, p.port) && a.own[place{p.host, ""}]
}

// Dial connects to addr, HOST:PORT, unless it is at an address that is not allowed; then the error is a [*RefusedError].
func (a *Access) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p := place{canonical(host), port}
	own := a.owns(p) || ctx.Value(toProxy{}) != nil
	dialer := &net.Dialer{Timeout: dialTime, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if !own {
			if err := a.judge(p, address); err != nil {
				return err
			}
		}
		if a.connecting != nil {
			return a.connecting(address)
		}
		return nil
	}}
	conn, err := dialer.DialContext(ctx, network, addr)
	if h, ok := ctx.Value(handshakeKey{}).(*handshake); ok && err == nil {
		h.stop = context.AfterFunc(h.request, func() { _ = conn.Close() })
	}
	return conn, err
}

// handshake is the one of TLS of a connection that a request has opened. It ends with the request: net/http by itself goes on with it, for
// requests that may come later.
type handshake struct {
	request context.Context
	stop    func() bool // nil until there is a connection
}

type handshakeKey struct{}

// withHandshake returns a context for a request whose handshake ends with ctx.
func withHandshake(ctx context.Context) context.Context {
	h := &handshake{request: ctx}
	return httptrace.WithClientTrace(context.WithValue(ctx, handshakeKey{}, h), &httptrace.ClientTrace{TLSHandshakeDone: func(tls.ConnectionState, error) {
		if h.stop != nil {
			h.stop()
		}
	}})
}

// toProxy is the key of contexts of requests by a proxy, for which connections are made to it.
type toProxy struct{}

// judge returns an error unless a place that is not own may be reached at address, IP:PORT.
func (a *Access) judge(p place, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	addr := at.Addr().Unmap().WithZone("")
	kind := kindOf(addr)
	if kind == public {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.private && kind == private || slices.ContainsFunc(a.allowed, func(e allowance) bool { return e.holds(p, addr) }) {
		return nil
	}
	return &RefusedError{Host: p.host, Private: kind == private}
}

// judgeName is judge for a request that a proxy resolves: of names, only localhost is known.
func (a *Access) judgeName(u *url.URL) error {
	p := place{canonical(u.Hostname()), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])}
	if a.owns(p) {
		return nil
	}
	if p.host == "localhost" || strings.HasSuffix(p.host, ".localhost") {
		return a.judge(p, "127.0.0.1:0")
	}
	if addr, err := netip.ParseAddr(p.host); err == nil {
		return a.judge(p, netip.AddrPortFrom(addr, 0).String())
	}
	return nil
}

// Client returns a client for the URL at and what it redirects to. A login in at, or that of ~/.netrc for an own https origin,
// goes to the origin of at alone, and no longer once a request has led elsewhere.
func (a *Access) Client(at *url.URL) *http.Client {
	t := &loginTransport{access: a, origin: originOf(at)}
	own := a.owns(place{canonical(at.Hostname()), t.origin.Port()})
	if at.User != nil && (at.Scheme == "https" || own) {
		t.user = at.User.Username()
		t.password, _ = at.User.Password()
	} else if at.User == nil {
		t.user, t.password = a.login(at)
	}
	return &http.Client{Transport: t}
}

// login returns the login of ~/.netrc for an own https origin.
func (a *Access) login(at *url.URL) (user, password string) {
	p := place{canonical(at.Hostname()), cmp.Or(at.Port(), "443")}
	a.mu.Lock()
	known := at.Scheme == "https" && a.origins[p]
	a.mu.Unlock()
	if !known {
		return "", ""
	}
	return netrc(at.Hostname())
}

// originOf returns the scheme, host and port of u.
func originOf(u *url.URL) url.URL {
	scheme := strings.ToLower(u.Scheme)
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[scheme])
	return url.URL{Scheme: scheme, Host: net.JoinHostPort(canonical(u.Hostname()), port)}
}

// loginTransport sends the login of one origin to it.
type loginTransport struct {
	access         *Access
	origin         url.URL
	user, password string

	mu   sync.Mutex
	left bool // an answer has led elsewhere, and may lead back to something that nobody has named
}

// RoundTrip sends req with the login, if it is for its origin, and with no other.
func (t *loginTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := req.Clone(req.Context())
	sent.Header.Del("Authorization")
	t.mu.Lock()
	t.left = t.left || originOf(req.URL) != t.origin
	left := t.left
	t.mu.Unlock()
	if !left && t.user+t.password != "" {
		sent.SetBasicAuth(t.user, t.password)
	}
	response, err := t.access.Transport().RoundTrip(sent)
	if response != nil {
		response.Request = req
	}
	return response, err
}

// Transport returns the transport of all requests, which the Meters of their contexts count. It adds no login, and refuses to send
// one without TLS to a server that is not own.
func (a *Access) Transport() http.RoundTripper { return a.guard(a.connections) }

// guard is Transport for other connections, which Dial makes.
func (a *Access) guard(connections http.RoundTripper) http.RoundTripper {
	return meter.Transport(transport{a, connections})
}

type transport struct {
	*Access
	connections http.RoundTripper
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := t.send(req)
	if err != nil && req.Body != nil {
		_ = req.Body.Close()
	}
	return response, err
}

func (t transport) send(req *http.Request) (*http.Response, error) {
	origin := originOf(req.URL)
	if req.Header.Get("Authorization") != "" && origin.Scheme != "https" && !t.owns(place{origin.Hostname(), origin.Port()}) {
		return nil, errLoginWithoutTLS
	}
	proxy, err := t.proxy(req)
	if err != nil {
		return nil, err
	}
	switch {
	case proxy != nil:
		if err := t.judgeName(req.URL); err != nil {
			return nil, err
		}
		req = req.WithContext(context.WithValue(req.Context(), toProxy{}, true))
	case origin.Scheme == "https":
		req = req.WithContext(withHandshake(req.Context()))
	}
	return t.connections.RoundTrip(req)
}
