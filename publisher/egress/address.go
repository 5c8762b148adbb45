package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// RefusedError means that a place that is not own is at an address that it must not have.
type RefusedError struct {
	Host string
	// Private is true for an address of a private network, and false for one of this machine, its link, or no single machine.
	Private bool
}

func (e *RefusedError) Error() string {
	if !e.Private {
		return fmt.Sprintf("host %q is this machine, or on its own link: only the platform's own objects may name it", e.Host)
	}
	return fmt.Sprintf("host %q has a private address: to allow it, add it to the Platform object, as spec.sources.allowPrivate: [%s]", e.Host, e.Host)
}

var errLoginWithoutTLS = errors.New("a login is not sent without TLS: use https")

// kind is how far an address can be seen.
type kind int

const (
	public  kind = iota
	private      // of a network that is not the internet
	nearby       // this machine, its link, or an address of many
)

// Networks beyond those that netip knows, which are not on the internet. See the registries of special-purpose addresses of RFC
// 6890, and RFC 6598 for the addresses between customers and carriers.
var (
	privateNetworks = prefixes("100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "fec0::/10", "100::/64", "2001:db8::/32")
	nearbyNetworks  = prefixes("0.0.0.0/8", "240.0.0.0/4")
	// embedding networks hold an IPv4 address in their last 32 bits: NAT64, and the deprecated form without a prefix.
	embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// kindOf returns the kind of addr, and of an IPv4 address within an IPv6 one that of the inner one.
func kindOf(addr netip.Addr) kind {
	holds := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case !addr.IsValid(), addr.IsLoopback(), addr.IsUnspecified(), addr.IsLinkLocalUnicast(), addr.IsMulticast(), slices.ContainsFunc(nearbyNetworks, holds):
		return nearby
	case addr.IsPrivate(), slices.ContainsFunc(privateNetworks, holds):
		return private
	}
	if bytes := addr.As16(); addr.Is6() {
		switch {
		case slices.ContainsFunc(embedding, holds):
			return kindOf(netip.AddrFrom4([4]byte(bytes[12:])))
		case sixToFour.Contains(addr):
			return kindOf(netip.AddrFrom4([4]byte(bytes[2:6])))
		}
	}
	return public
}

// hostName is a name as DNS has it.
var hostName = lazyregexp.New(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// CheckAllowed returns an error unless entry can be one of allowPrivate: a HOST or HOST:PORT, which may have any address, an
// address, or a network such as 10.20.0.0/16.
func CheckAllowed(entry string) error {
	_, err := parseAllowed(entry)
	return err
}

func parseAllowed(entry string) (allowance, error) {
	if network, err := netip.ParsePrefix(entry); err == nil {
		if network.Bits() == 0 {
			return allowance{}, errors.New("it is every address")
		}
		return allowance{network: network.Masked()}, nil
	}
	if addr, err := netip.ParseAddr(entry); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return allowance{network: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	u, err := url.Parse("//" + strings.ToLower(entry))
	if err != nil || u.Host != strings.ToLower(entry) || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return allowance{}, errNotAllowable
	}
	p := place{canonical(u.Hostname()), u.Port()}
	if _, err := netip.ParseAddr(p.host); err != nil && !hostName.MatchString(p.host) {
		return allowance{}, errNotAllowable
	}
	return allowance{place: p}, nil
}

var errNotAllowable = errors.New("it is neither a host nor a network, such as git.plant-7 or 10.20.0.0/16")

// holds reports whether e allows p to be at addr.
func (e allowance) holds(p place, addr netip.Addr) bool {
	if e.network.IsValid() {
		return e.network.Contains(addr)
	}
	return e.place.host == p.host && (e.place.port == "" || e.place.port == p.port)
}
