package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/proxy"
)

// world is the servers of a test, by their origins, and what they were asked.
type world struct {
	t       *testing.T
	own     *httptest.Server // over TLS, with a login in ~/.netrc
	ownHTTP *httptest.Server // the same host without TLS
	foreign *httptest.Server
	answer  func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	asked  []string // SCHEME://HOST AUTHORIZATION
	dialed []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, answer: func(http.ResponseWriter, *http.Request) {}}
	handler := func(scheme string) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			w.asked = append(w.asked, scheme+"://"+r.Host+" "+r.Header.Get("Authorization"))
			w.mu.Unlock()
			w.answer(rw, r)
		})
	}
	w.own, w.ownHTTP, w.foreign = httptest.NewTLSServer(handler("https")), httptest.NewServer(handler("http")), httptest.NewTLSServer(handler("https"))
	t.Cleanup(func() { w.own.Close(); w.ownHTTP.Close(); w.foreign.Close() })
	file := filepath.Join(t.TempDir(), "netrc")
	require.NoError(t, os.WriteFile(file, []byte("machine other login x password y\nmachine 127.0.0.1\n\tlogin robot\n\tpassword pa55\n"), 0o600))
	t.Setenv("NETRC", file)
	return w
}

// access returns an Access of which the https server own alone is the platform's, and which reaches the other two.
func (w *world) access() *Access {
	a := New(w.own.URL + "/org")
	a.Allow("127.0.0.1")
	trusted := w.own.Client().Transport.(*http.Transport).TLSClientConfig
	a.connections.TLSClientConfig = trusted.Clone()
	a.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	a.connecting = func(address string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dialed = append(w.dialed, address)
		return nil
	}
	return a
}

func (w *world) get(a *Access, text string) error {
	at, err := url.Parse(text)
	require.NoError(w.t, err)
	response, err := a.Client(at).Get(at.String())
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

const login = "Basic cm9ib3Q6cGE1NQ=="

func TestALoginGoesOverTLSToAnOwnOriginAlone(t *testing.T) {
	w := newWorld(t)
	own := func(s *httptest.Server) string { return strings.Replace(s.URL, "://", "://robot:pa55@", 1) }
	for _, test := range []struct {
		name, url string
		redirect  string
		want      []string
	}{
		{"own", w.own.URL + "/x", "", []string{w.own.URL + " " + login}},
		{"the same host without TLS", w.ownHTTP.URL, "", []string{w.ownHTTP.URL + " "}},
		{"the same host and another port", w.foreign.URL, "", []string{w.foreign.URL + " "}},
		{"own, which leads to the same host without TLS", w.own.URL, w.ownHTTP.URL, []string{w.own.URL + " " + login, w.ownHTTP.URL + " "}},
		{"own, which leads elsewhere", w.own.URL, w.foreign.URL, []string{w.own.URL + " " + login, w.foreign.URL + " "}},
		{"one that leads to an own origin", w.foreign.URL, w.own.URL, []string{w.foreign.URL + " ", w.own.URL + " "}},
		{"one that leads to an own origin with a login", w.foreign.URL, own(w.own), []string{w.foreign.URL + " ", w.own.URL + " "}},
		{"a login in a URL", own(w.foreign), "", []string{w.foreign.URL + " " + login}},
		{"a login in a URL without TLS", own(w.ownHTTP), "", []string{w.ownHTTP.URL + " "}},
		{"a login in a URL that leads elsewhere", own(w.foreign), w.ownHTTP.URL, []string{w.foreign.URL + " " + login, w.ownHTTP.URL + " "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.asked, w.answer = nil, func(rw http.ResponseWriter, r *http.Request) {
				if test.redirect != "" && r.URL.Path != "/there" {
					http.Redirect(rw, r, test.redirect+"/there", http.StatusFound)
				}
			}
			require.NoError(t, w.get(w.access(), test.url))
			require.Equal(t, test.want, w.asked)
		})
	}
}

func TestAWayThatLeadsHomeAgainGetsNoLoginThere(t *testing.T) {
	w := newWorld(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			http.Redirect(rw, r, w.foreign.URL+"/2", http.StatusFound)
		case "/2":
			http.Redirect(rw, r, w.own.URL+"/3", http.StatusFound)
		}
	}
	require.NoError(t, w.get(w.access(), w.own.URL+"/"))
	require.Equal(t, []string{w.own.URL + " " + login, w.foreign.URL + " ", w.own.URL + " "}, w.asked)
}

