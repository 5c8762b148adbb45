package serve

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// serving opens an endpoint over dir and serves it until the test ends.
func serving(t testing.TB, dir string, o Options) (*Endpoint, *Server) {
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	e, err := Open(o)
	require.NoError(t, err)
	s, err := e.Listen(dir, "plant")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { s.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		served.Wait()
	})
	return e, s
}

func TestTheEndpointMakesItsOwnCertificates(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	o := Options{StateDir: dir, URL: "https://first-box:5001", Address: "127.0.0.1:0", Now: func() time.Time { return now }}
	_, err := o.CA()
	require.ErrorIs(t, err, os.ErrNotExist)
	e, s := serving(t, dir, o)
	info, err := os.Stat(filepath.Join(dir, CAFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	served := e.Served()
	require.Equal(t, "first-box:5001", served.Host)
	ca, err := o.CA()
	require.NoError(t, err)
	require.Equal(t, string(ca), string(served.CA))
	require.NoError(t, e.CheckNames())

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(served.CA))
	get := func(name string) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name}, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + s.Addr().String() + "/v2/")
		if err == nil {
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, 1, resp.ProtoMajor)
			err = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, get("first-box"))
	require.NoError(t, get("localhost"))
	require.Error(t, get("other-box"))

	first := e.own.current()
	now = now.Add(leafLife - leafRenew - time.Hour)
	require.Same(t, first, e.own.current())
	now = now.Add(2 * time.Hour)
	renewed := e.own.current()
	require.NotSame(t, first, renewed)
	require.True(t, renewed.Leaf.NotAfter.After(first.Leaf.NotAfter))
	again, err := Open(o)
	require.NoError(t, err)
	require.Equal(t, string(ca), string(again.Served().CA), "a CA outlives the process")

	now = now.Add(caLife)
	require.NotEqual(t, first.Leaf.Issuer.SerialNumber, e.own.current().Leaf.SerialNumber)
	require.NotEqual(t, string(ca), string(e.Served().CA))
	require.NoError(t, e.CheckNames())
}

// A clock that is wrong for a moment, ahead or behind, cuts off no client that has the CA.
func TestAWrongClockKeepsTheAuthority(t *testing.T) {
	right := time.Now()
	for name, wrong := range map[string]time.Time{"ahead": right.AddDate(20, 0, 0), "behind": time.Unix(0, 0)} {
		t.Run(name, func(t *testing.T) {
			now := right
			o := Options{StateDir: t.TempDir(), URL: "https://first-box:5001", Address: "127.0.0.1:0", Now: func() time.Time { return now }}
			e, err := Open(o)
			require.NoError(t, err)
			first := e.own.ca()
			handedOut := x509.NewCertPool()
			handedOut.AddCert(first)
			accepted := func(e *Endpoint) error { // by a client whose clock is right
				chain := e.own.current()
				between := x509.NewCertPool()
				for _, der := range chain.Certificate[1:] {
					c, err := x509.ParseCertificate(der)
					require.NoError(t, err)
					between.AddCert(c)
				}
				_, err := chain.Leaf.Verify(x509.VerifyOptions{Roots: handedOut, Intermediates: between, CurrentTime: right, DNSName: "first-box"})
				return err
			}
			require.NoError(t, accepted(e))

			now = wrong
			require.NoError(t, accepted(e), "while the clock is wrong")
			restarted, err := Open(o)
			require.NoError(t, err)
			if name == "ahead" { // behind, what is made is over for others; see the agent's floor
				require.NoError(t, accepted(restarted), "also after a restart")
				require.NotEqual(t, first.Raw, restarted.own.ca().Raw)
			}

			now = right
			require.NoError(t, accepted(restarted), "once it is right again")
			again, err := Open(o)
			require.NoError(t, err)
			require.NoError(t, accepted(again))
			require.True(t, first.PublicKey.(*ecdsa.PublicKey).Equal(again.own.ca().PublicKey))
			require.Equal(t, first.RawSubject, again.own.ca().RawSubject)
			require.False(t, again.own.ca().NotBefore.After(first.NotBefore))
			require.False(t, again.own.current().Leaf.NotBefore.After(first.NotBefore))
		})
	}
}

func TestACAThatIsDamagedIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, CAFile), []byte("nothing"), 0o600))
	_, err := Open(Options{StateDir: dir, Address: "127.0.0.1:0"})
	require.ErrorContains(t, err, CAFile)
	require.ErrorContains(t, err, "remove the file")
}

func TestOptionsThatContradictEachOther(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no port", Options{Address: "first-box"}, "expected HOST:PORT"},
		{"a certificate without its key", Options{Address: ":1", CertFile: "a"}, "needs its key"},
		{"plain HTTP for all", Options{Address: ":1", Plain: true}, "loopback"},
		{"plain HTTP with a certificate", Options{Address: "127.0.0.1:1", Plain: true, CertFile: "a", KeyFile: "b"}, "one or the other"},
		{"a path in the URL", Options{Address: ":1", URL: "https://a/b"}, `URL "https://a/b": expected only a host and a port`},
		{"a password in the URL", Options{Address: ":1", URL: "https://u:p@a:1"}, `URL "https://a:1": expected only a host and a port`},
		{"a password in a URL that cannot be parsed", Options{Address: ":1", URL: "https://u:p@a:b"}, "invalid URL: expected one such as https://first-box:5001"},
		{"a URL of the other scheme", Options{Address: ":1", URL: "http://a:1"}, "the endpoint serves https"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.o.Check()
			require.ErrorContains(t, err, c.want)
		})
	}
	u, err := Options{Address: "10.0.0.7:5001"}.Check()
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.7:5001", u.String())
	host, err := os.Hostname()
	require.NoError(t, err)
	u, err = Options{Address: ":5001"}.Check()
	require.NoError(t, err)
	require.Equal(t, "https://"+host+":5001", u.String())
}

func TestAnAddressThatIsTaken(t *testing.T) {
	_, s := serving(t, t.TempDir(), Options{Plain: true})
	e, err := Open(Options{Plain: true, Address: s.Addr().String()})
	require.NoError(t, err)
	_, err = e.Listen(t.TempDir(), "plant")
	require.ErrorIs(t, err, ErrListen)
	require.ErrorContains(t, err, s.Addr().String())
}

// More connections than one address may have are closed, and those that are open go on.
func TestTooManyConnectionsAreClosedAndHarmNobody(t *testing.T) {
	_, s := serving(t, t.TempDir(), Options{Plain: true})
	first, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer first.Close()
	open := []net.Conn{}
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		open = append(open, c)
	}
	closed := 0
	for _, c := range open {
		fmt.Fprint(c, "GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			closed++
		}
	}
	require.Equal(t, 200-(maxConnsAddress-1), closed)
	fmt.Fprint(first, "GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(first), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
}

// An address that connects as fast as it can, and closes at once, leaves others at least half of the connections of a moment.
func TestOneAddressLeavesOthersHalf(t *testing.T) {
	now := time.Now()
	l := limit(nil, nil, func() time.Time { return now })
	asked, admitted := 0, 0
	for i := range 10_000 { // ten seconds
		now = now.Add(time.Millisecond)
		for range 10 {
			if l.admit("greedy") {
				l.release("greedy")
			}
		}
		if i%25 == 0 {
			if asked++; l.admit("other") {
				admitted++
				l.release("other")
			}
		}
	}
	require.Equal(t, 400, asked)
	require.Equal(t, asked, admitted, "40 in a second are less than half")
	for i := range 100_000 { // many addresses leave little behind
		now = now.Add(10 * time.Millisecond)
		address := fmt.Sprint(i)
		require.True(t, l.admit(address))
		l.release(address)
	}
	require.LessOrEqual(t, len(l.addresses), 2*maxConns)
}

