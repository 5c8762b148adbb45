package oci

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// IsLoopback reports whether host, a name or an address with or without a port, is this machine: localhost, or an address of
// a loopback interface. It makes no DNS query. See RFC 6761, section 6.3.
func IsLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// LoopbackOrHTTPS reports whether nobody on the network can answer for the URL s: its scheme is https, or http to this machine.
func LoopbackOrHTTPS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && IsLoopback(u.Host))
}
