package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// clusterPage is the data of assets/cluster.html.
type clusterPage struct {
	*frame
	Cluster     fleet.Cluster
	Deployments []fleet.Deployment
	// Wanted are the versions that its desired release has, by assignment.
	Wanted  map[string]string
	Changes []fleet.HistoryRow
	// Decisions are those about the commit that it runs, newest first.
	Decisions []decided
	// Reports are the newest ones; nil if whoever asks may not read them, and for the past.
	Reports []fleet.Report
	// Actions lead to what whoever asks may do about it.
	Actions []link
}

// shownChanges and shownReports bound what the page of a cluster shows.
const (
	shownChanges = 30
	shownReports = 10
)

func showCluster(r *http.Request, f *frame, from Answers) (any, int, error) {
	f.template = "cluster.html"
	f.only(fleet.Query{AsOf: f.Query.AsOf})
	found, readAt, err := clusterOf(r, from, f.Query.AsOf)
	if err != nil {
		return nil, 0, err
	}
	page := &clusterPage{frame: f, Cluster: found}
	c := &page.Cluster
	if f.may(access.Operate) {
		page.Actions = append(page.Actions, link{Name: "Retire", Link: clustersPath + "/" + c.UID + "/retire"})
		if c.Conflicts > 0 || !c.SharedSince.IsZero() {
			page.Actions = append(page.Actions, link{Name: "Unshare", Link: clustersPath + "/" + c.UID + "/unshare"})
		}
	}
	f.Title, f.ReadAt, f.Crumbs = c.Name, readAt, []link{{Name: "Clusters", Link: f.At(clustersPath)}, {Name: c.Environment, Link: f.At(clustersPath, "environment", c.Environment)}}
	f.JSON, f.Command = f.At("/v1/clusters/"+c.UID), f.command("wherry describe cluster "+quoted(c.Name))
	deployments, err := from.Deployments(r.Context(), fleet.Query{Cluster: c.UID, AsOf: f.Query.AsOf, Sort: worstFirst, Limit: defaultRows})
	if err != nil {
		return nil, 0, err
	}
	page.Deployments = deployments.Deployments
	if page.Wanted, err = wanted(r.Context(), from, c, f.Query.AsOf); err != nil {
		return nil, 0, err
	}
	history, err := from.History(r.Context(), fleet.HistoryQuery{Query: fleet.Query{Cluster: c.UID, Limit: shownChanges}, Until: f.Query.AsOf})
	if errors.Is(err, store.ErrUnavailable) && f.Query.AsOf.IsZero() {
		return page, http.StatusOK, nil // what is above is from memory
	} else if err != nil {
		return nil, 0, err
	}
	page.Changes = history.Changes
	if page.Decisions, err = decidedAbout(r.Context(), from, c, f.Now); err != nil {
		return nil, 0, err
	}
	if who, known := access.From(r.Context()); f.Query.AsOf.IsZero() && known && who.May(access.ReadWhole) {
		reports, err := from.Reports(r.Context(), c.UID, fleet.Query{Limit: shownReports})
		if err != nil {
			return nil, 0, err
		}
		page.Reports = reports.Reports
	}
	return page, http.StatusOK, nil
}

// clockAhead is how far a clock has to be ahead to be shown. One that is behind looks like a report that was long on its way.
const clockAhead = 5 * time.Minute

// ClockAhead returns how far the clock of the cluster is ahead, as of its newest report; empty if it is not.
func (p *clusterPage) ClockAhead() string {
	ahead := p.Cluster.Proof.OccurredAt.Sub(p.Cluster.Proof.ReceivedAt)
	if p.Cluster.Proof.ReceivedAt.IsZero() || ahead < clockAhead {
		return ""
	}
	return bundle.Age(ahead)
}

// wanted returns the versions of a cluster's desired release, by assignment; none if the hub lacks what it has.
func wanted(ctx context.Context, from Answers, c *fleet.Cluster, at time.Time) (map[string]string, error) {
	if c.Desired == nil || c.Desired.Release == nil {
		return nil, nil
	}
	found, err := from.Release(ctx, string(c.Desired.Release.Digest), fleet.Query{AsOf: at})
	if errors.Is(err, store.ErrUnknownRelease) || errors.Is(err, store.ErrUnavailable) {
		return nil, nil
	}
	all := map[string]string{}
	for _, a := range found.Assignments {
		all[a.Name] = bundle.ShownVersion(a.Version)
	}
	return all, err
}

// decidedAbout returns what people had decided, at a moment, about the commit that a cluster runs.
func decidedAbout(ctx context.Context, from Answers, c *fleet.Cluster, at time.Time) (all []decided, err error) {
	if c.Observed == nil || c.Observed.BaseCommit == "" {
		return nil, nil
	}
	decisions, err := from.Decided(ctx, c.Platform, c.Environment)
	for _, d := range decisions {
		if d.BaseCommit == c.Observed.BaseCommit && !d.IssuedAt.After(at) && len(all) < shownDecisions {
			all = append(all, decided{Decided: d, In: c.Environment})
		}
	}
	return all, err
}

// clusterOf returns the cluster that a request's path names, as of a time, and when that was read if it is from memory.
func clusterOf(r *http.Request, from Answers, at time.Time) (c fleet.Cluster, readAt time.Time, err error) {
	name := r.PathValue("cluster")
	list, err := from.Clusters(r.Context(), fleet.Query{Cluster: name, AsOf: at, Limit: 1})
	if err == nil && len(list.Clusters) == 0 {
		err = fmt.Errorf("cluster %q: %w", name, store.ErrUnknownCluster)
	}
	if err != nil {
		return c, readAt, err
	}
	return list.Clusters[0], list.ReadAt, nil
}

// changed says what changed, such as "version 1.0.0 → 1.1.0, state compliant → failed (DeadlineExceeded)".
func changed(h fleet.HistoryRow) string {
	var all []string
	step := func(what, from, to string) {
		switch {
		case from == "" || from == to:
			all = append(all, strings.TrimSpace(what+" "+to))
		default:
			all = append(all, what+" "+from+" → "+to)
		}
	}
	for _, what := range h.What {
		switch what {
		case "state":
			to := string(h.To.State)
			if h.To.Reason != "" {
				to += " (" + h.To.Reason + ")"
			}
			step("state", string(h.From.State), to)
		case "version":
			step("version", bundle.ShownVersion(h.From.Version), bundle.ShownVersion(h.To.Version))
		case "release":
			if h.Assignment == "" || len(h.What) == 1 { // else it is that of the cluster, which has a row
				step("release", h.From.ReleaseName, h.To.ReleaseName)
			}
		case "added":
			all = append(all, strings.TrimSpace("added "+bundle.ShownVersion(h.To.Version)))
		case "config":
			all = append(all, "configuration")
		case "content":
			if !slices.Contains(h.What, "version") && !slices.Contains(h.What, "config") {
				all = append(all, "content")
			}
		default:
			all = append(all, what)
		}
	}
	if h.Rollback {
		all = append(all, "back to what ran before")
	}
	return strings.Join(all, ", ")
}
