//go:build e2e && pods

package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// satellite is how it is to be behind one that hangs above the equator: 600 ms there and back, and 256 kbit/s.
var satellite = wire.Weather{Delay: 300 * time.Millisecond, Loss: 0.02, Rate: 32_000}

// behindLink is an agent in a network namespace, and its registry in another one. They speak TLS.
type behindLink struct {
	*shelf
	link   *wire.Link
	server *wire.Server
	place  place
}

func newBehindLink(t *testing.T) *behindLink {
	t.Helper()
	f := &behindLink{shelf: newShelf(t)}
	var err error
	f.link, err = wire.NewLink()
	require.NoError(t, err, "this takes root and /dev/net/tun: make e2e E2E_TAGS=e2e leaves it out")
	t.Cleanup(func() { require.NoError(t, f.link.Close()) })
	far, err := f.link.Far.Listen()
	require.NoError(t, err)
	f.server, err = wire.Serve(far, net.IP(f.link.Far.Address.AsSlice()), f.handler)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.server.Close()) })
	f.place = f.shelf.place("oci://" + far.Addr().String() + "/edge")
	f.place.start = f.link.Near.Start
	f.place.env = []string{"SSL_CERT_FILE=" + f.write("authority.pem", f.server.Authority)}
	return f
}

// awaitDown waits until so many bytes more have come down than before.
func (f *behindLink) awaitDown(before wire.Arrived, bytes int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.link.Arrived().Down-before.Down >= bytes }, followerTime, 5*time.Millisecond)
}

func TestAnAgentBehindASatellite(t *testing.T) {
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(satellite)
	f.publish("first")
	a := follow(t, f.place)
	a.syncUntilDone()
	f.requireApplied("first")
	for i := range byte(2) {
		content := noise(i, 100_000)
		f.publish(content)
		a.syncUntilDone()
		f.requireApplied(content)
	}
	require.NotZero(t, f.link.Lost())

	// A short cut: the connection outlives it.
	content, before := noise(9, 200_000), f.link.Arrived()
	f.publish(content)
	done := make(chan error)
	go func() { done <- a.trySync() }()
	f.awaitDown(before, 100_000)
	require.NoError(t, f.link.Up(false))
	time.Sleep(2 * time.Second) // some of TCP's own attempts fail
	require.NoError(t, f.link.Up(true))
	if err := <-done; err != nil {
		a.syncUntilDone()
	}
	f.requireApplied(content)
}

// The link goes in the middle of a transfer, and the power as well.
func TestATransferThatIsCutGoesOn(t *testing.T) {
	const (
		size = 6 << 20
		// first is how much of it has come when the link goes.
		first = 4 << 20
		// headers is what IP, TCP and TLS add to the layer at most, and requests and handshakes beside it.
		headers = size/10 + 64<<10
		// again bounds the bytes of a layer that may come a second time: those that were not synced to disk yet.
		again = 1 << 20
		// unread bounds the bytes that the kernel has received for an agent that is syncing, or waits for a processor.
		unread = 1 << 20
	)
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(wire.Weather{Delay: 20 * time.Millisecond, Rate: 1 << 20})
	f.publish("old")
	a := follow(t, f.place)
	a.sync()

	content, before := noise(1, size), f.link.Arrived()
	f.publish(content)
	cut := make(chan error)
	go func() { cut <- a.trySync() }()
	f.awaitDown(before, first)
	require.NoError(t, f.link.Up(false))
	a.kill()
	require.Error(t, <-cut)
	f.requireApplied("old")
	require.NoError(t, f.link.Up(true))
	f.requireApplied("old")

	a = follow(t, f.place)
	a.syncUntilDone()
	f.requireApplied(content)
	came := f.link.Arrived().Down - before.Down
	t.Logf("%d bytes came down for a layer of %d", came, size)
	require.Less(t, came, int64(size+again+unread+headers), "from the beginning it would be %d", first+size)
	require.Greater(t, came, int64(size))
}

// What a poll costs on the link is what docs/sites/links.md reckons with: a connection that nobody uses any more is
// closed, and nothing passes before the next poll.
func TestAPollLeavesNothingOnTheLink(t *testing.T) {
	t.Parallel()
	f := newBehindLink(t)
	f.link.Set(wire.Weather{Delay: satellite.Delay})
	f.publish("first")
	a := follow(t, f.place)
	a.sync()
	// While this machine is busy, TCP acknowledges some packets by themselves and sends others again: then another poll
	// tells. The probes of a connection that is kept for nothing, in each of them, are fluxIdlePackets.
	const polls, bound = 10, newPackets + fluxIdlePackets/2
	least := int64(bound)
	for i := 0; i < polls && least >= bound; i++ {
		before := f.awaitQuiet()
		a.sync()
		after := f.awaitQuiet()
		t.Logf("%d packets, %d bytes up and %d down", after.Packets-before.Packets, after.Up-before.Up, after.Down-before.Down)
		require.Greater(t, after.Packets, before.Packets)
		least = min(least, after.Packets-before.Packets)
	}
	require.Less(t, least, int64(bound))
}

// awaitQuiet waits until no connection is open and no packet under way, and returns what has come by then.
func (f *behindLink) awaitQuiet() (arrived wire.Arrived) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		last := arrived
		arrived = f.link.Arrived()
		return f.server.Open() == 0 && arrived == last
	}, followerTime, 5*satellite.Delay)
	return arrived
}
