package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// environmentsPage is the data of assets/environments.html.
type environmentsPage struct {
	*frame
	Environments []environment
	Unknown      *fleet.UnknownNameError
}

// environment is how far one environment is with the commit that it has, and what people decided about it.
type environment struct {
	fleet.Environment
	// Rollout is nil if the hub does not know which commit was published last.
	Rollout *fleet.Rollout
	// Shown are the clusters in rings that the commit has reached, and Beyond the number of the others.
	Shown  fleet.RolloutCounts
	Beyond int
	// Pause is the last word about a pause, if it is one.
	Pause *fleet.Decided
	// Decisions are the newest ones, More counts those that are not shown.
	Decisions []decided
	More      int
	// Unread is true if the decisions cannot be read, since the database is away.
	Unread bool
}

// decided is a decision as people see it.
type decided struct {
	fleet.Decided
	In string // the environment
	// Outdated is true if the environment that it names has another commit by now.
	Outdated bool
}

// shownDecisions and shownClusters bound what a page shows of one environment.
const (
	shownDecisions = 20
	shownClusters  = 10
)

func showEnvironments(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template, f.Title = "environments.html", "Environments"
	q := fleet.Query{Environments: f.Query.Environments, Platform: f.Query.Platform, AsOf: f.Query.AsOf}
	f.only(q)
	f.list("environments")
	if !q.AsOf.IsZero() {
		f.Command = ""
	}
	if len(q.Environments) == 1 {
		f.Title, f.Crumbs = q.Environments[0], []link{{Name: "Environments", Link: f.At(environmentsPath)}}
	}
	page := &environmentsPage{frame: f}
	all, err := from.Environments(r.Context(), fleet.Query{AsOf: q.AsOf})
	newest := map[string]string{} // commits, by environment
	for _, e := range all.Environments {
		newest[e.Environment] = e.BaseCommit
	}
	if err == nil && (len(q.Environments) > 0 || q.Platform != "") {
		all, err = from.Environments(r.Context(), q)
	}
	if errors.As(err, &page.Unknown) {
		return page, http.StatusNotFound, nil
	} else if err != nil {
		return nil, 0, err
	}
	for _, e := range all.Environments {
		one, err := environmentOf(r.Context(), from, e, newest, q)
		if err != nil {
			return nil, 0, err
		}
		page.Environments = append(page.Environments, one)
	}
	return page, http.StatusOK, nil
}

// environmentOf asks about one environment, as of the moment of q. Newest has the newest commits of environments.
func environmentOf(ctx context.Context, from Answers, e fleet.Environment, newest map[string]string, q fleet.Query) (environment, error) {
	one := environment{Environment: e}
	if commit := cmp.Or(e.BaseCommit, e.EnvironmentCommit); commit != "" {
		rollout, err := from.Rollout(ctx, e.Environment, commit, fleet.RolloutQuery{Query: fleet.Query{Platform: e.Platform, Limit: shownClusters, AsOf: q.AsOf}})
		if err != nil {
			return one, err
		}
		one.Rollout = &rollout
		one.Shown, one.Beyond = rollout.Shown()
	}
	all, err := from.Decided(ctx, e.Platform, e.Environment)
	if one.Unread = errors.Is(err, store.ErrUnavailable) && q.AsOf.IsZero(); one.Unread {
		return one, nil // the rest is from memory
	}
	if err != nil {
		return one, err
	}
	if !q.AsOf.IsZero() {
		all = slices.DeleteFunc(all, func(d fleet.Decided) bool { return d.IssuedAt.After(q.AsOf) })
	}
	for _, d := range all {
		if d.Action == bundle.Pause || d.Action == bundle.Resume {
			if d.Action == bundle.Pause {
				one.Pause = &d
			}
			break
		}
	}
	for _, d := range all[:min(len(all), shownDecisions)] {
		commit, known := newest[d.From]
		one.Decisions = append(one.Decisions, decided{Decided: d, In: e.Environment, Outdated: known && d.BaseCommit != "" && commit != d.BaseCommit})
	}
	one.More = len(all) - len(one.Decisions)
	return one, nil
}
