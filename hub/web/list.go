package web

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/wherry-dev/wherry/hub/fleet"
)

// listPage is the data of assets/clusters.html and assets/deployments.html.
type listPage struct {
	*frame
	// Totals count all rows that the query chooses.
	Totals      fleet.Totals
	Clusters    []fleet.Cluster
	Deployments []fleet.Deployment
	// Unknown is set instead of rows if the query has a name that nothing has.
	Unknown *fleet.UnknownNameError
	After   string // where the next rows begin; empty on the last page
	Columns []column
	Facets  []facet
}

// column is one of a table, and the order that a click on it gives; empty for none.
type column struct {
	Name, Sort string
	// Sorted is true if the rows are in that order.
	Sorted bool
}

// defaultRows is the number of rows of one page, and worstFirst their order.
const (
	defaultRows = 200
	worstFirst  = "state"
)

func showClusters(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "clusters.html", "Clusters"
	f.list("clusters")
	page := newListPage(f, column{"Cluster", "name", false}, column{"Environment", "environment", false}, column{"Type", "type", false}, column{"Ring", "ring", false},
		column{"State", "state", false}, column{"Why", "reason", false}, column{"Release", "release", false}, column{"Last seen", "lastSeen", false})
	list, err := from.Clusters(r.Context(), f.Query)
	if err != nil {
		return page.answer(err)
	}
	page.Totals, page.Clusters, page.After, f.ReadAt = list.Totals, list.Clusters, list.Next, list.ReadAt
	q := f.Query
	q.Sort, q.After, q.Limit = "", "", 0
	facets, err := from.Facets(r.Context(), "clusters", clusterFacets, q)
	page.Facets = f.facets(facets.Facets)
	return page.answer(err)
}

func showDeployments(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "deployments.html", "Deployments"
	f.list("deployments")
	page := newListPage(f, column{"Cluster", "cluster", false}, column{"Workload", "workload", false}, column{"Target", "target", false}, column{"State", "state", false},
		column{"Why", "reason", false}, column{"Version", "version", false}, column{"Failures", "failures", false}, column{"Since", "since", false})
	list, err := from.Deployments(r.Context(), f.Query)
	page.Totals, page.Deployments, page.After, f.ReadAt = list.Totals, list.Deployments, list.Next, list.ReadAt
	return page.answer(err)
}

// newListPage returns a page without rows, whose query has an order and a limit.
func newListPage(f *frame, columns ...column) *listPage {
	f.Query.Sort = cmp.Or(f.Query.Sort, worstFirst)
	f.Query.Limit = cmp.Or(f.Query.Limit, defaultRows)
	for i, c := range columns {
		if columns[i].Sorted = c.Sort == f.Query.Sort; columns[i].Sorted {
			columns[i].Sort = "-" + c.Sort
		}
	}
	return &listPage{frame: f, Columns: columns}
}

// answer returns the page for what the hub has answered.
func (p *listPage) answer(err error) (any, int, error) {
	if errors.As(err, &p.Unknown) {
		return p, http.StatusNotFound, nil
	}
	return p, http.StatusOK, err
}
