package web

import (
	"net/http"
	"strings"

	"github.com/wherry-dev/wherry/hub/fleet"
)

// searchPage is the data of assets/search.html.
type searchPage struct {
	*frame
	Text    string
	Results []foundName
	More    int
	Short   bool // the text has too few letters
}

// foundName is a name that a search found, and the page about it.
type foundName struct {
	fleet.FoundName
	Link string
}

func showSearch(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "search.html", "Search"
	page := &searchPage{frame: f, Text: r.URL.Query().Get("q")}
	if page.Short = len(strings.TrimSpace(page.Text)) < fleet.MinSearch; page.Short {
		return page, http.StatusOK, nil
	}
	found, err := from.Search(r.Context(), page.Text)
	if err != nil {
		return nil, 0, err
	}
	for _, n := range found.Results {
		page.Results = append(page.Results, foundName{n, linkToFound(f, n)})
	}
	page.More, f.ReadAt = found.More, found.ReadAt
	return page, http.StatusOK, nil
}

// linkToFound returns a link to the page of a cluster, else to the clusters or deployments that have the name; empty if there is none.
func linkToFound(f *frame, n fleet.FoundName) string {
	switch n.Kind {
	case fleet.FoundCluster:
		return f.At(clustersPath + "/" + n.UID)
	case fleet.FoundEnvironment:
		return f.At(environmentsPath, "environment", n.Name)
	case fleet.FoundWorkload:
		return f.At(deploymentsPath, "workspace", n.Workspace, "workload", n.Name)
	case fleet.FoundLabel:
		key, value, _ := strings.Cut(n.Name, "=")
		return f.Labelled(key, value)
	}
	return f.At(clustersPath, n.Kind, n.Name)
}
