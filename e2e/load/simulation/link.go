package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle/duration"
)

// Link is the link of a cluster. The zero Link is that of this machine.
type Link struct {
	// BitsPerSecond bounds each direction of each connection; 0 is without a bound.
	BitsPerSecond int64
	// RoundTrip is added to each connection that is made, and to each request.
	RoundTrip time.Duration
}

// better reports whether l is faster than another link.
func (l Link) better(than Link) bool {
	return than.BitsPerSecond > 0 && (l.BitsPerSecond == 0 || l.BitsPerSecond > than.BitsPerSecond)
}

// LinkShare is a Link with its share of the clusters, in percent.
type LinkShare struct {
	Link
	Name    string
	Percent float64
}

// ParseLinks reads links such as "1Mbit", "1Mbit/40ms" or "10Mbit/40ms=70%,64kbit/600ms".
func ParseLinks(text string) ([]LinkShare, error) {
	shares, err := ParseShares(text)
	if err != nil {
		return nil, err
	}
	var all []LinkShare
	for _, s := range shares {
		l, err := parseLink(s.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, LinkShare{l, s.Name, s.Percent})
	}
	return all, nil
}

// units are those of a link's speed, in bits per second.
var units = []struct {
	suffix string
	bits   float64
}{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}}

func parseLink(text string) (Link, error) {
	speed, delay, delayed := strings.Cut(text, "/")
	var l Link
	for _, u := range units {
		if n, found := strings.CutSuffix(speed, u.suffix); found {
			f, err := strconv.ParseFloat(n, 64)
			if bits := f * u.bits; err == nil && bits >= 1000 && bits <= 1e12 {
				l.BitsPerSecond = int64(bits)
			}
		}
	}
	if l.BitsPerSecond == 0 {
		return l, fmt.Errorf("%w: %q is not the speed of a link, such as 64kbit or 1Mbit, or 1Mbit/40ms with the time of a round trip", ErrOptions, text)
	}
	if delayed {
		d, err := duration.Parse(delay)
		if err != nil || d < 0 || d > time.Minute {
			return l, fmt.Errorf("%w: %q: the time of a round trip is from 0s to 1m", ErrOptions, text)
		}
		l.RoundTrip = d
	}
	return l, nil
}

// errDown is the error of a link that is down.
var errDown = errors.New("the simulated link is down")

// line is a cluster's link, with what has crossed it.
type line struct {
	Link
	load *load
	// source is the address of this machine that the cluster has.
	source net.IP
	// hub is HOST:PORT of the hub; all else is the registry.
	hub string
	// down reports whether the link is down now.
	down func() bool
	// connections bounds those of all lines.
	connections turns

	bytes [2]atomic.Int64 // both ways, by service
}

// dial makes a connection.
func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.down() {
		return nil, errDown
	}
	if err := retry.Sleep(ctx, l.Link.RoundTrip); err != nil {
		return nil, err
	}
	end := l.connections.take(ctx)
	d := net.Dialer{Timeout: 15 * time.Second}
	if l.source != nil {
		d.LocalAddr = &net.TCPAddr{IP: l.source}
	}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		end()
		return nil, err
	}
	return &lineConn{Conn: conn, line: l, service: l.serviceOf(addr), end: sync.OnceFunc(end)}, nil
}

func (l *line) serviceOf(addr string) service {
	if addr == l.hub {
		return hubService
	}
	return registryService
}

// attempts sends each attempt of a request over a line, and counts it.
type attempts struct {
	*line
	next http.RoundTripper
}

func (a attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	s := a.serviceOf(req.URL.Host)
	if err := retry.Sleep(req.Context(), a.Link.RoundTrip); err != nil {
		return nil, err
	}
	resp, err := a.next.RoundTrip(req)
	a.load.count(req, s, resp, err)
	return resp, err
}

// CloseIdleConnections closes the connections that wait for the next request.
func (a attempts) CloseIdleConnections() {
	if t, ok := a.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// lineConn is a connection over a line.
type lineConn struct {
	net.Conn
	line    *line
	service service
	in, out pace
	broken  atomic.Bool // the link went down
	end     func()      // may be called again
}

// Close gives the place of the connection to another.
func (c *lineConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(c.cut(p))
	c.count(n)
	c.in.take(n, c.line.BitsPerSecond)
	switch {
	case c.broken.Load():
		return 0, errDown
	case err == nil && c.line.down():
		return 0, c.breakOff()
	}
	return n, err
}

func (c *lineConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if c.line.down() {
			return n, c.breakOff()
		}
		part := c.cut(p)
		sent, err := c.Conn.Write(part)
		n += sent
		c.count(sent)
		if c.broken.Load() {
			return n, errDown
		}
		if err != nil {
			return n, err
		}
		c.out.take(sent, c.line.BitsPerSecond)
		p = p[sent:]
	}
	return n, nil
}

// cut returns so much of p as crosses the line in some tenth of a second.
func (c *lineConn) cut(p []byte) []byte {
	if c.line.BitsPerSecond == 0 {
		return p
	}
	return p[:min(len(p), max(64, int(c.line.BitsPerSecond/80)))]
}

func (c *lineConn) breakOff() error {
	c.broken.Store(true)
	_ = c.Close() // the link is down, and nobody can be told
	return errDown
}

func (c *lineConn) count(n int) {
	c.line.bytes[c.service].Add(int64(n))
	c.line.load.services[c.service].bytes.Add(int64(n))
}

// pace makes the bytes of one direction take their time.
type pace struct{ free time.Time }

// take waits until n bytes have crossed.
func (p *pace) take(n int, bitsPerSecond int64) {
	if bitsPerSecond == 0 || n <= 0 {
		return
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) * 8 / float64(bitsPerSecond) * float64(time.Second)))
	time.Sleep(p.free.Sub(now))
}
