package serve

import (
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// limited is a listener that closes connections beyond its bounds at once. Those that it returns end when their client
// takes nothing for progressTime. One address takes no more than half of what there is, so that the others have the rest.
type limited struct {
	net.Listener
	sent *atomic.Int64
	now  func() time.Time

	mu        sync.Mutex
	all       client
	addresses map[string]*client
}

// client is an address, or all of them together.
type client struct {
	conns   int
	allowed float64 // new connections that may come now
	at      time.Time
}

// fill adds the connections that may come since the last time, of perSecond, up to burst.
func (c *client) fill(now time.Time, perSecond, burst float64) {
	c.allowed = min(burst, c.allowed+max(0, now.Sub(c.at).Seconds())*perSecond)
	c.at = now
}

func limit(l net.Listener, sent *atomic.Int64, now func() time.Time) *limited {
	return &limited{Listener: l, sent: sent, now: now, addresses: map[string]*client{}, all: client{allowed: maxConns, at: now()}}
}

// Accept returns the next connection that is within the bounds.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(c.RemoteAddr())
		if !l.admit(address) {
			_ = c.Close()
			continue
		}
		return &conn{Conn: c, limited: l, address: address}, nil
	}
}

// admit reports whether one more connection from an address is within the bounds, and counts it.
func (l *limited) admit(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.all.fill(now, connsPerSecond, maxConns)
	one := l.addresses[address]
	if one == nil {
		one = &client{allowed: maxConns / 2, at: now}
	}
	one.fill(now, connsPerSecond/2, maxConns/2)
	if min(one.allowed, l.all.allowed) < 1 || l.all.conns >= maxConns || one.conns >= maxConnsAddress {
		return false
	}
	if len(l.addresses) >= 2*maxConns {
		l.forget(now)
	}
	l.addresses[address] = one
	for _, c := range []*client{one, &l.all} {
		c.allowed--
		c.conns++
	}
	return true
}

// forget drops the addresses that may do as much as new ones.
func (l *limited) forget(now time.Time) {
	for address, c := range l.addresses {
		if c.fill(now, connsPerSecond/2, maxConns/2); c.conns == 0 && c.allowed == maxConns/2 {
			delete(l.addresses, address)
		}
	}
}

func (l *limited) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.conns--
	l.addresses[address].conns--
}

// hostOf is the address of a client by which its connections are counted. A client of IPv6 has a whole network of them.
func hostOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	if ip := tcp.IP.To4(); ip != nil {
		return ip.String()
	}
	return tcp.IP.Mask(net.CIDRMask(64, 128)).String()
}

// conn is a connection that fails if its client reads too slowly.
type conn struct {
	net.Conn
	limited *limited
	address string
	once    sync.Once
}

// Close closes the connection, and frees its place below the limit.
func (c *conn) Close() error {
	c.once.Do(func() { c.limited.release(c.address) })
	return c.Conn.Close()
}

// Write gives each part of p the time that a part may take.
func (c *conn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var k int
		if err = c.SetWriteDeadline(time.Now().Add(progressTime)); err == nil {
			k, err = c.Conn.Write(p[:min(len(p), progressBytes)])
		}
		c.limited.sent.Add(int64(k))
		n, p = n+k, p[k:]
	}
	return n, err
}

// ReadFrom sends a file in parts by the kernel, each with the time that a part may take.
func (c *conn) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := c.Conn.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	all, ok := r.(*io.LimitedReader) // the kernel's way looks into one such reader, not into two
	if !ok {
		all = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for all.N > 0 && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(progressTime)); err != nil {
			break
		}
		part := &io.LimitedReader{R: all.R, N: min(all.N, progressBytes)}
		var k int64
		k, err = to.ReadFrom(part)
		n, all.N = n+k, all.N-k
		c.limited.sent.Add(k)
		if part.N > 0 { // the file has ended
			break
		}
	}
	return n, err
}
