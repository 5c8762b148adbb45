package oci

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// ErrAuthHost means that an entry of Options.AuthHosts cannot be parsed.
var ErrAuthHost = errors.New("not HOST or HOST:PORT")

// WithheldError means that a registry named a token service whose host no rule allows, so that no credentials were sent.
// It wraps ErrUnauthorized.
type WithheldError struct {
	// Registry is the host of the registry that the credentials belong to.
	Registry string
	// Host is the token service's host, as HOST or HOST:PORT, in the form that Options.AuthHosts takes.
	Host string
	// Listable is true if adding Host to Options.AuthHosts would allow it.
	Listable bool
	// Recorded is the host that Login recorded for this registry, if it differs from Host; else empty.
	Recorded string

	why string
}

func (e *WithheldError) Error() string {
	s := fmt.Sprintf("credentials for %s were not sent to %s: %s", e.Registry, e.Host, e.why)
	if e.Recorded != "" {
		s += fmt.Sprintf(", and at the last login it named %s", e.Recorded)
	}
	if e.Listable {
		s += fmt.Sprintf("; if the registry's operator confirms that host, allow it with --auth-host %s (in agent.yaml: authHosts)", e.Host)
	}
	return s
}

// Unwrap makes it an ErrUnauthorized.
func (e *WithheldError) Unwrap() error { return ErrUnauthorized }

// authHost is a host that a token service is at.
type authHost struct {
	name string // as it is dialed: in lower case, ASCII, without a trailing dot
	port string
}

// String returns HOST, or HOST:PORT where the port is not that of https.
func (h authHost) String() string {
	if h.port != "443" {
		return net.JoinHostPort(h.name, h.port)
	}
	if strings.Contains(h.name, ":") {
		return "[" + h.name + "]"
	}
	return h.name
}

// hostOfURL returns the host that a request for u is sent to.
func hostOfURL(u *url.URL) (authHost, error) {
	h := authHost{name: strings.TrimSuffix(u.Hostname(), "."), port: u.Port()}
	if strings.ContainsFunc(h.name, func(r rune) bool { return r >= 0x80 }) { // as net/http does
		ascii, err := idna.Lookup.ToASCII(h.name)
		if err != nil {
			return authHost{}, fmt.Errorf("%q is not a host name", u.Host)
		}
		h.name = ascii
	}
	h.name = strings.ToLower(h.name)
	if addr, err := netip.ParseAddr(h.name); err == nil {
		h.name = addr.String()
	}
	if h.name == "" {
		return authHost{}, errors.New("there is no host name")
	}
	if h.port == "" {
		h.port = map[string]string{"http": "80"}[u.Scheme]
	}
	if h.port == "" {
		h.port = "443"
	}
	return h, nil
}

// parseAuthHost reads HOST or HOST:PORT.
func parseAuthHost(s string) (authHost, error) {
	u, err := url.Parse("https://" + s)
	if err != nil || u.Host == "" || u.Host != s || strings.ContainsAny(s, "*,\\ ") || strings.HasSuffix(s, ":") {
		return authHost{}, fmt.Errorf("%q is %w", s, ErrAuthHost)
	}
	h, err := hostOfURL(u)
	if err != nil {
		return authHost{}, fmt.Errorf("%q is %w", s, ErrAuthHost)
	}
	return h, nil
}

// CheckAuthHost returns an error wrapping ErrAuthHost unless host is a valid entry of Options.AuthHosts.
func CheckAuthHost(host string) error {
	_, err := parseAuthHost(host)
	return err
}

// wellKnown are token services under another registered domain than their registries, with the registries' names as
// path.Match has them. Most public registries need no line: theirs is at their own host (ghcr.io, quay.io, gcr.io,
// *.pkg.dev, *.azurecr.io, public.ecr.aws) or in their own domain (registry-1.docker.io and auth.docker.io,
// registry.gitlab.com and gitlab.com).
var wellKnown = []struct{ registries, service string }{
	// Docker Hub under its website's domain, and Docker's hardened images, which take a Docker ID:
	// https://docs.docker.com/dhi/how-to/use/
	{"registry.hub.docker.com", "auth.docker.io"},
	{"dhi.io", "auth.docker.io"},
	// Scaleway, in all regions: https://www.scaleway.com/en/docs/container-registry/
	{"rg.*.scw.cloud", "api.scaleway.com"},
}

func isWellKnown(registry, service authHost) bool {
	for _, w := range wellKnown {
		// The pattern's parts are matched one by one, so that "*" stands for one part of the name.
		ok, err := path.Match(strings.ReplaceAll(w.registries, ".", "/"), strings.ReplaceAll(registry.name, ".", "/"))
		if ok && err == nil && registry.port == "443" && service == (authHost{w.service, "443"}) {
			return true
		}
	}
	return false
}

// shareDomain reports whether both are names in one domain that somebody has registered. Names outside of the public
// DNS (cluster.local, corp.internal) are in none: nobody vouches there that they belong together.
func shareDomain(a, b authHost) bool {
	domain := registeredDomain(a.name)
	return domain != "" && domain == registeredDomain(b.name)
}

func registeredDomain(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	if suffix, icann := publicsuffix.PublicSuffix(name); !icann && !strings.Contains(suffix, ".") {
		return "" // a suffix that the list does not have
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return ""
	}
	return domain
}

// authRules list the token services that may get the credentials of one registry. The registry itself always may.
type authRules struct {
	registry *url.URL
	hosts    []string // Options.AuthHosts
	record   string   // the file of Options.AuthRecord; empty is none
}

// check returns nil if the registry's credentials may be sent to the token service at realm. Listed is true if only
// Options.AuthHosts allows it.
func (r *authRules) check(realm *url.URL) (listed bool, err error) {
	own, err := hostOfURL(r.registry)
	if err != nil {
		return false, err
	}
	host, err := hostOfURL(realm)
	if err != nil {
		return false, err
	}
	withheld := &WithheldError{Registry: r.registry.Host, Host: host.String()}
	secure := realm.Scheme == "https"
	switch {
	case realm.User != nil:
		withheld.why = "the registry names it as its token service with a user name of its own"
		return false, withheld
	case realm.Scheme == r.registry.Scheme && host == own:
		return false, nil // the registry itself, spoken to as the user wishes
	case !secure && !IsLoopback(host.name):
		withheld.why = "the registry names it as its token service, without TLS"
		return false, withheld
	case secure && (host.name == own.name || shareDomain(host, own) || isWellKnown(own, host)):
		return false, nil
	}
	for _, text := range r.hosts {
		allowed, err := parseAuthHost(text)
		if err != nil {
			return false, err
		}
		if allowed == host {
			return true, nil
		}
	}
	recorded, err := recordedAuthHost(r.record, r.registry.Host)
	if err != nil {
		return false, err
	}
	if recorded == host.String() {
		return false, nil
	}
	withheld.why, withheld.Listable, withheld.Recorded = "the registry names it as its token service, and nothing here allows that", true, recorded
	return false, withheld
}
