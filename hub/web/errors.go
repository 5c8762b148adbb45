package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// errorPage is the data of assets/error.html.
type errorPage struct {
	*frame
	Status  int
	Heading string
	Message string
	Near    []string
	// Wait is how many seconds to wait before the next try; empty if that does not help.
	Wait string
	// SignIn is where the person signs in; empty if people use access tokens.
	SignIn string
	kind   string // of hubapi.Error
}

// headingOf says what happened, for people.
func headingOf(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "The address has a mistake"
	case http.StatusUnauthorized:
		return "You are not signed in"
	case http.StatusForbidden:
		return "You may not do this"
	case http.StatusNotFound:
		return "There is no such page"
	case http.StatusMethodNotAllowed:
		return "This is not a page"
	case http.StatusGone:
		return "The hub does not keep this any more"
	case http.StatusTooManyRequests:
		return "Too many requests"
	case http.StatusServiceUnavailable:
		return "The hub cannot answer now"
	}
	return http.StatusText(status)
}

// Errors returns a handler that answers a browser with a page where next answers with an error for programs. SignIn returns the address
// at which a person signs in and goes on with a page; empty if people use access tokens.
func Errors(signIn func(page string) string, next http.Handler) http.Handler {
	pages := parsed()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			next.ServeHTTP(w, r)
			return
		}
		caught := &catcher{ResponseWriter: w}
		next.ServeHTTP(caught, r)
		if caught.status == 0 {
			return
		}
		page, back := caught.page(), "/"
		if r.Method == http.MethodGet && page.Status == http.StatusUnauthorized {
			back = r.URL.RequestURI()
		}
		page.SignIn = signIn(back)
		w.Header().Del("Content-Length")
		w.Header().Set("Content-Type", htmlType)
		if page.SignIn != "" && page.kind == hubapi.KindSession && r.Method == http.MethodGet {
			http.Redirect(w, r, page.SignIn, http.StatusSeeOther)
			return
		}
		var html bytes.Buffer
		if err := pages.ExecuteTemplate(&html, "error.html", page); err != nil {
			http.Error(w, page.Message, page.Status)
			return
		}
		w.WriteHeader(page.Status)
		_, _ = html.WriteTo(w) // the other side may have gone
	})
}

// SignedOut shows that a person is signed out of the hub, where they sign in again, and where they sign out at the provider of accounts; that
// is empty if it has no page for it.
func SignedOut(w http.ResponseWriter, _ *http.Request, signIn, provider string) {
	var html bytes.Buffer
	page := struct {
		*frame
		SignIn, Provider string
	}{&frame{Title: "You are signed out"}, signIn, provider}
	if err := parsed().ExecuteTemplate(&html, "signedout.html", page); err != nil {
		http.Error(w, page.Title, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", htmlType)
	_, _ = html.WriteTo(w) // the other side may have gone
}

// catcher keeps an answer that is an error, and passes on any other.
type catcher struct {
	http.ResponseWriter
	passes bool
	status int // of an error
	body   bytes.Buffer
}

// maxError bounds what is kept of an error, in bytes.
const maxError = 64 << 10

// WriteHeader implements http.ResponseWriter.
func (c *catcher) WriteHeader(status int) {
	if c.status != 0 {
		return
	}
	if status < http.StatusBadRequest || c.passes {
		c.passes = c.passes || status >= http.StatusOK
		c.ResponseWriter.WriteHeader(status)
		return
	}
	if strings.HasPrefix(c.Header().Get("Content-Type"), "text/html") { // it is a page
		c.passes = true
		c.ResponseWriter.WriteHeader(status)
		return
	}
	c.status = status
}

// Write implements http.ResponseWriter.
func (c *catcher) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.passes = true
		return c.ResponseWriter.Write(p)
	}
	c.body.Write(p[:min(len(p), maxError-c.body.Len())])
	return len(p), nil
}

// Unwrap is for http.ResponseController.
func (c *catcher) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// page returns the error as a page.
func (c *catcher) page() errorPage {
	var said hubapi.Error
	if json.Unmarshal(c.body.Bytes(), &said) != nil || said.Message == "" {
		said = hubapi.Error{Message: strings.TrimSpace(c.body.String())}
	}
	heading := headingOf(c.status)
	if c.status == http.StatusNotFound && said.Code != "" {
		heading = "There is nothing of this name"
	}
	if c.status == http.StatusNotFound && said.Code == "" {
		said.Message = "Nothing is at this address."
	}
	return errorPage{
		frame: &frame{Title: heading, Nav: navigation(func(path string) string { return path })}, Status: c.status,
		kind: said.Kind, Heading: heading, Message: strings.TrimPrefix(said.Message, store.ErrInvalid.Error()+": "), Near: said.Near, Wait: c.Header().Get("Retry-After"),
	}
}
