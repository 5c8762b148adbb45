package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// frame is what all pages share. Its methods make links: to other pages as of the same moment, and to the same page with another
// parameter.
type frame struct {
	template string
	path     string
	values   url.Values // of Query

	Title  string
	Nav    []link
	Crumbs []link // that lead to the page
	// Who is the name, role and scope of whoever asks, who may sign out if they have signed in.
	Who     string
	SignOut bool
	who     access.Identity
	ledgers bool // whether the hub can read them
	Query   fleet.Query
	// Now is the moment that the page is about, Query.AsOf or the present. ReadAt is zero but while the database cannot be read.
	Now, ReadAt time.Time
	// JSON and CSV are links to the same for programs, and Command is the command that shows it. They may be empty.
	JSON, CSV, Command string
	// Live is the stream of what changes on the page from now on; empty for a page that shows none of it, or the past.
	Live string
}

// watched are the templates of pages about what changes.
var watched = []string{"overview.html", "workloads.html", "clusters.html", "cluster.html", "deployments.html", "environments.html", "changes.html"}

// watch sets Live. Everything up to the position is on the page already.
func (f *frame) watch(r *http.Request, position store.Position) {
	if !slices.Contains(watched, f.template) || !f.Query.AsOf.IsZero() {
		return
	}
	q := f.Without("asOf", "silentFor", "sort", "adapter", "image", "relation", "limit", "state") // a row may leave the page, too
	for _, name := range []string{"cluster", "environment"} {
		if v := r.PathValue(name); v != "" {
			q.Set(name, v)
		}
	}
	q.Set("after", strconv.FormatInt(int64(position), 10))
	f.Live = linkTo("/v1/events", q)
}

type link struct {
	Name, Link string
	Current    bool
}

// newFrame returns the frame of the page that a request asks for.
func newFrame(r *http.Request, now time.Time) (*frame, error) {
	q, err := fleet.ParseQuery(r.URL.Query(), now.Truncate(time.Second), parametersOf(r.URL.Path)...) // links have the moment of "24h"
	if err != nil {
		return nil, err
	}
	f := &frame{path: r.URL.EscapedPath(), Query: q, values: q.Values(), Now: cmp.Or(q.AsOf, now).UTC(), Who: whoIs(r)}
	f.who, _ = access.From(r.Context())
	f.SignOut = f.who.Session
	f.Nav = navigation(f.keeping)
	for i, path := range navigated {
		f.Nav[i].Current = path.Link == f.path
	}
	for _, more := range []struct {
		link
		access.Permission
	}{{link{Name: "Enrollment", Link: tokensPath}, access.Operate}, {link{Name: "Access", Link: accessPath}, access.Audit}, {link{Name: "Audit", Link: auditPath}, access.Audit}} {
		if f.who.May(more.Permission) {
			more.Current = more.Link == f.path
			f.Nav = append(f.Nav, more.link)
		}
	}
	return f, nil
}

// parametersOf returns the parameters that a page has beside those of a query.
func parametersOf(path string) []string {
	switch {
	case path == searchPath:
		return []string{"q"}
	case path == auditPath:
		return store.AuditParameters()
	case strings.HasPrefix(path, releasesPath):
		return []string{"against"}
	case path == changesPath || strings.HasPrefix(path, environmentsPath+"/"):
		return []string{"from", "registration"}
	}
	return nil
}

// may reports whether a page offers what changes something: for who has the permission, about now.
func (f *frame) may(p access.Permission) bool { return f.who.May(p) && f.Query.AsOf.IsZero() }

// navigated are the pages that all pages lead to.
var navigated = []link{{Name: "Overview", Link: overviewPath}, {Name: "Workloads", Link: workloadsPath}, {Name: "Clusters", Link: clustersPath}, {Name: "Deployments", Link: deploymentsPath}, {Name: "Environments", Link: environmentsPath}, {Name: "Changes", Link: changesPath}}

// navigation returns links to these pages.
func navigation(to func(path string) string) (all []link) {
	for _, p := range navigated {
		all = append(all, link{Name: p.Name, Link: to(p.Link)})
	}
	return all
}

// whoIs returns the name, role and scope of whoever sends a request; empty if the hub does not ask.
func whoIs(r *http.Request) string {
	who, known := access.From(r.Context())
	if !known {
		return ""
	}
	return who.Name + " (" + strings.Join(append([]string{string(who.Role)}, scopeOf(who.AccessScope)...), ", ") + ")"
}

// scopeOf returns what a scope names.
func scopeOf(s store.AccessScope) []string {
	of := slices.Concat(s.Environments, s.Workspaces)
	if s.Selector != "" {
		of = append(of, s.Selector)
	}
	return of
}

