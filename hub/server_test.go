package hub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
)

// serving serves h on l until the test ends.
func serving(t *testing.T, h *Hub, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConnectionsThatSendNoBodyKeepNobodyOut(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	l := listen(t)
	serving(t, h, l)
	const silent, unreadOfAddress = 520, 64 // a hub reads 512 bodies at once, 64 of them of one address
	answered := make(chan int, silent)
	for i := range silent {
		c := dial(t, l)
		_, err := fmt.Fprintf(c, "POST /v1/clusters/%s/reports HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", a.UID)
		require.NoError(t, err)
		go func() {
			if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				answered <- answer.StatusCode
				_ = answer.Body.Close()
			}
		}()
		if i >= unreadOfAddress { // each one more ends one; wait for that, so that few connections have no request yet
			require.Equal(t, http.StatusTooManyRequests, <-answered)
		}
	}

	url := "http://" + l.Addr().String()
	for seq := range int64(3) {
		answer, err := http.Post(url+"/v1/clusters/"+a.UID+"/reports", "application/json", bytes.NewReader(requestOf(t, a.seal(t, a.report(1, seq+1)))))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	for _, path := range []string{"/healthz", "/v1/clusters", "/"} {
		answer, err := http.Get(url + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
}

func TestOldIdleConnectionsMakeRoomForNewOnes(t *testing.T) {
	h, _ := newHub(t)
	l := listen(t)
	serving(t, h, l)
	first := dial(t, l)
	for range 256 {
		dial(t, l)
	}
	_, err := first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	answer, err := http.Get("http://" + l.Addr().String() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
}

// pipes is a listener without a network, whose connections know the time of a bubble.
type pipes struct {
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func TestABodyHasALeastSpeedWhichASlowLinkReaches(t *testing.T) {
	for _, tt := range []struct {
		name        string
		size, chunk int
		every       time.Duration
		status      int
		code        hubapi.Code
		takes       time.Duration // at least
	}{
		{"1 KB a second", 60_000, 1000, time.Second, http.StatusBadRequest, hubapi.CodeBadRequest, time.Minute - time.Second},
		{"1 KB a second, in bursts after 25 seconds without", 60_000, 25_000, 25 * time.Second, http.StatusBadRequest, hubapi.CodeBadRequest, 50 * time.Second},
		{"nothing", 60_000, 0, time.Hour, http.StatusRequestTimeout, hubapi.CodeTooSlow, 30 * time.Second},
		{"a byte a second", 60_000, 1, time.Second, http.StatusRequestTimeout, hubapi.CodeTooSlow, 30 * time.Second},
		{"much, and then nothing", 60_000, 59_999, time.Hour, http.StatusRequestTimeout, hubapi.CodeTooSlow, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				h, err := Open(dir, Options{})
				require.NoError(t, err)
				here, there := net.Pipe()
				l := &pipes{accepted: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.accepted <- there
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- h.Serve(ctx, l) }()
				begun := time.Now()
				go func() {
					fmt.Fprintf(here, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", hubapi.EnrollPath, tt.size)
					for left := tt.size; left > 0; {
						n := min(tt.chunk, left)
						if _, err := here.Write(make([]byte, n)); err != nil {
							return
						}
						left -= n
						select {
						case <-time.After(tt.every):
						case <-ctx.Done():
							return
						}
					}
				}()
				answer, err := http.ReadResponse(bufio.NewReader(here), nil)
				require.NoError(t, err)
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.Equal(t, tt.status, answer.StatusCode)
				require.Contains(t, string(body), tt.code)
				require.GreaterOrEqual(t, time.Since(begun), tt.takes)
				require.Less(t, time.Since(begun), tt.takes+2*time.Second, "the answer does not wait for the rest")
				require.NoError(t, here.Close())
				cancel()
				require.NoError(t, <-ended)
				require.NoError(t, h.Close())
			})
		})
	}
}

func TestAHubOnLoopbackAnswersToItsOwnNames(t *testing.T) {
	h, err := Open(t.TempDir(), Options{Hosts: []string{"hub.plant-7"}, Anonymous: access.Viewer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	l := listen(t)
	serving(t, h, l)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "localhost.": 200, "127.0.0.1:8080": 200, "127.9.9.9": 200, "[::1]:8080": 200, "[::1]": 200,
		"hub.plant-7": 200, "Hub.Plant-7:443": 200,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "192.0.2.7": 421, "0.0.0.0": 421,
	} {
		for _, path := range []string{"/", "/v1/clusters", "/healthz"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, nil)
			require.NoError(t, err)
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, host+path)
			if want == http.StatusMisdirectedRequest {
				require.Contains(t, string(body), hubapi.CodeWrongHost)
				require.NotContains(t, strings.ToLower(string(body)), "evil")
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://any.example/healthz", nil)
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, "other listeners know by their certificate who they are")
}