// Generated chains of redirects between an own origin, others, and addresses that must not be reached: no login leaves for another
// origin or without TLS, and no connection is made to a private address that is not allowed.
func TestWhateverARedirectSaysLoginsAndConnectionsStayWhereTheyMayGo(t *testing.T) {
	w := newWorld(t)
	forbidden := []string{"http://127.0.0.2:80", "http://10.1.2.3", "https://[::1]:6443", "http://169.254.169.254", "http://[::ffff:127.0.0.2]", "http://0.0.0.0:1", "https://192.168.0.1", "http://[fd00::1]", "http://[64:ff9b::a01:203]", "http://100.64.0.1"}
	random := rand.New(rand.NewPCG(33, 1))
	for range 300 {
		servers := append([]string{w.own.URL, w.ownHTTP.URL, w.foreign.URL}, forbidden[random.IntN(len(forbidden))])
		var chain []string
		for range 1 + random.IntN(4) {
			at := servers[random.IntN(len(servers))]
			if random.IntN(3) == 0 {
				at = strings.Replace(at, "://", "://robot:pa55@", 1)
			}
			chain = append(chain, fmt.Sprintf("%s/%d", at, len(chain)+1))
		}
		w.asked, w.dialed = nil, nil
		w.answer = func(rw http.ResponseWriter, r *http.Request) {
			var i int
			if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err == nil && i < len(chain) {
				http.Redirect(rw, r, chain[i], http.StatusFound)
			}
		}
		err := w.get(w.access(), chain[0])
		first, _ := url.Parse(chain[0])
		for _, asked := range w.asked {
			if origin, authorization, _ := strings.Cut(asked, " "); authorization != "" {
				require.True(t, strings.HasPrefix(origin, "https://"), "%v: %s", chain, asked)
				require.Equal(t, first.Scheme+"://"+first.Host, origin, "%v", chain)
			}
		}
		for _, address := range w.dialed {
			require.Contains(t, []string{w.own.Listener.Addr().String(), w.ownHTTP.Listener.Addr().String(), w.foreign.Listener.Addr().String()}, address, "%v", chain)
		}
		for i, hop := range chain {
			u, _ := url.Parse(hop)
			if "http://"+u.Host != w.ownHTTP.URL && "https://"+u.Host != w.own.URL && "https://"+u.Host != w.foreign.URL {
				require.ErrorAs(t, err, new(*RefusedError), "hop %d of %v", i, chain)
				break
			}
		}
	}
}

func TestKindsOfAddresses(t *testing.T) {
	for text, want := range map[string]kind{
		"127.0.0.1": nearby, "127.9.9.9": nearby, "::1": nearby, "0.0.0.0": nearby, "0.1.2.3": nearby, "::": nearby, "169.254.169.254": nearby, "fe80::1": nearby, "224.0.0.1": nearby, "255.255.255.255": nearby,
		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "100.64.0.1": private, "fd12::1": private, "198.18.0.1": private,
		"64:ff9b::7f00:1": nearby, "64:ff9b::a00:1": private, "2002:7f00:1::": nearby, "2002:a00:1::1": private, "::127.0.0.1": nearby,
		"8.8.8.8": public, "172.32.0.1": public, "2606:4700::1111": public, "64:ff9b::808:808": public, "100.128.0.1": public,
	} {
		require.Equal(t, want, kindOf(netip.MustParseAddr(text)), text)
	}
}

func TestWhoMayBeAtAPrivateAddress(t *testing.T) {
	refused := errors.New("stopped before it connects")
	for _, test := range []struct {
		name       string
		own, allow []string
		addr, want string // the beginning of the error
	}{
		{"a private address of others", nil, nil, "10.1.2.3:443", `host "10.1.2.3" has a private address: to allow it, add it to the Platform object, as spec.sources.allowPrivate: [10.1.2.3]`},
		{"its network is allowed", nil, []string{"10.1.0.0/16"}, "10.1.2.3:443", ""},
		{"another network is allowed", nil, []string{"10.2.0.0/16"}, "10.1.2.3:443", `host "10.1.2.3" has a private`},
		{"the host is allowed on one port", nil, []string{"localhost:81"}, "localhost:81", ""},
		{"the host on another port", nil, []string{"localhost:81"}, "localhost:82", `host "localhost" is this machine`},
		{"an own host", []string{"https://localhost/org"}, nil, "localhost:443", ""},
		{"an own host by ssh", []string{"https://localhost/org"}, nil, "localhost:22", ""},
		{"another port of an own host", []string{"https://localhost/org"}, nil, "localhost:6443", `host "localhost" is this machine`},
		{"an own host with a port", []string{"oci://localhost:5000/edge"}, nil, "localhost:5000", ""},
		{"an own repository of ssh", []string{"git@10.1.2.3:org/x"}, nil, "10.1.2.3:22", ""},
		{"a folder is no host", []string{"./localhost", "/localhost", "oci-layout:localhost", "localhost#main", "file:///localhost"}, nil, "localhost:8443", `host "localhost" is this machine`},
		{"a metadata service", nil, nil, "169.254.169.254:80", `host "169.254.169.254" is this machine, or on its own link`},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := New(test.own...)
			a.Allow(test.allow...)
			a.connecting = func(string) error { return refused }
			_, err := a.Dial(t.Context(), "tcp", test.addr)
			if test.want == "" {
				require.ErrorIs(t, err, refused)
				return
			}
			var e *RefusedError
			require.ErrorAs(t, err, &e)
			require.True(t, strings.HasPrefix(e.Error(), test.want), e.Error())
			require.Equal(t, e.Error(), Explain(err).Error())
		})
	}
}

