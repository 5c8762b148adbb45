//go:build e2e

package kubernetes_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// wire carries bytes between the agent and the API server, until it is cut, or late.
type wire struct {
	listener net.Listener
	to       string // HOST:PORT of the API server

	mu     sync.Mutex
	broken bool
	late   time.Duration
	conns  []net.Conn
}

func newWire(t *testing.T, config *rest.Config) *wire {
	t.Helper()
	server, err := url.Parse(config.Host)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: listener, to: server.Host}
	done := make(chan struct{})
	go func() { defer close(done); w.accept() }()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
		w.cut()
	})
	return w
}

// config returns access to the API server by this wire.
func (w *wire) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	server, _ := url.Parse(config.Host)
	config.TLSClientConfig.ServerName = server.Hostname()
	config.Host = "https://" + w.listener.Addr().String()
	config.Proxy = nil
	return config
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, near, far)
		if w.broken {
			near.Close()
			far.Close()
		}
		w.mu.Unlock()
		go w.carry(near, far)
		go w.carry(far, near)
	}
}

func (w *wire) carry(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		late := w.late
		w.mu.Unlock()
		if late > time.Minute { // for ever, as far as a test goes
			_, _ = io.Copy(io.Discard, from)
			return
		}
		time.Sleep(late)
		if _, lost := to.Write(buffer[:n]); err != nil || lost != nil {
			return
		}
	}
}

// cut ends all connections, and those to come.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = true
	for _, c := range w.conns {
		c.Close()
	}
}

// delay holds up what passes. Beyond a minute it does not arrive at all.
func (w *wire) delay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = d
}

// mend makes connections work again, after those that there are have ended.
func (w *wire) mend() {
	w.cut()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.late, w.conns = false, 0, nil
}
