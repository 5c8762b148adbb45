package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// environmentsPage is the data of assets/environments.html.
type environmentsPage struct {
	Kinds        []link
	Kind         string
	Query        fleet.Query
	Environments []environment
	Unknown      *fleet.UnknownNameError
	// Now is the moment that the page is about. Present and JSON are links to the same of now, and for programs.
	Now           time.Time
	Present, JSON string
}

// environment is how far one environment is with the commit that it got last, and what people decided about it.
type environment struct {
	fleet.Environment
	// Rollout is nil if the hub does not know which commit was published last.
	Rollout *fleet.Rollout
	// Shown are the clusters in rings that the commit has reached, and Beyond the number of the others.
	Shown  fleet.RolloutCounts
	Beyond int
	Open   string // a link to the clusters
	// Pause is the last word about a pause, if it is one.
	Pause *fleet.Decided
	// Decisions are the newest ones, More counts those that are not shown.
	Decisions []decided
	More      int
}

// decided is a decision as people see it.
type decided struct {
	fleet.Decided
	// Outdated is true if the environment that it names has another commit by now.
	Outdated bool
}

const (
	// shownDecisions and shownClusters bound what a page shows of one environment.
	shownDecisions = 20
	shownClusters  = 10
)

// getEnvironments shows all environments, or one.
func (s *site) getEnvironments(w http.ResponseWriter, r *http.Request) {
	q, err := fleet.ParseQuery(r.URL.Query(), s.now())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	q = fleet.Query{Environments: q.Environments, Platform: q.Platform, AsOf: q.AsOf}
	page := environmentsPage{
		Kind: environmentsKind, Query: q, Now: cmp.Or(q.AsOf, s.now().UTC()), JSON: linkTo("/v1/environments", q.Values()),
		Kinds: []link{{clustersKind, atMoment(clustersPath, q.AsOf)}, {deploymentsKind, atMoment(deploymentsPath, q.AsOf)}, {environmentsKind, atMoment(environmentsPath, q.AsOf)}},
	}
	now := q
	now.AsOf = time.Time{}
	page.Present = linkTo(environmentsPath, now.Values())
	from, err := s.answers(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	all, err := from.Environments(r.Context(), fleet.Query{AsOf: q.AsOf})
	newest := map[string]string{} // commits, by environment
	for _, e := range all.Environments {
		newest[e.Environment] = e.BaseCommit
	}
	list := all
	if err == nil && (len(q.Environments) > 0 || q.Platform != "") {
		list, err = from.Environments(r.Context(), q)
	}
	if errors.As(err, &page.Unknown) {
		status, err, list.Environments = http.StatusNotFound, nil, nil
	}
	for i := 0; err == nil && i < len(list.Environments); i++ {
		var one environment
		one, err = environmentOf(r.Context(), from, list.Environments[i], newest, q.AsOf)
		page.Environments = append(page.Environments, one)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, r, s.environments, status, page)
}

// environmentOf asks about one environment, as of a moment unless that is zero. Newest has the newest commits of environments.
func environmentOf(ctx context.Context, from Answers, e fleet.Environment, newest map[string]string, asOf time.Time) (environment, error) {
	one := environment{Environment: e, Open: atMoment(clustersPath, asOf, "environment", e.Environment)}
	if commit := cmp.Or(e.BaseCommit, e.EnvironmentCommit); commit != "" {
		q := fleet.RolloutQuery{Query: fleet.Query{Platform: e.Platform, Limit: shownClusters, AsOf: asOf}}
		rollout, err := from.Rollout(ctx, e.Environment, commit, q)
		if err != nil {
			return one, err
		}
		one.Rollout = &rollout
		one.Shown, one.Beyond = rollout.Shown()
	}
	all, err := from.Decided(ctx, e.Platform, e.Environment)
	if err != nil {
		return one, err
	}
	if !asOf.IsZero() {
		all = slices.DeleteFunc(all, func(d fleet.Decided) bool { return d.IssuedAt.After(asOf) })
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
		one.Decisions = append(one.Decisions, decided{Decided: d, Outdated: known && d.BaseCommit != "" && commit != d.BaseCommit})
	}
	one.More = len(all) - len(one.Decisions)
	return one, nil
}
