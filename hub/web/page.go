package web

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
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
	answers func(*http.Request) (Answers, error)
	now     func() time.Time
	fail    func(http.ResponseWriter, *http.Request, error)
	page    *template.Template

	environments *template.Template
}

// fleetPage is the data of assets/fleet.html: rows of one kind.
type fleetPage struct {
	Kind     string
	Kinds    []link
	Query    fleet.Query
	State    bundle.State // the one that is chosen, if it is one
	Filtered bool
	States   []bundle.State
	// Totals count all rows that the query chooses, those of a state with a link to its rows.
	Count       int
	Totals      []total
	Clusters    []fleet.Cluster
	Deployments []fleet.Deployment
	// Unknown is set instead of rows if the query has a name that nothing has.
	Unknown *fleet.UnknownNameError
	Next    string // a link, empty on the last page
	JSON    string // a link
	// Now is the moment of the rows. It is Query.AsOf for the past, and then Present links to the rows of now.
	Now     time.Time
	Present string
	// ReadAt is zero but while the database cannot be read.
	ReadAt time.Time
}

type (
	link  struct{ Name, Link string }
	total struct {
		Name  string
		Count int
		Link  string
	}
)

// The kinds of rows, and where their pages are.
const (
	clustersKind    = "clusters"
	deploymentsKind = "deployments"
	clustersPath    = "/"
	deploymentsPath = "/deployments"

	environmentsKind = "environments"
	environmentsPath = "/environments"
)

// defaultRows is the number of rows of one page.
const defaultRows = 500

func (s *site) getClusters(w http.ResponseWriter, r *http.Request) {
	s.showFleet(w, r, clustersKind, func(from fleet.Answers, p *fleetPage) (fleet.Totals, string, error) {
		list, err := from.Clusters(r.Context(), p.Query)
		p.Clusters, p.ReadAt = list.Clusters, list.ReadAt
		return list.Totals, list.Next, err
	})
}

func (s *site) getDeployments(w http.ResponseWriter, r *http.Request) {
	s.showFleet(w, r, deploymentsKind, func(from fleet.Answers, p *fleetPage) (fleet.Totals, string, error) {
		list, err := from.Deployments(r.Context(), p.Query)
		p.Deployments, p.ReadAt = list.Deployments, list.ReadAt
		return list.Totals, list.Next, err
	})
}

// showFleet shows the rows that read fills in. The page works without a script, and all that agents said is escaped.
func (s *site) showFleet(w http.ResponseWriter, r *http.Request, kind string, read func(fleet.Answers, *fleetPage) (totals fleet.Totals, next string, err error)) {
	values := r.URL.Query()
	q, err := fleet.ParseQuery(values, s.now())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page := fleetPage{Kind: kind, Query: q, States: store.States(), Now: s.now().UTC()}
	limit := page.Query.Limit
	page.Query.Limit = 0
	page.Filtered = len(page.Query.Values()) > 0
	page.Query.Limit = min(cmp.Or(limit, defaultRows), fleet.MaxRows)
	if len(q.State) == 1 {
		page.State = q.State[0]
	}
	from, err := s.answers(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	totals, next, err := read(from, &page)
	if errors.As(err, &page.Unknown) {
		status = http.StatusNotFound
	} else if err != nil {
		s.fail(w, r, err)
		return
	}
	if !q.AsOf.IsZero() { // 24h is another moment with each click
		values.Set("asOf", fleet.FormatMoment(q.AsOf))
		page.Now = q.AsOf
	}
	page.addLinks(r.URL.Path, values, totals, next)
	s.write(w, r, s.page, status, page)
}

// write answers with a page.
func (s *site) write(w http.ResponseWriter, r *http.Request, t *template.Template, status int, page any) {
	var html bytes.Buffer
	if err := t.Execute(&html, page); err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = html.WriteTo(w) // the other side has gone
}

// addLinks adds what leads on from a page.
func (p *fleetPage) addLinks(path string, values url.Values, totals fleet.Totals, next string) {
	for name := range values {
		values[name] = slices.DeleteFunc(values[name], func(v string) bool { return v == "" })
	}
	to := func(path, name, value string) string {
		with := maps.Clone(values)
		if with.Set(name, value); value == "" {
			with.Del(name)
		}
		return linkTo(path, with)
	}
	if next != "" {
		p.Next = to(path, "after", next)
	}
	values.Del("after")
	if !p.Query.AsOf.IsZero() {
		p.Present = to(path, "asOf", "")
	}
	p.Kinds = []link{{clustersKind, linkTo(clustersPath, values)}, {deploymentsKind, linkTo(deploymentsPath, values)}, {environmentsKind, atMoment(environmentsPath, p.Query.AsOf)}}
	p.JSON = linkTo("/v1/"+p.Kind, values)
	p.Count = totals.Count
	states := slices.SortedFunc(maps.Keys(totals.States), func(a, b bundle.State) int {
		return cmp.Or(cmp.Compare(fleet.Severity(a), fleet.Severity(b)), cmp.Compare(a, b))
	})
	for _, state := range states {
		p.Totals = append(p.Totals, total{string(state), totals.States[state], to(path, "state", string(state))})
	}
	for _, r := range slices.Sorted(maps.Keys(totals.Relations)) {
		p.Totals = append(p.Totals, total{string(r), totals.Relations[r], to(path, "relation", string(r))})
	}
}

func linkTo(path string, q url.Values) string {
	return (&url.URL{Path: path, RawQuery: q.Encode()}).String()
}

// atMoment returns a link to a page as of a moment, which is now if that is zero. More are names and values of other parameters.
func atMoment(path string, asOf time.Time, more ...string) string {
	q := url.Values{}
	if !asOf.IsZero() {
		q.Set("asOf", fleet.FormatMoment(asOf))
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return linkTo(path, q)
}

// shortName is how much of a commit, or of a key's id, people see.
const shortName = 8

// parsed parses a page, which is embedded.
func parsed(name string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"ago":   bundle.Ago,
		"at":    atMoment,
		"list":  func(all []string) string { return strings.Join(all, ", ") },
		"short": func(name string) string { return name[:min(len(name), shortName)] },
		"name":  func(r *bundle.ReportRelease) string { return bundle.ReleaseName(r.Number, r.Digest) },
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(assets(), name))
}
