package admission

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlots(t *testing.T) {
	var ended []string
	take := func(s *slots, address, name string) *slot {
		return s.take(address, func() { ended = append(ended, name) })
	}
	t.Run("the oldest of an address goes", func(t *testing.T) {
		ended = nil
		s := &slots{perAddress: 2, total: 10}
		for _, name := range []string{"a1", "a2", "b1", "a3", "a4"} {
			take(s, name[:1], name)
		}
		require.Equal(t, []string{"a1", "a2"}, ended)
	})
	t.Run("the address with most makes room", func(t *testing.T) {
		ended = nil
		s := &slots{perAddress: 3, total: 4}
		for _, name := range []string{"b1", "a1", "a2", "c1", "d1", "e1"} {
			take(s, name[:1], name)
		}
		require.Equal(t, []string{"a1", "b1"}, ended)
	})
	t.Run("behind a proxy each is on its own", func(t *testing.T) {
		ended = nil
		s := &slots{perAddress: 1, total: 3}
		for range 3 {
			take(s, "", "proxied")
		}
		require.Empty(t, ended)
		take(s, "", "proxied")
		require.Len(t, ended, 1)
	})
	t.Run("memory", func(t *testing.T) {
		ended = nil
		s := &slots{perAddress: 10, total: 10, bytes: 100}
		stored, greedy1, greedy2, honest := take(s, "s", "stored"), take(s, "g", "g1"), take(s, "g", "g2"), take(s, "h", "honest")
		require.True(t, s.grow(stored, 40))
		require.True(t, s.keep(stored))
		require.True(t, s.grow(greedy1, 30))
		require.True(t, s.grow(greedy2, 20))
		require.True(t, s.grow(honest, 30), "who has most in memory makes room")
		require.Equal(t, []string{"g1"}, ended)
		require.False(t, s.grow(greedy1, 1))
		require.False(t, s.keep(greedy1))
		require.False(t, s.grow(honest, 50), "nothing more can be had: what has arrived is kept")
		for _, one := range []*slot{stored, greedy1, greedy2, honest} {
			s.leave(one)
		}
		require.Zero(t, s.used)
		require.Empty(t, s.held)
	})
}

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
