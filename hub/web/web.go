// Package web shows a fleet to people: pages for a browser.
//
// Begin with Routes, and put Errors around the whole handler of a hub. Each page is a template in assets and a struct that embeds frame,
// which has what all pages share: navigation, filters, links and the footer. A page that is about the past keeps its moment in each of
// its links. The pages work without a script, a build step or the internet, and escape all text of agents. Nothing here writes.
package web

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"

	documentation "github.com/wherry-dev/wherry/docs/site"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// Answers is what the pages ask; a *fleet.View answers.
type Answers interface {
	fleet.Answers
	// Decided returns the decisions about an environment, newest first.
	Decided(ctx context.Context, platform, environment string) ([]fleet.Decided, error)
}

// Where the pages are.
const (
	overviewPath     = "/"
	workloadsPath    = "/workloads"
	clustersPath     = "/clusters"
	deploymentsPath  = "/deployments"
	environmentsPath = "/environments"
	changesPath      = "/changes"
	searchPath       = "/search"
	docsPath         = "/docs/"
)

// Routes returns the pages. Answers returns what whoever sends a request may ask. Fail answers a request that cannot be
// answered; an error that wraps store.ErrInvalid is the client's fault.
func Routes(answers func(*http.Request) (Answers, error), now func() time.Time, fail func(http.ResponseWriter, *http.Request, error)) []access.Route {
	s := &site{answers: answers, now: now, fail: fail, pages: parsed()}
	page := func(path string, show func(*http.Request, *frame, Answers) (page any, status int, err error)) access.Route {
		return access.Route{Pattern: "GET " + path, Permission: access.Read, Handler: s.handler(show)}
	}
	return []access.Route{
		page(overviewPath+"{$}", showOverview),
		page(workloadsPath, showWorkloads),
		page(clustersPath, showClusters),
		page(clustersPath+"/{cluster}", showCluster),
		page(deploymentsPath, showDeployments),
		page(environmentsPath, showEnvironments),
		page(changesPath, showChanges),
		page(searchPath, showSearch),
		{Pattern: "GET /style.css", Permission: access.Open, Handler: http.FileServerFS(assets())},
		{Pattern: "GET " + docsPath, Permission: access.Open, Handler: http.StripPrefix(strings.TrimSuffix(docsPath, "/"), documentation.Handler())},
	}
}

//go:embed assets
var embedded embed.FS

// assets are the files that pages refer to.
func assets() fs.FS {
	sub, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// parsed parses all pages, which are embedded. A page is named by its file.
func parsed() *template.Template {
	return template.Must(template.New("").Funcs(functions()).ParseFS(assets(), "*.html"))
}

// site shows one fleet.
type site struct {
	answers func(*http.Request) (Answers, error)
	now     func() time.Time
	fail    func(http.ResponseWriter, *http.Request, error)
	pages   *template.Template
}

// handler returns the handler of a page. Show returns the page, whose template frame.template names, and a status.
func (s *site) handler(show func(*http.Request, *frame, Answers) (page any, status int, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := newFrame(r, s.now())
		if err != nil {
			s.fail(w, r, err)
			return
		}
		from, err := s.answers(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		page, status, err := show(r, f, from)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		var html bytes.Buffer
		if err := s.pages.ExecuteTemplate(&html, f.template, page); err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", htmlType)
		w.WriteHeader(status)
		_, _ = html.WriteTo(w) // the other side may have gone
	})
}

const htmlType = "text/html; charset=utf-8"
