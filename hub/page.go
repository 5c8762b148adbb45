package hub

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
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

// fleetPage is what assets/fleet.html shows: rows of one kind.
type fleetPage struct {
	Kind        string
	Kinds       []kindLink
	Filter      Filter
	Filtered    bool
	States      []bundle.State
	Clusters    []ClusterStatus
	Deployments []DeploymentStatus
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

// ShownState is the state as people read it, such as "stale (was compliant)".
func (c ClusterStatus) ShownState() string { return shown(c.State, c.Was) }

// ShownReason is the reason, or else what is odd about the cluster.
func (c ClusterStatus) ShownReason() string {
	switch {
	case !c.SharedSince.IsZero(), c.Conflicts > 0: // the rest may be of either agent
		return string(hubapi.CodeSharedIdentity)
	case c.Reason != "":
		return c.Reason
	case c.Mismatch != "":
		return "Mismatch: " + c.Mismatch
	}
	return ""
}

// ShownState is the state as people read it, such as "stale (was compliant)".
func (d DeploymentStatus) ShownState() string { return shown(d.State, d.Was) }

// ShownVersion is the workload's version as people read it; see ShownVersion.
func (d DeploymentStatus) ShownVersion() string { return ShownVersion(d.Version) }

// InDeployments tells whether the cluster's deployments say why it is in its state, since it does not.
func (c ClusterStatus) InDeployments() bool {
	switch c.State {
	case bundle.Compliant, bundle.Rejected, Stale, Unreported:
		return false
	}
	return c.ShownReason() == ""
}

func (h *Hub) getClusters(w http.ResponseWriter, r *http.Request) {
	h.showFleet(w, r, clustersKind, func(p *fleetPage) (next string, err error) {
		list, err := h.Clusters(r.Context(), p.Filter)
		p.Clusters = list.Clusters
		return list.Next, err
	})
}

func (h *Hub) getDeployments(w http.ResponseWriter, r *http.Request) {
	h.showFleet(w, r, deploymentsKind, func(p *fleetPage) (next string, err error) {
		list, err := h.Deployments(r.Context(), p.Filter)
		p.Deployments = list.Deployments
		return list.Next, err
	})
}

// showFleet shows the rows that read fills in. The page works without a script, and all that agents said is
// escaped.
func (h *Hub) showFleet(w http.ResponseWriter, r *http.Request, kind string, read func(*fleetPage) (next string, err error)) {
	f, err := filterOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	page := fleetPage{Kind: kind, Filter: f, States: States(), Now: h.now().UTC()}
	page.Filtered = f.Environment+f.Type+f.Workload+string(f.State)+f.After != ""
	next, err := read(&page)
	if err != nil {
		h.fail(w, r, err)
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
	if err := h.fleet.Execute(&html, page); err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	_, _ = html.WriteTo(w) // the other side has gone
}

func linkTo(path string, q url.Values) string {
	return (&url.URL{Path: path, RawQuery: q.Encode()}).String()
}

// fleetTemplate parses the page.
func fleetTemplate(now func() time.Time) (*template.Template, error) {
	return template.New("fleet.html").Funcs(template.FuncMap{
		"ago":   func(t time.Time) string { return Ago(t, now()) },
		"name":  func(r *bundle.ReportRelease) string { return bundle.ReleaseName(r.Number, r.Digest) },
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(assets(), "fleet.html")
}
