package web

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// workloadsPage is the data of assets/workloads.html: workloads by environments.
type workloadsPage struct {
	*frame
	Environments []link
	Rows         []workloadRow
	Unknown      *fleet.UnknownNameError
}

type workloadRow struct {
	Workspace, Workload string
	// First is true for the first workload of its workspace.
	First bool
	Cells []workloadCell
}

// workloadCell is a workload in an environment.
type workloadCell struct {
	Environment string
	// Versions are the most frequent first, More counts those that are not shown.
	Versions []version
	More     int
	States   []total // but for the compliant ones
	// Differs is true if most clusters run another version than in the environment before that has the workload.
	Differs bool
}

type version struct {
	Name, Link string
	Count      int
}

// shownVersions bounds the versions of one cell.
const shownVersions = 3

func showWorkloads(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "workloads.html", "Workloads"
	by := []string{"workspace", "workload", "environment", "version"}
	f.JSON = linkTo("/v1/counts", f.counting(by, ""))
	f.CSV = linkTo("/v1/counts", f.counting(by, "csv"))
	f.Command = f.command("wherry get counts --of deployments --by " + strings.Join(by, ","))
	page := &workloadsPage{frame: f}
	q := f.Query
	q.Sort, q.After, q.Limit = "", "", 0
	versions, err := from.Count(r.Context(), "deployments", by, q)
	if errors.As(err, &page.Unknown) {
		return page, http.StatusNotFound, nil
	} else if err != nil {
		return nil, 0, err
	}
	f.ReadAt = versions.ReadAt
	by[3] = "state"
	states, err := from.Count(r.Context(), "deployments", by, q)
	if err != nil {
		return nil, 0, err
	}
	chain, err := from.Environments(r.Context(), fleet.Query{AsOf: q.AsOf})
	if err != nil {
		return nil, 0, err
	}
	page.addRows(chainOf(chain, versions.Rows), versions.Rows, states.Rows)
	return page, http.StatusOK, nil
}

// shortDigest returns the beginning of a digest.
func shortDigest(s string) string {
	_, digits, _ := strings.Cut(s, ":")
	return cmp.Or(digits, s)[:min(len(cmp.Or(digits, s)), shortName)]
}

// counting returns the parameters of the API's counts of what the page shows.
func (f *frame) counting(by []string, format string) (q map[string][]string) {
	values := f.Without("after", "sort", "limit")
	values.Set("of", "deployments")
	values.Set("by", strings.Join(by, ","))
	if format != "" {
		values.Set("format", format)
	}
	return values
}

// chainOf returns the environments that have rows, in the order of the chain.
func chainOf(all fleet.Environments, rows []fleet.Count) (names []string) {
	for _, e := range all.Environments {
		has := slices.ContainsFunc(rows, func(c fleet.Count) bool { return c.Values[2] == e.Environment })
		if has && !slices.Contains(names, e.Environment) {
			names = append(names, e.Environment)
		}
	}
	return names
}

// addRows adds the workloads, from counts by workspace, workload, environment and version or state.
func (p *workloadsPage) addRows(environments []string, versions, states []fleet.Count) {
	for _, name := range environments {
		p.Environments = append(p.Environments, link{Name: name, Link: p.At(environmentsPath, "environment", name)})
	}
	type place struct{ workspace, workload, environment string }
	placeOf := func(c fleet.Count) place { return place{c.Values[0], c.Values[1], c.Values[2]} }
	linkOf := func(at place, more ...string) string {
		q := p.Without("after", "sort", "limit")
		for i, name := range []string{"workspace", "workload", "environment"} {
			if v := []string{at.workspace, at.workload, at.environment}[i]; v != "" {
				q.Set(name, v)
			}
		}
		q.Set(more[0], more[1])
		return linkTo(deploymentsPath, q)
	}
	cells := map[place]*workloadCell{}
	for _, c := range versions {
		at := placeOf(c)
		if cells[at] == nil {
			cells[at] = &workloadCell{Environment: at.environment}
			if n := len(p.Rows); n == 0 || p.Rows[n-1].Workspace != at.workspace || p.Rows[n-1].Workload != at.workload {
				p.Rows = append(p.Rows, workloadRow{Workspace: at.workspace, Workload: at.workload, First: n == 0 || p.Rows[n-1].Workspace != at.workspace})
			}
		}
		v := version{cmp.Or(bundle.ShownVersion(c.Values[3]), shortDigest(c.Values[3])), linkOf(at, "version", c.Values[3]), c.Count}
		if c.Values[3] == "" {
			v.Name, v.Link = "no version", linkOf(at, "workload", at.workload)
		}
		cells[at].Versions = append(cells[at].Versions, v)
	}
	slices.SortStableFunc(states, func(a, b fleet.Count) int {
		return cmp.Compare(fleet.Severity(bundle.State(a.Values[3])), fleet.Severity(bundle.State(b.Values[3])))
	})
	for _, c := range states {
		if cell := cells[placeOf(c)]; cell != nil && c.Values[3] != string(bundle.Compliant) {
			cell.States = append(cell.States, total{lookOf(c.Values[3]), c.Count, linkOf(placeOf(c), "state", c.Values[3])})
		}
	}
	for i := range p.Rows {
		row, before := &p.Rows[i], ""
		for _, name := range environments {
			cell := cells[place{row.Workspace, row.Workload, name}]
			if cell == nil {
				row.Cells = append(row.Cells, workloadCell{Environment: name})
				continue
			}
			slices.SortStableFunc(cell.Versions, func(a, b version) int { return cmp.Compare(b.Count, a.Count) })
			cell.Differs = before != "" && before != cell.Versions[0].Name
			before = cell.Versions[0].Name
			cell.More = max(0, len(cell.Versions)-shownVersions)
			cell.Versions = cell.Versions[:len(cell.Versions)-cell.More]
			row.Cells = append(row.Cells, *cell)
		}
	}
}
