//go:build e2e

package e2e

import (
	"fmt"
	"time"
)

// What TCP adds on the link to the bytes that a proxy sees. It was counted on one that takes 600 ms there and back and
// loses nothing, by wire.Link.
const (
	packetHeaders = 52 // of IPv4 and of TCP with its timestamps
	// newPackets are those of a connection for one request, with its handshakes and its end, as
	// TestAPollLeavesNothingOnTheLink counts them. One of two requests, such as Flux's, has some more.
	newPackets = 29
	// fluxIdlePackets are the probes by which both ends of a connection find out that the other is still there, every
	// 15 s, until source-controller gives it up after 90 s.
	fluxIdlePackets = 20
	// packetPayload is what a packet of a transfer has room for. Each second one is acknowledged.
	packetPayload = 1448
)

const month = 30 * 24 * time.Hour

// withHeaders is what something costs on the link, in bytes both ways.
func withHeaders(t traffic, packets int64) int64 {
	return t.Down + t.Up + packets*packetHeaders
}

// transfer is withHeaders for more than a handful of bytes, on a connection that is open or, where it is new, not.
func transfer(t traffic, isNew bool) int64 {
	packets := t.Down/packetPayload*3/2 + 3*t.requests // a request, its answer, and an acknowledgement
	if isNew {
		packets += newPackets
	}
	return withHeaders(t, packets)
}

// sayMonths prints the tables of docs/sites/links.md.
func (f *wireBench) sayMonths() {
	fmt.Println("\na month of 30 days on the link, both ways, with the headers of TCP and IP:")
	fmt.Print("\n| poll every | polls | resumed | resumed, classic | new session | Flux |\n|-|-|-|-|-|-|\n")
	for _, every := range []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		polls := int64(month / every)
		fmt.Printf("| %g min | %d |", every.Minutes(), polls)
		for _, name := range []string{"poll-resumed", "poll-resumed-classic", "poll-cold"} {
			fmt.Printf(" %s |", size(polls*withHeaders(f.seen[name], newPackets)))
		}
		fmt.Printf(" %s |\n", size(polls*withHeaders(f.seen["flux-poll"], newPackets+fluxIdlePackets)))
	}
	fmt.Print("\n| | requests | on the link | Flux | on the link |\n|-|-|-|-|-|\n")
	for _, name := range []string{"first-sync", "update1of200", "update10of200"} {
		own, theirs := f.seen[name], f.seen["flux-"+name]
		fmt.Printf("| %s | %d | %s | %d | %s |\n", name, own.requests, size(transfer(own, name == "first-sync")), theirs.requests, size(transfer(theirs, true)))
	}
	fmt.Println()
}

// size is a number of bytes as people read it.
func size(bytes int64) string {
	if bytes >= 1e6 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f KB", float64(bytes)/1e3)
}
