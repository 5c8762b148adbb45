//go:build pods

package wire

import (
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestLink is a link with a server at its far end that answers each connection with so many bytes.
func newTestLink(t *testing.T, answer int) (l *Link, address string) {
	t.Helper()
	l, err := NewLink()
	require.NoError(t, err, "links take root, as real pods do")
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	listener, err := l.Far.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Write(make([]byte, answer))
			}()
		}
	}()
	return l, listener.Addr().String()
}

// call connects from the near end.
func call(l *Link, address string) (conn net.Conn, err error) {
	err = l.Near.do(func() error {
		conn, err = net.DialTimeout("tcp", address, 2*time.Minute)
		return err
	})
	return conn, err
}

// load returns how many bytes came of an answer, and how long that took.
func load(t *testing.T, l *Link, address string) (int64, time.Duration) {
	t.Helper()
	begun := time.Now()
	conn, err := call(l, address)
	require.NoError(t, err)
	defer conn.Close()
	n, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
	return n, time.Since(begun)
}

func TestALinkIsAsGoodAsItsWeather(t *testing.T) {
	t.Parallel()
	const size = 200_000
	l, address := newTestLink(t, size)
	n, _ := load(t, l, address)
	require.EqualValues(t, size, n)
	require.Zero(t, l.Lost())
	require.Greater(t, l.Arrived().Down, int64(size), "packets have headers")
	require.Less(t, l.Arrived().Down, int64(2*size), "and TCP sends some again where this machine is busy")

	l.Set(Weather{Delay: 20 * time.Millisecond, Loss: 0.05})
	n, took := load(t, l, address)
	require.EqualValues(t, size, n, "TCP sends again what is lost")
	require.GreaterOrEqual(t, took, 80*time.Millisecond, "a round trip to connect, and one for the answer")
	require.NotZero(t, l.Lost())

	l.Set(Weather{Rate: 10 * size})
	_, took = load(t, l, address)
	require.GreaterOrEqual(t, took, 100*time.Millisecond)
}

func TestALinkIsTheOnlyWay(t *testing.T) {
	t.Parallel()
	l, address := newTestLink(t, 1)
	_, err := net.DialTimeout("tcp", address, time.Second)
	require.Error(t, err, "not from this namespace")
	out := exec.Command("cat", "/proc/net/route")
	pipe, err := out.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, l.Near.Start(out))
	routes, err := io.ReadAll(pipe)
	require.NoError(t, err)
	require.NoError(t, out.Wait())
	require.Contains(t, string(routes), "wire0")
	require.NotContains(t, string(routes), "00000000\t00000000", "no default route")

	require.NoError(t, l.Up(false))
	_, err = call(l, address)
	require.ErrorContains(t, err, "unreachable")
	require.NoError(t, l.Up(true))
	n, _ := load(t, l, address)
	require.EqualValues(t, 1, n)
}
