// Package web shows a fleet to people: pages for a browser.
//
// Begin with Routes, and put Errors around the whole handler of a hub. Each page is a template in assets and a struct that embeds frame,
// which has what all pages share: navigation, filters, links and the footer. A page that is about the past keeps its moment in each of
// its links. The pages work without their scripts, a build step or the internet, and escape all text of agents. What people change goes through
// Actions: a page shows it and asks once, and its form does it.
package web

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/ledger"
	documentation "github.com/wherry-dev/wherry/docs/site"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Answers is what the pages ask; a *fleet.View answers.
type Answers interface {
	fleet.Answers
	// Decided returns the decisions about an environment, newest first.
	Decided(ctx context.Context, platform, environment string) ([]fleet.Decided, error)
	// Position is that of the newest event that answers have.
	Position() store.Position
}

// Where the pages are.
const (
	overviewPath     = "/"
	workloadsPath    = "/workloads"
	clustersPath     = "/clusters"
	deploymentsPath  = "/deployments"
	environmentsPath = "/environments"
	releasesPath     = "/releases"
	changesPath      = "/changes"
	searchPath       = "/search"
	docsPath         = "/docs/"
	tokensPath       = "/tokens"
	accessPath       = "/access"
	auditPath        = "/audit"
)

// Options are the parts of the pages. All are required, but for Ledger and TrustEnds.
type Options struct {
	// Answers returns what whoever sends a request may ask, and Actions does what people change.
	Answers func(*http.Request) (Answers, error)
	Actions Actions
	// Ledger returns what the record of an environment says of workloads; nil if this hub cannot read it. Without it, pages do not offer
	// decisions about workloads.
	Ledger func(ctx context.Context, environment string, record digest.Digest) (*ledger.Ledger, error)
	// TrustEnds returns when the trust document in force of each platform expires; nil for none.
	TrustEnds func() map[string]time.Time
	Now       func() time.Time
	// Fail answers a request that cannot be answered; an error that wraps store.ErrInvalid is the client's fault.
	Fail func(http.ResponseWriter, *http.Request, error)
}

// Routes returns the pages, with what each needs.
func Routes(o Options) []access.Route {
	s := &site{Options: o, pages: parsed()}
	page := func(pattern string, p access.Permission, show func(*http.Request, *frame, Answers) (page any, status int, err error)) access.Route {
		return access.Route{Pattern: pattern, Permission: p, Handler: s.handler(show)}
	}
	form := func(pattern string, p access.Permission, do func(*http.Request) (next string, err error)) access.Route {
		return access.Route{Pattern: "POST " + pattern, Permission: p, Handler: s.doing(do)}
	}
	file := func(name string) access.Route {
		return access.Route{Pattern: "GET /" + name, Permission: access.Open, Handler: http.FileServerFS(assets())}
	}
	const decide, retire, unshare, revoke, end = environmentsPath + "/{environment}/{action}", clustersPath + "/{cluster}/retire", clustersPath + "/{cluster}/unshare", tokensPath + "/{token}/revoke", accessPath + "/{id}/end"
	return []access.Route{
		page("GET "+overviewPath+"{$}", access.Read, s.showOverview),
		page("GET "+workloadsPath, access.Read, showWorkloads),
		page("GET "+clustersPath, access.Read, showClusters),
		page("GET "+clustersPath+"/{cluster}", access.Read, showCluster),
		page("GET "+deploymentsPath, access.Read, showDeployments),
		page("GET "+environmentsPath, access.Read, showEnvironments),
		page("GET "+environmentsPath+"/{environment}", access.Read, showEnvironments),
		page("GET "+environmentsPath+"/{environment}/review", access.Read, s.showReview),
		page("GET "+releasesPath+"/{release}", access.Read, showRelease),
		page("GET "+changesPath, access.Read, showChanges),
		page("GET "+searchPath, access.Read, showSearch),
		page("GET "+environmentsPath+"/{environment}/"+workloadsWord, access.Approve, s.showContent),
		page("GET "+decide, access.Approve, s.showDecision), form(decide, access.Approve, s.decide),
		page("GET "+retire, access.Operate, s.showRetire), form(retire, access.Operate, s.retire),
		page("GET "+unshare, access.Operate, s.showUnshare), form(unshare, access.Operate, s.unshare),
		page("GET "+tokensPath, access.Operate, s.showTokens), page("POST "+tokensPath, access.Operate, s.createToken),
		page("GET "+revoke, access.Operate, s.showRevoke), form(revoke, access.Operate, s.revoke),
		page("GET "+accessPath, access.Audit, s.showAccess),
		page("GET "+auditPath, access.Audit, s.showAudit),
		page("GET "+end, access.Administer, s.showEnd), form(end, access.Administer, s.end),
		file("style.css"), file("icon.svg"), file("keys.js"), file("live.js"),
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

// parsed returns all pages, which are embedded and parsed once. A page is named by its file.
var parsed = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions()).ParseFS(assets(), "*.html"))
})

// site shows one fleet.
type site struct {
	Options
	pages *template.Template
}

// handler returns the handler of a page. Show returns the page, whose template frame.template names, and a status.
func (s *site) handler(show func(*http.Request, *frame, Answers) (page any, status int, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := newFrame(r, s.Now())
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		f.ledgers = s.Ledger != nil
		from, err := s.Answers(r)
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		position := from.Position() // before the answers, so that nothing is missed
		page, status, err := show(r, f, from)
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		f.watch(r, position)
		var html bytes.Buffer
		if err := s.pages.ExecuteTemplate(&html, f.template, page); err != nil {
			s.Fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", htmlType)
		if r.Method != http.MethodGet { // it may have a secret beside what was sent, which the size would tell if it were compressed
			w.WriteHeader(status)
			_, _ = html.WriteTo(w) // the other side may have gone
			return
		}
		api.WriteBody(w, r, status, &html)
	})
}

const htmlType = "text/html; charset=utf-8"
