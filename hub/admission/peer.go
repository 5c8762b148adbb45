package admission

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/slots"
)

// Bounds of the connections on which no request is being answered: new ones, and those that wait for the next request.
const (
	maxIdleConnections          = 1024
	maxIdleConnectionsOfAddress = 256
)

// addressOf returns the group that a peer's connections and bodies are counted in: an IPv4 address, or the /64 of an IPv6
// address, which one customer has. It is empty if the peer is a trusted proxy, or unknown.
func (g *Gate) addressOf(remote string) string {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil || g.trusts(peer.Addr()) {
		return ""
	}
	return network(peer.Addr())
}

// ClientOf returns the group that the client of a request is counted in; empty for none. If a trusted proxy passes the request on, the client is the last
// address in X-Forwarded-For that is not such a proxy's; anybody may have invented those before it.
func (g *Gate) ClientOf(r *http.Request) string {
	if direct := g.addressOf(r.RemoteAddr); direct != "" {
		return direct
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, one := range slices.Backward(forwarded) {
		client, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return ""
		}
		if !g.trusts(client) {
			return network(client)
		}
	}
	return ""
}

func (g *Gate) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

func network(a netip.Addr) string {
	a = a.Unmap()
	if a.Is4() {
		return a.String()
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return ""
	}
	return p.String()
}

// idle ends the oldest connections without a request if there are too many.
type idle struct {
	slots slots.Slots

	mu   sync.Mutex
	open map[net.Conn]*slots.Slot
}

func newIdle() *idle {
	return &idle{slots: slots.Slots{PerAddress: maxIdleConnectionsOfAddress, Total: maxIdleConnections}, open: map[net.Conn]*slots.Slot{}}
}

// watch is an http.Server's ConnState. Address is what the connection is counted by.
func (i *idle) watch(address string, c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if held, ok := i.open[c]; ok {
		i.slots.Leave(held)
		delete(i.open, c)
	}
	if state == http.StateNew || state == http.StateIdle {
		// In a goroutine, since closing may send a last word, and others wait for this one.
		i.open[c] = i.slots.Take(address, func() { go c.Close() })
	}
}

// OnlyNamed answers requests for this machine, or for one of the names, by next, and refuses all others. A hub that
// listens on loopback is for this machine; a page of another site, in a browser here, can reach it by a name of its own
// that points to 127.0.0.1.
func OnlyNamed(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostOf(r.Host)
		if oci.IsLoopback(name) || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			next.ServeHTTP(w, r)
			return
		}
		(&hubapi.Error{
			Code:    hubapi.CodeWrongHost,
			Message: "this hub listens on loopback and answers to no such host name; ask for localhost, or start it with --host NAME",
		}).Write(w)
	})
}

// hostOf returns a Host header without port, brackets and final dot.
func hostOf(header string) string {
	name, _, err := net.SplitHostPort(header)
	if err != nil {
		name = header
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), ".")
}
