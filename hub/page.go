package hub

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/wherry-dev/wherry/bundle"
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

// fleetPage is what assets/fleet.html shows.
type fleetPage struct {
	Filter   Filter
	Filtered bool
	States   []bundle.State
	Rows     []ClusterStatus
	Next     string // a link, empty on the last page
	Now      time.Time
}

// ShownState is the state as people read it, such as "stale (was compliant)".
func (c ClusterStatus) ShownState() string { return shown(c.State, c.Was) }

// ShownReason is the reason, or else what is odd about the cluster.
func (c ClusterStatus) ShownReason() string {
	switch {
	case c.Reason != "":
		return c.Reason
	case c.Conflicts > 0:
		return "SharedIdentity"
	case c.Mismatch != "":
		return "Mismatch: " + c.Mismatch
	}
	return ""
}

// ShownState is the state as people read it, such as "stale (was compliant)".
func (d DeploymentStatus) ShownState() string { return shown(d.State, d.Was) }

// ShownVersion is what runs as people read it: the version, or else the beginning of the revision.
func (d DeploymentStatus) ShownVersion() string { return cmp.Or(d.Version, ShortRevision(d.Revision)) }

// getFleet shows the clusters. It works without a script, and all that agents said is escaped.
func (h *Hub) getFleet(w http.ResponseWriter, r *http.Request) {
	f, err := filterOf(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	list, err := h.Clusters(r.Context(), f)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	now := h.now().UTC()
	page := fleetPage{Filter: f, States: States(), Rows: list.Clusters, Now: now}
	page.Filtered = f.Environment+f.Type+f.Workload+string(f.State)+f.After != ""
	if list.Next != "" {
		q := r.URL.Query()
		q.Set("after", list.Next)
		page.Next = (&url.URL{Path: "/", RawQuery: q.Encode()}).String()
	}
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

// fleetTemplate parses the page.
func fleetTemplate(now func() time.Time) (*template.Template, error) {
	return template.New("fleet.html").Funcs(template.FuncMap{
		"ago":   func(t time.Time) string { return Ago(t, now()) },
		"short": ShortDigest,
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(assets(), "fleet.html")
}
