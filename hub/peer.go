package hub

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Bounds of the connections on which no request is being answered: new ones, and those that wait for the next request.
const (
	maxIdleConnections          = 1024
	maxIdleConnectionsOfAddress = 256
)

// addressOf returns what connections and bodies are counted by: an IPv4 address, or the /64 of an IPv6 address, which
// is what one customer has. It is empty where the peer is a trusted proxy, and where it is unknown.
func (h *Hub) addressOf(remote string) string {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil || h.trusts(peer.Addr()) {
		return ""
	}
	return network(peer.Addr())
}

// clientOf returns addressOf the client of a request. Of one that a trusted proxy passes on, that is the last address
// in X-Forwarded-For that is not such a proxy's; the ones before it may be anybody's invention.
func (h *Hub) clientOf(r *http.Request) string {
	if direct := h.addressOf(r.RemoteAddr); direct != "" {
		return direct
	}
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, one := range slices.Backward(said) {
		client, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return ""
		}
		if !h.trusts(client) {
			return network(client)
		}
	}
	return ""
}

func (h *Hub) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(h.proxies, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
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

// idle ends the oldest of the connections without a request where there are too many.
type idle struct {
	hub   *Hub
	slots slots

	mu   sync.Mutex
	open map[net.Conn]*slot
}

func newIdle(h *Hub) *idle {
	return &idle{hub: h, slots: slots{perAddress: maxIdleConnectionsOfAddress, total: maxIdleConnections}, open: map[net.Conn]*slot{}}
}

// watch is a http.Server's ConnState.
func (i *idle) watch(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if held, ok := i.open[c]; ok {
		i.slots.leave(held)
		delete(i.open, c)
	}
	if state == http.StateNew || state == http.StateIdle {
		// In a goroutine, since closing may send a last word, and others wait for this one.
		i.open[c] = i.slots.take(i.hub.addressOf(c.RemoteAddr().String()), func() { go c.Close() })
	}
}

// onlyNamed answers requests for this machine, or one of the names, alone. What listens on loopback is for this machine, and a
// page of another site, in a browser here, reaches it by a name of its own that it has point to 127.0.0.1.
func onlyNamed(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostOf(r.Host)
		if IsLoopback(name) || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			next.ServeHTTP(w, r)
			return
		}
		writeError(w, hubapi.CodeWrongHost, "this hub listens on loopback and answers to no such host name; ask for localhost, or start it with --host NAME")
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

// IsLoopback reports whether host, a name or an address without a port, is this machine.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
