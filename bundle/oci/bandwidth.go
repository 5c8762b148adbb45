package oci

import (
	"net"
	"sync"
	"time"
)

// bandwidth limits the bytes per second that all connections of a client receive together. It counts everything above
// TCP, including headers and TLS.
type bandwidth struct {
	rate int64 // bytes per second

	mu   sync.Mutex
	free time.Time // when the bytes received so far fit the rate
}

// limit returns conn with its reads slowed down, so that all connections given to b stay within its rate.
func (b *bandwidth) limit(conn net.Conn) net.Conn {
	inner := conn
	if s, ok := conn.(stallingConn); ok {
		inner = s.Conn
	}
	if t, ok := inner.(*net.TCPConn); ok {
		// What the kernel takes in advance is not bounded otherwise, and small transfers would be nothing else.
		// Where it cannot be set, the rate holds for longer ones.
		_ = t.SetReadBuffer(int(min(max(b.rate, minReadBuffer), maxReadBuffer)))
	}
	return &limitedConn{conn, b}
}

// The bounds of what a connection may receive in advance, in bytes: enough for a packet or two, and no more
// than a fast link needs.
const minReadBuffer, maxReadBuffer = 4 << 10, 1 << 20

type limitedConn struct {
	net.Conn
	b *bandwidth
}

// Read reads at most an eighth of a second's bytes at a time, so that a slow transfer never pauses for long.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(int64(len(p)), max(c.b.rate/8, 1))])
	time.Sleep(c.b.after(n))
	return n, err
}

// after returns the pause to make after receiving n bytes.
func (b *bandwidth) after(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	return b.free.Sub(now)
}
