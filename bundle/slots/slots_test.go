package slots

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlots(t *testing.T) {
	var ended []string
	take := func(s *Slots, address, name string) *Slot {
		return s.Take(address, func() { ended = append(ended, name) })
	}
	t.Run("the oldest of an address goes", func(t *testing.T) {
		ended = nil
		s := &Slots{PerAddress: 2, Total: 10}
		for _, name := range []string{"a1", "a2", "b1", "a3", "a4"} {
			take(s, name[:1], name)
		}
		require.Equal(t, []string{"a1", "a2"}, ended)
	})
	t.Run("the address with most makes room", func(t *testing.T) {
		ended = nil
		s := &Slots{PerAddress: 3, Total: 4}
		for _, name := range []string{"b1", "a1", "a2", "c1", "d1", "e1"} {
			take(s, name[:1], name)
		}
		require.Equal(t, []string{"a1", "b1"}, ended)
	})
	t.Run("behind a proxy each is on its own", func(t *testing.T) {
		ended = nil
		s := &Slots{PerAddress: 1, Total: 3}
		for range 3 {
			take(s, "", "proxied")
		}
		require.Empty(t, ended)
		take(s, "", "proxied")
		require.Len(t, ended, 1)
	})
	t.Run("memory", func(t *testing.T) {
		ended = nil
		s := &Slots{PerAddress: 10, Total: 10, Bytes: 100}
		stored, greedy1, greedy2, honest := take(s, "s", "stored"), take(s, "g", "g1"), take(s, "g", "g2"), take(s, "h", "honest")
		require.True(t, s.Grow(stored, 40))
		require.True(t, s.Keep(stored))
		require.True(t, s.Grow(greedy1, 30))
		require.True(t, s.Grow(greedy2, 20))
		require.True(t, s.Grow(honest, 30), "who has most in memory makes room")
		require.Equal(t, []string{"g1"}, ended)
		require.False(t, s.Grow(greedy1, 1))
		require.False(t, s.Keep(greedy1))
		require.False(t, s.Grow(honest, 50), "nothing more can be had: what has arrived is kept")
		for _, one := range []*Slot{stored, greedy1, greedy2, honest} {
			s.Leave(one)
		}
		require.Zero(t, s.used)
		require.Empty(t, s.held)
	})
}
