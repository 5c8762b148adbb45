package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// answering starts a registry with a single answer and sets a variable to its host:
//
//	answering STATUS VAR
//
// With status 401 it has an answer for those who log in as operator with the password "secret": it
// knows no repository.
func answering(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: answering STATUS VAR")
	}
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if status == http.StatusUnauthorized && user == "operator" && password == "secret" {
			_, _ = w.Write([]byte(`{"repositories":[]}`))
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
		w.WriteHeader(status)
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[1], server.Listener.Addr().String())
}

// tokenServices is a script's registry whose token service is at a host of its own.
type tokenServices struct {
	registry *httptest.Server
	service  atomic.Pointer[string] // its URL
	secrets  atomic.Int64           // how often the password has come to the service
}

type tokenServicesKey struct{}

// tokenService starts a registry that knows no repository, and its token service, or only another one in place of that:
//
//	tokenservice VAR SERVICEVAR
//
// The service gives a token to operator with the password "secret".
func tokenService(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tokenservice VAR SERVICEVAR")
	}
	s := ts.Value(tokenServicesKey{}).(*tokenServices)
	s.secrets.Store(0)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "operator" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.secrets.Add(1)
		_, _ = w.Write([]byte(`{"token":"t"}`))
	}))
	ts.Defer(service.Close)
	s.service.Store(&service.URL)
	if s.registry == nil {
		s.registry = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer t" {
				_, _ = w.Write([]byte(`{"repositories":[]}`))
				return
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="edge"`, *s.service.Load()))
			w.WriteHeader(http.StatusUnauthorized)
		}))
		ts.Defer(s.registry.Close)
	}
	ts.Setenv(args[0], s.registry.Listener.Addr().String())
	ts.Setenv(args[1], service.Listener.Addr().String())
}

// secrets requires how often the password has come to the token service that was started last:
//
//	secrets N
func secrets(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: secrets N")
	}
	s := ts.Value(tokenServicesKey{}).(*tokenServices)
	if got := fmt.Sprint(s.secrets.Load()); got != args[0] {
		ts.Fatalf("the password came to the token service %s times, want %s", got, args[0])
	}
}

// proxying starts a proxy before a server and sets a variable to its host:
//
//	proxying MODE URL-FILE VAR
//
// Mode strip takes away a registry's digests and ETags and drops conditions and ranges, nohead refuses HEAD, both does both, and same
// changes nothing. The file is read for each request, as a server that starts again has another port.
func proxying(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: proxying MODE URL-FILE VAR")
	}
	strip, noHead := args[0] == "strip" || args[0] == "both", args[0] == "nohead" || args[0] == "both"
	file := ts.MkAbs(args[1])
	proxy := &httputil.ReverseProxy{
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if nobody listened
		Rewrite: func(r *httputil.ProxyRequest) {
			text, _ := os.ReadFile(file)
			_, upstream, _ := strings.Cut(strings.TrimSpace(string(text)), "://")
			r.Out.URL.Scheme, r.Out.URL.Host = "http", upstream
			if strip {
				r.Out.Header.Del("If-None-Match")
				r.Out.Header.Del("Range")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if strip {
				r.Header.Del("Docker-Content-Digest")
				r.Header.Del("ETag")
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if noHead && r.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[2], server.Listener.Addr().String())
}
