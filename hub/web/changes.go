package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// changesPage is the data of assets/changes.html: what changed in the fleet, newest first.
type changesPage struct {
	*frame
	Changes []change
	// Read is the number of changes of single clusters that the page counts.
	Read    int
	Unknown *fleet.UnknownNameError
	After   string
}

// change is the same change of several clusters, or what a person decided meanwhile.
type change struct {
	fleet.HistoryRow
	// First and Last are the times of the first and the last cluster.
	First, Last time.Time
	Clusters    int
	// Bad is true if the clusters failed.
	Bad      bool
	Decision *decided
}

// countedChanges bounds the changes of single clusters that a page reads: 5,000 take 180 ms of processor time.
const countedChanges = 2000

func showChanges(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "changes.html", "Changes"
	q := f.Query
	q.Sort = "" // newest first
	f.only(q)
	q.AsOf, q.Limit = time.Time{}, countedChanges
	values := f.Without("after", "asOf")
	if !f.Query.AsOf.IsZero() {
		values.Set("until", fleet.FormatMoment(f.Query.AsOf))
	}
	f.JSON, f.Command = linkTo("/v1/history", values), strings.Replace(f.command("wherry history"), " --as-of ", " --until ", 1)
	page := &changesPage{frame: f}
	history, err := from.History(r.Context(), fleet.HistoryQuery{Query: q, Until: f.Query.AsOf})
	if errors.As(err, &page.Unknown) {
		return page, http.StatusNotFound, nil
	} else if err != nil {
		return nil, 0, err
	}
	page.Read, page.After, page.Changes = len(history.Changes), history.Next, together(history.Changes)
	if page.Changes, err = page.withDecisions(r.Context(), from); err != nil {
		return nil, 0, err
	}
	return page, http.StatusOK, nil
}

// together returns rows with the same change as one, newest first.
func together(rows []fleet.HistoryRow) (all []change) {
	type key struct{ environment, workspace, workload, text string }
	at, clusters := map[key]int{}, map[key]map[string]bool{}
	for _, row := range rows {
		k := key{row.Environment, row.Workspace, row.Workload, changed(row)}
		i, known := at[k]
		if !known {
			i, at[k], clusters[k] = len(all), len(all), map[string]bool{}
			all = append(all, change{HistoryRow: row, First: row.At, Last: row.At, Bad: slices.Contains([]bundle.State{bundle.Failed, bundle.Rejected, bundle.Drifted}, row.To.State)})
		}
		clusters[k][row.UID] = true
		c := &all[i]
		c.Clusters, c.Rollback = len(clusters[k]), c.Rollback || row.Rollback
		if row.At.Before(c.First) {
			c.First = row.At
		}
		if row.At.After(c.Last) {
			c.Last = row.At
		}
	}
	return all
}

// withDecisions returns the page's changes with what people decided in the same time, newest first. A query that chooses more than an
// environment is not about decisions.
func (p *changesPage) withDecisions(ctx context.Context, from Answers) ([]change, error) {
	all := p.Changes
	if slices.ContainsFunc(p.Chips(), func(c chip) bool { return c.Name != "environment" && c.Name != "platform" }) {
		return all, nil
	}
	until, since := cmp.Or(p.Query.AsOf, p.Now), time.Time{}
	if p.Query.After != "" && len(all) > 0 {
		until = all[0].Last
	}
	if p.After != "" && len(all) > 0 {
		since = slices.MinFunc(all, func(a, b change) int { return a.First.Compare(b.First) }).First
	}
	environments, err := from.Environments(ctx, fleet.Query{Environments: p.Query.Environments, Platform: p.Query.Platform})
	if err != nil {
		return nil, err
	}
	for _, e := range environments.Environments {
		decisions, err := from.Decided(ctx, e.Platform, e.Environment)
		if errors.Is(err, store.ErrUnavailable) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		for _, d := range decisions {
			if d.IssuedAt.After(since) && !d.IssuedAt.After(until) {
				all = append(all, change{Last: d.IssuedAt, First: d.IssuedAt, Decision: &decided{Decided: d, In: e.Environment}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return b.Last.Compare(a.Last) })
	return all, nil
}
