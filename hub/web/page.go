package web

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

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

// site shows one fleet.
type site struct {
	fleet store.Fleet
	now   func() time.Time
	fail  func(http.ResponseWriter, *http.Request, error)
	page  *template.Template
}

// fleetPage is the data of assets/fleet.html: rows of one kind.
type fleetPage struct {
	Kind        string
	Kinds       []kindLink
	Filter      store.Filter
	Filtered    bool
	States      []bundle.State
	Clusters    []store.ClusterStatus
	Deployments []store.DeploymentStatus
	Next        string // a link, empty on the last page
	Now         time.Time
}

// kindLink leads to the rows of a kind, chosen by the same filter.
type kindLink struct{ Name, Link string }

// The kinds of rows, and where their pages are.
const (
	clustersKind    = "clusters"
	deploymentsKind = "deployments"
	clustersPath    = "/"
	deploymentsPath = "/deployments"
)

func (s *site) getClusters(w http.ResponseWriter, r *http.Request) {
	s.showFleet(w, r, clustersKind, func(p *fleetPage) (next string, err error) {
		list, err := s.fleet.Clusters(r.Context(), p.Filter)
		p.Clusters = list.Clusters
		return list.Next, err
	})
}

func (s *site) getDeployments(w http.ResponseWriter, r *http.Request) {
	s.showFleet(w, r, deploymentsKind, func(p *fleetPage) (next string, err error) {
		list, err := s.fleet.Deployments(r.Context(), p.Filter)
		p.Deployments = list.Deployments
		return list.Next, err
	})
}

// showFleet shows the rows that read fills in. The page works without a script, and all that agents said is
// escaped.
func (s *site) showFleet(w http.ResponseWriter, r *http.Request, kind string, read func(*fleetPage) (next string, err error)) {
	f, err := filterOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page := fleetPage{Kind: kind, Filter: f, States: store.States(), Now: s.now().UTC()}
	page.Filtered = f.Environment+f.Type+f.Workload+string(f.State)+f.After != ""
	next, err := read(&page)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	q := r.URL.Query()
	if next != "" {
		q.Set("after", next)
		page.Next = linkTo(r.URL.Path, q)
	}
	q.Del("after")
	page.Kinds = []kindLink{{clustersKind, linkTo(clustersPath, q)}, {deploymentsKind, linkTo(deploymentsPath, q)}}
	var html bytes.Buffer
	if err := s.page.Execute(&html, page); err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = html.WriteTo(w) // the other side has gone
}

func linkTo(path string, q url.Values) string {
	return (&url.URL{Path: path, RawQuery: q.Encode()}).String()
}

// fleetTemplate parses the page, which is embedded.
func fleetTemplate(now func() time.Time) *template.Template {
	return template.Must(template.New("fleet.html").Funcs(template.FuncMap{
		"ago":   func(t time.Time) string { return bundle.Ago(t, now()) },
		"name":  func(r *bundle.ReportRelease) string { return bundle.ReleaseName(r.Number, r.Digest) },
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(assets(), "fleet.html"))
}