func TestBehindAProxyNamesAreLeftToIt(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.String()) }))
	defer proxy.Close()
	w := &world{t: t}
	a := New()
	a.proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	require.NoError(t, w.get(a, "http://git.internal/x"))
	require.Equal(t, []string{"http://git.internal/x"}, asked, "the proxy itself may be at any address")
	for _, text := range []string{"http://10.1.2.3/x", "http://127.0.0.1:1/", "http://localhost/", "http://a.localhost/", "http://[::1]/", "http://169.254.169.254/"} {
		require.ErrorAs(t, w.get(a, text), new(*RefusedError), text)
	}
	require.Len(t, asked, 1)
}

func TestSSHIsJudgedLikeTheRest(t *testing.T) {
	t.Setenv("ALL_PROXY", "")
	a := New("git@10.1.2.3:org/base")
	a.Allow("10.9.0.0/16")
	dialer := func(ctx context.Context, host string, port int) proxy.ContextDialer {
		text, err := a.SSHProxy(ctx, host, port)
		require.NoError(t, err)
		u, err := url.Parse(text)
		require.NoError(t, err)
		d, err := proxy.FromURL(u, proxy.Direct)
		require.NoError(t, err)
		return d.(proxy.ContextDialer)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	dial := func(d proxy.ContextDialer) (net.Conn, error) {
		return d.DialContext(t.Context(), "tcp", server.Addr().String())
	}
	_, err = dial(dialer(t.Context(), "git.example", 2222))
	require.ErrorAs(t, err, new(*RefusedError), "whatever the settings of ssh make of the name")
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := dial(dialer(ctx, "10.1.2.3", 0))
	require.NoError(t, err, "the platform's own")
	a.Allow("127.0.0.0/8")
	_, err = dial(dialer(ctx, "git.example", 2222))
	require.NoError(t, err)
	cancel()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed, "it closes with the context")
	a = New()
	t.Setenv("ALL_PROXY", "socks5://proxy:1080")
	_, err = a.SSHProxy(t.Context(), "127.0.0.1", 0)
	require.ErrorAs(t, err, new(*RefusedError))
}

func TestWhatAllowPrivateMayHold(t *testing.T) {
	for _, good := range []string{"git.plant-7", "git.plant-7:8443", "10.0.0.0/8", "10.1.2.3", "fd00::/8", "[fd00::1]:443", "localhost"} {
		require.NoError(t, CheckAllowed(good), good)
	}
	for _, bad := range []string{"", "0.0.0.0/0", "::/0", "https://git.plant-7", "git.plant-7/org", "*.plant-7", "user@host", "10.0.0.0/33", "a b", "host:"} {
		require.Error(t, CheckAllowed(bad), bad)
	}
}

func TestErrorsHoldNoByteOfAnAnswer(t *testing.T) {
	const secret = "root:x:0:0"
	ours := errors.New("ours")
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"an error of a parser", fmt.Errorf("yaml: cannot unmarshal %q", secret), "its answer cannot be understood"},
		{"a malformed response", &url.Error{Op: "Get", URL: "http://x", Err: fmt.Errorf("malformed HTTP response %q", secret)}, "its answer cannot be understood"},
		{"one of ours within", fmt.Errorf("%s: %w", secret, fmt.Errorf("more than 3 bytes: %w", ours)), "more than 3 bytes: ours"},
		{"one of several", errors.Join(errors.New(secret), fmt.Errorf("%w: %s: %w", fs.ErrExist, secret, fmt.Errorf("more than 3 bytes: %w", ours))), "more than 3 bytes: ours"},
		{"ours beside another", fmt.Errorf("%w: %w", ours, errors.New(secret)), "ours"},
		{"an answer that ends", fmt.Errorf("%s: %w", secret, io.ErrUnexpectedEOF), "the answer ends too early"},
		{"a name that is in a redirect", &net.DNSError{Err: "no such host", Name: secret, IsNotFound: true}, "no such host"},
		{"time", fmt.Errorf("%s: %w", secret, context.DeadlineExceeded), "no answer in time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Explain(test.err, ours)
			require.EqualError(t, err, test.want)
			require.ErrorIs(t, err, test.err)
			require.EqualError(t, Explain(fmt.Errorf("index.yaml: %w", err)), test.want)
		})
	}
	require.NoError(t, Explain(nil))
}
