// Package loopback recognizes the names and addresses of this machine. Begin with Is.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Is reports whether host, a name or an address with or without a port, is this machine: localhost, or an address of
// a loopback interface. It makes no DNS query. See RFC 6761, section 6.3.
func Is(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