// keeping returns a link to another page that can have the same parameters: one about clusters or deployments.
func (f *frame) keeping(path string) string {
	if filtered := []string{workloadsPath, clustersPath, deploymentsPath}; f.path != path && !(slices.Contains(filtered, path) && slices.Contains(filtered, f.path)) {
		return f.At(path)
	}
	return linkTo(path, f.Without("after", "sort"))
}

// Chooses reports whether a parameter chooses among the rows of the page: nobody knows the images of a change.
func (f *frame) Chooses(name string) bool { return f.path != changesPath || name != "image" }

// only sets the conditions of a page that takes no others.
func (f *frame) only(q fleet.Query) { f.Query, f.values = q, q.Values() }

// At returns a link to a page as of the moment of this one. More are names and values of other parameters; empty values are left out.
func (f *frame) At(path string, more ...string) string {
	q := url.Values{}
	if !f.Query.AsOf.IsZero() {
		q.Set("asOf", fleet.FormatMoment(f.Query.AsOf))
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			q.Set(more[i], more[i+1])
		}
	}
	return linkTo(path, q)
}

// With returns a link to the first rows of this page with another value of a parameter; an empty one removes it.
func (f *frame) With(name, value string) string {
	q := f.Without("after", name)
	if value != "" {
		q.Set(name, value)
	}
	return linkTo(f.path, q)
}

// All returns a link to this page without conditions.
func (f *frame) All() string { return f.At(f.path) }

// Next returns a link to the rows that follow.
func (f *frame) Next(after string) string {
	q := f.Without("after")
	q.Set("after", after)
	return linkTo(f.path, q)
}

// Without returns the parameters of this page but for some.
func (f *frame) Without(names ...string) url.Values {
	q := url.Values{}
	for name, v := range f.values {
		if !slices.Contains(names, name) {
			q[name] = slices.Clone(v)
		}
	}
	return q
}

// Present returns a link to the page as of now; empty if it is that.
func (f *frame) Present() string {
	if f.Query.AsOf.IsZero() {
		return ""
	}
	return f.With("asOf", "")
}

// chip is a condition that chooses rows, and Link the page without it.
type chip struct{ Name, Value, Link string }

// Chips returns all conditions that choose rows, so that none is out of sight.
func (f *frame) Chips() (all []chip) {
	for _, name := range fleet.Parameters() {
		value := f.values.Get(name)
		if value == "" || slices.Contains([]string{"asOf", "sort", "after", "limit"}, name) {
			continue
		}
		if !slices.Contains([]string{"environment", "state", "relation"}, name) {
			all = append(all, chip{name, value, f.With(name, "")})
			continue
		}
		values := strings.Split(value, ",")
		for i, v := range values {
			all = append(all, chip{name, v, f.With(name, strings.Join(slices.Delete(slices.Clone(values), i, i+1), ","))})
		}
	}
	return all
}

// Hidden returns the parameters that a form with some fields has to keep.
func (f *frame) Hidden(fields ...string) []link {
	var all []link
	for _, name := range fleet.Parameters() {
		if v := f.values.Get(name); v != "" && name != "after" && !slices.Contains(fields, name) {
			all = append(all, link{Name: name, Link: v})
		}
	}
	return all
}

// list sets the links of the footer for a list of the API.
func (f *frame) list(kind string) {
	f.JSON = linkTo("/v1/"+kind, f.Without("after"))
	csv := f.Without("after")
	csv.Set("format", "csv")
	f.CSV = linkTo("/v1/"+kind, csv)
	f.Command = f.command("wherry get " + kind)
}

// command returns a command with the flags of the page's parameters.
func (f *frame) command(words string) string {
	for _, name := range fleet.Parameters() {
		value := f.values.Get(name)
		if value == "" || name == "after" || name == "limit" {
			continue
		}
		flag := "--" + name
		switch name {
		case "environment":
			flag = "-e"
		case "selector":
			flag = "-l"
		case "silentFor":
			flag = "--silent-for"
		case "asOf":
			flag = "--as-of"
		}
		words += " " + flag + " " + quoted(value)
	}
	return words
}

// quoted returns a word for a shell.
func quoted(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// selectorOf returns the selector of a label; empty if the label has characters that no selector may have.
func selectorOf(key, value string) string {
	s := key + "=" + value
	if _, err := labels.Parse(s); err != nil {
		return ""
	}
	return s
}

// Labelled returns a link to the clusters with a label; empty if the label has characters that no selector may have.
func (f *frame) Labelled(key, value string) string {
	s := selectorOf(key, value)
	if s == "" {
		return ""
	}
	return f.At(clustersPath, "selector", s)
}

// environmentPath returns the path of the page of an environment, whose name may have any characters.
func environmentPath(name string) string { return environmentsPath + "/" + url.PathEscape(name) }

// linkTo returns a link to a path, in which names are escaped.
func linkTo(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
