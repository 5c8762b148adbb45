package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"

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
