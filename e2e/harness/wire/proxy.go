// Package wire is what lies between an agent and its registry in tests and benchmarks: a proxy that counts, a
// registry's TLS, and a link that loses packets.
//
// A Proxy forwards TCP connections, counts their bytes and can make them bad ones, for any program and any
// protocol. A Server puts TLS before a handler, with a chain of certificates, and counts requests. On Linux, as
// root, a Link joins two network namespaces, in which programs then run.
package wire

import (
	"io"
	"net"
	"sync"
	"time"
)

// Count is what has gone through a proxy: the payload of TCP, TLS records included, without the headers of TCP
// and IP. Up is from the client to the server.
type Count struct {
	Connections, Up, Down int64
}

// Since returns the difference from an earlier count.
func (c Count) Since(earlier Count) Count {
	return Count{c.Connections - earlier.Connections, c.Up - earlier.Up, c.Down - earlier.Down}
}

// Behaviour is the disturbance of a connection by a proxy. The zero value forwards all bytes unchanged.
type Behaviour struct {
	// CutAt ends a connection before the byte of this number would go down, counted from 1. Zero cuts none.
	CutAt int64
	// FlipAt changes a bit of the byte of this number that goes down, counted from 1. Zero changes none.
	FlipAt int64
	// Rate bounds each direction, in bytes a second. Zero does not.
	Rate int64
	// Delay is added in each direction, so twice to a round trip.
	Delay time.Duration
	// Connections is the number of the next connections that behave so; later ones are not disturbed. Zero means all.
	Connections int
}

// Proxy forwards connections to a server. Its methods may be called by several goroutines.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu        sync.Mutex
	count     Count
	last      time.Time // when bytes have passed last
	cuts      int
	behaviour Behaviour
	left      int // connections that it still holds for
	open      map[net.Conn]bool
}

// Forward listens on an address such as 127.0.0.1:0 and forwards to target. The caller calls Close.
func Forward(listen, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	return ForwardFrom(l, target), nil
}

// ForwardFrom is Forward with a listener, which the proxy closes.
func ForwardFrom(l net.Listener, target string) *Proxy {
	p := &Proxy{listener: l, target: target, open: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p
}

// Port is the port that the proxy listens on.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Count is what has passed so far, on connections that have ended too.
func (p *Proxy) Count() Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Cuts returns the number of connections that were ended because of CutAt.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Settle waits until nothing has passed for as long as quiet, and returns the count.
func (p *Proxy) Settle(quiet time.Duration) Count {
	begun := time.Now()
	for {
		p.mu.Lock()
		count, last := p.count, p.last
		p.mu.Unlock()
		if last.Before(begun) {
			last = begun
		}
		left := quiet - time.Since(last)
		if left <= 0 {
			return count
		}
		time.Sleep(left)
	}
}

// Behave sets the behaviour of connections that are accepted from now on.
func (p *Proxy) Behave(b Behaviour) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behaviour, p.left = b, b.Connections
}

// Sever ends all connections that are open. New ones are accepted.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close() // it is to be gone, and is
	}
	clear(p.open)
}

// Close ends the proxy with all its connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Sever()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil { // it was closed
			return
		}
		b := p.begin(client)
		p.running.Go(func() {
			defer p.end(client)
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				return
			}
			if !p.keep(server, client) {
				return
			}
			defer p.end(server)
			p.join(client, server, b)
		})
	}
}

// begin takes account of a connection and returns how it is to behave.
func (p *Proxy) begin(client net.Conn) Behaviour {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[client] = true
	p.count.Connections++
	b := p.behaviour
	if b.Connections > 0 {
		if p.left == 0 {
			return Behaviour{}
		}
		p.left--
	}
	return b
}

// keep takes account of a connection to the server, unless the client's was severed meanwhile.
func (p *Proxy) keep(server, client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open[client] {
		_ = server.Close()
		return false
	}
	p.open[server] = true
	return true
}

func (p *Proxy) end(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

// join forwards both ways until both have ended. An end that one side makes in order is passed on.
func (p *Proxy) join(client, server net.Conn, b Behaviour) {
	var up sync.WaitGroup
	up.Go(func() { p.forward(server, client, b, &p.count.Up, Behaviour{}) })
	p.forward(client, server, b, &p.count.Down, b)
	up.Wait()
}

// piece is a part of a stream with the time at which it may pass.
type piece struct {
	data []byte
	due  time.Time
}

// forward moves bytes from one side to the other. The positions in harm count from the beginning of the
// connection. Bytes that were not forwarded when the writer failed are not counted in sum.
func (p *Proxy) forward(to, from net.Conn, b Behaviour, sum *int64, harm Behaviour) {
	pieces := make(chan piece, 64)
	p.running.Go(func() {
		defer close(pieces)
		read(from, b, pieces)
	})
	var passed int64
	for next := range pieces {
		time.Sleep(time.Until(next.due))
		data := next.data
		if at := harm.FlipAt - passed; at > 0 && at <= int64(len(data)) {
			data[at-1] ^= 1
		}
		cut := harm.CutAt > 0 && passed+int64(len(data)) >= harm.CutAt
		if cut {
			data = data[:harm.CutAt-1-passed]
		}
		n, err := to.Write(data)
		passed += int64(n)
		p.passed(sum, n, cut)
		if cut || err != nil {
			_, _ = to.Close(), from.Close()
			for range pieces { // until its reader has noticed
			}
			return
		}
	}
	_ = to.(*net.TCPConn).CloseWrite() // the other direction may go on; fails where that has ended as well
}

// passed takes account of bytes that were handed on.
func (p *Proxy) passed(sum *int64, n int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*sum += int64(n)
	if n > 0 {
		p.last = time.Now()
	}
	if cut {
		p.cuts++
	}
}

// read reads until the stream ends, no faster than it may.
func read(from io.Reader, b Behaviour, pieces chan<- piece) {
	size := int64(32 << 10)
	if b.Rate > 0 {
		size = min(size, max(1, b.Rate/20)) // so that a slow link is an even one
	}
	for {
		data := make([]byte, size)
		n, err := from.Read(data)
		if n > 0 {
			if b.Rate > 0 {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(b.Rate))
			}
			pieces <- piece{data[:n], time.Now().Add(b.Delay)}
		}
		if err != nil {
			return
		}
	}
}