func TestTheBoundsOfConnections(t *testing.T) {
	now := time.Now()
	l := limit(nil, nil, func() time.Time { return now })
	for i := range maxConns {
		require.True(t, l.admit(fmt.Sprint(i)))
	}
	require.False(t, l.admit("one more"), "all of them are in use")
	l.release("0")
	require.False(t, l.admit("at once"), "too many new ones in a moment")
	now = now.Add(time.Second)
	require.True(t, l.admit("a second later"))
	for i := range 1000 {
		address := fmt.Sprint(i % maxConns)
		l.mu.Lock()
		known := l.addresses[address] != nil && l.addresses[address].conns > 0
		l.mu.Unlock()
		if known {
			l.release(address)
		}
	}
	l.release("a second later")
	require.Zero(t, l.all.conns)
	now = now.Add(time.Hour)
	l.forget(now)
	require.Empty(t, l.addresses)
	for range maxConnsAddress {
		require.True(t, l.admit("busy"))
	}
	require.False(t, l.admit("busy"))
	require.True(t, l.admit("other"))
	require.Equal(t, hostOf(&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}), hostOf(&net.TCPAddr{IP: net.ParseIP("2001:db8::2")}))
	require.NotEqual(t, hostOf(&net.TCPAddr{IP: net.ParseIP("192.0.2.1")}), hostOf(&net.TCPAddr{IP: net.ParseIP("192.0.2.2")}))
}

// A client that takes nothing for progressTime loses its connection; one that takes a little does not.
func TestASlowReaderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		l := limit(nil, new(atomic.Int64), time.Now)
		require.True(t, l.admit("pipe"))
		c := &conn{Conn: here, limited: l, address: "pipe"}
		result := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 3*progressBytes))
			result <- err
		}()
		buffer := make([]byte, progressBytes)
		for range 2 {
			time.Sleep(progressTime - time.Second)
			_, err := io.ReadFull(there, buffer)
			require.NoError(t, err)
		}
		begun := time.Now()
		require.ErrorIs(t, <-result, os.ErrDeadlineExceeded)
		require.Equal(t, progressTime, time.Since(begun))
		require.NoError(t, errors.Join(c.Close(), c.Close(), there.Close()))
		require.Zero(t, l.all.conns)
	})
}

func TestPlainHTTPOfAFileGoesByTheKernel(t *testing.T) {
	s := newSite(t)
	layer := layerOf(string(make([]byte, 3*progressBytes+17)))
	s.name("ghcr.io/app/web", "1", s.artifact(nil, layer))
	e, server := serving(t, s.dir, Options{Plain: true})
	for range 2 { // on one connection, so that the first answer has ended when the second one begins
		resp, err := http.Get("http://" + server.Addr().String() + "/v2/ghcr.io/app/web/blobs/" + layer.Descriptor.Digest.String())
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, len(layer.Data), len(data))
	}
	require.Greater(t, e.Counters.Bytes.Load(), layer.Descriptor.Size)
	require.NotZero(t, e.Counters.Requests()[200])
}

func serveThroughput(b *testing.B, dir string, layer bundle.Blob) float64 {
	_, s := serving(b, dir, Options{Plain: true})
	return throughput(b, layer.Descriptor.Size, func() io.ReadCloser {
		resp, err := http.Get("http://" + s.Addr().String() + "/v2/ghcr.io/app/web/blobs/" + layer.Descriptor.Digest.String())
		require.NoError(b, err)
		require.Equal(b, 200, resp.StatusCode)
		return resp.Body
	})
}

// fileThroughput is that of cat: a file through a connection of loopback.
func fileThroughput(b *testing.B, path string, size int64) float64 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	return throughput(b, size, func() io.ReadCloser {
		go func() {
			f, err := os.Open(path)
			if err != nil {
				return
			}
			defer f.Close()
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.Copy(c, f)
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		return c
	})
}
