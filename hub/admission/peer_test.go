package admission

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesThatBodiesAreCountedBy(t *testing.T) {
	g := New(Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}})
	for _, tt := range []struct{ name, remote, forwarded, want string }{
		{"IPv4", "192.0.2.7:80", "", "192.0.2.7"},
		{"IPv4 in IPv6", "[::ffff:192.0.2.7]:80", "", "192.0.2.7"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:80", "", "2001:db8:1:2::/64"},
		{"not a proxy", "192.0.2.7:80", "198.51.100.1", "192.0.2.7"},
		{"a proxy that says nothing", "10.0.0.1:80", "", ""},
		{"behind a proxy", "10.0.0.1:80", "198.51.100.1", "198.51.100.1"},
		{"behind two", "[fd00::1]:80", "198.51.100.1, 10.1.1.1", "198.51.100.1"},
		{"an invention before it", "10.0.0.1:80", "203.0.113.9, 198.51.100.1", "198.51.100.1"},
		{"nonsense", "10.0.0.1:80", "198.51.100.1, unknown", ""},
		{"no address", "@", "", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.remote
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		require.Equal(t, tt.want, g.ClientOf(r), tt.name)
	}
}
