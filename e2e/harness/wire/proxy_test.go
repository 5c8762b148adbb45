package wire

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo returns the bytes of each connection to the client until the client closes its side, and then a full stop.
func echo(t *testing.T) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.Copy(conn, conn); err == nil {
					_, _ = conn.Write([]byte("."))
				}
			}()
		}
	}()
	p, err := Forward("127.0.0.1:0", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	return conn.(*net.TCPConn)
}

// say sends text on a connection of its own, ends its side, and returns all that came back.
func say(t *testing.T, p *Proxy, text string) string {
	t.Helper()
	conn := dial(t, p)
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
	_ = conn.CloseWrite() // a proxy that has cut may be gone already
	got, _ := io.ReadAll(conn)
	return string(got)
}

const quiet = 20 * time.Millisecond

// requireCount waits until so much has passed, and requires that nothing follows: a proxy counts what has passed just
// after whom it is for may have read it.
func requireCount(t *testing.T, want Count, p *Proxy, before Count) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Count().Since(before) == want }, time.Minute, time.Millisecond)
	require.Equal(t, want, p.Settle(quiet).Since(before))
}

func TestAProxyCountsWhatItForwards(t *testing.T) {
	t.Parallel()
	p := echo(t)
	require.Equal(t, "hello.", say(t, p, "hello"))
	before := Count{Connections: 1, Up: 5, Down: 6}
	requireCount(t, before, p, Count{})
	large := string(bytes.Repeat([]byte("x"), 1<<20))
	require.Equal(t, large+".", say(t, p, large))
	requireCount(t, Count{Connections: 1, Up: 1 << 20, Down: 1<<20 + 1}, p, before)
}

func TestAConnectionIsCutBeforeAnyByte(t *testing.T) {
	t.Parallel()
	const text = "hello"
	for at := 1; at <= len(text)+1; at++ {
		p := echo(t)
		p.Behave(Behaviour{CutAt: int64(at), Connections: 1})
		require.Equal(t, (text + ".")[:at-1], say(t, p, text))
		require.EqualValues(t, at-1, p.Settle(quiet).Down)
		require.Equal(t, 1, p.Cuts())
		require.Equal(t, text+".", say(t, p, text), "the next one is good")
		require.Equal(t, 1, p.Cuts())
	}
}

func TestABitOfAConnectionIsChanged(t *testing.T) {
	t.Parallel()
	p := echo(t)
	p.Behave(Behaviour{FlipAt: 2})
	for range 2 {
		require.Equal(t, "hdllo.", say(t, p, "hello"))
	}
}

func TestASlowLinkIsSlow(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]Behaviour{
		"by its rate":  {Rate: 1000},
		"by its delay": {Delay: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := echo(t)
			p.Behave(b)
			begun := time.Now()
			text := string(bytes.Repeat([]byte("x"), 99))
			require.Equal(t, text+".", say(t, p, text))
			require.GreaterOrEqual(t, time.Since(begun), 100*time.Millisecond)
		})
	}
}

func TestOpenConnectionsAreSevered(t *testing.T) {
	t.Parallel()
	p := echo(t)
	conn := dial(t, p)
	_, err := conn.Write([]byte("a"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	p.Sever()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.Equal(t, "b.", say(t, p, "b"))
}

func TestAServerIsKnownByItsAuthority(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := Serve(l, net.IPv4(127, 0, 0, 1), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.Proto)
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := Forward("127.0.0.1:0", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })

	url := fmt.Sprintf("https://127.0.0.1:%d/", p.Port())
	stranger := &http.Client{Transport: &http.Transport{}}
	_, err = stranger.Get(url)
	require.ErrorContains(t, err, "unknown authority")
	require.Zero(t, s.Requests())

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(s.Authority))
	friend := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	resp, err := (&http.Client{Transport: friend}).Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "HTTP/2.0", string(body))
	require.EqualValues(t, 1, s.Requests())
	require.Greater(t, p.Settle(quiet).Down, int64(s.ChainBytes))
	friend.CloseIdleConnections()
}
