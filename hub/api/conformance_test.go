package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// TestAClientAnswersAsTheHubDoes asks the hub's own answers and a client over HTTP, with small pages.
func TestAClientAnswersAsTheHubDoes(t *testing.T) {
	w := newWorld(t)
	here, err := w.hub.Answers(t.Context(), store.AccessScope{})
	require.NoError(t, err)
	there := client.Client{URL: w.server.URL + "/", Token: w.token}
	ctx := t.Context()
	release := storetest.Release(2)
	record := storetest.Record(2, release.Digest).Digest
	side := func(environment string) fleet.Side {
		return fleet.Side{Query: fleet.Query{Environments: []string{environment}}, Name: environment}
	}
	enough := errors.New("enough")
	for name, ask := range map[string]func(fleet.Answers) (any, error){
		"clusters":         func(a fleet.Answers) (any, error) { return a.Clusters(ctx, fleet.Query{}) },
		"clusters, sorted": func(a fleet.Answers) (any, error) { return a.Clusters(ctx, fleet.Query{Sort: "-state", Limit: 3}) },
		"clusters, selected": func(a fleet.Answers) (any, error) {
			return a.Clusters(ctx, fleet.Query{Selector: "site in (a-good,b-bad)", State: []bundle.State{bundle.Failed, bundle.Drifted}})
		},
		"clusters, of then": func(a fleet.Answers) (any, error) {
			return a.Clusters(ctx, fleet.Query{AsOf: storetest.Epoch.Add(time.Hour)})
		},
		"deployments":        func(a fleet.Answers) (any, error) { return a.Deployments(ctx, fleet.Query{Workload: "drone"}) },
		"an unknown name":    func(a fleet.Answers) (any, error) { return a.Deployments(ctx, fleet.Query{Workload: "drnoe"}) },
		"an unknown cluster": func(a fleet.Answers) (any, error) { return a.Clusters(ctx, fleet.Query{Cluster: "nowhere"}) },
		"a bad selector":     func(a fleet.Answers) (any, error) { return a.Clusters(ctx, fleet.Query{Selector: "a in ("}) },
		"counts": func(a fleet.Answers) (any, error) {
			return a.Count(ctx, "deployments", []string{"environment", "state"}, fleet.Query{})
		},
		"counts by four": func(a fleet.Answers) (any, error) {
			return a.Count(ctx, "deployments", []string{"environment", "workload", "version", "state"}, fleet.Query{})
		},
		"counts by five": func(a fleet.Answers) (any, error) {
			return a.Count(ctx, "clusters", []string{"environment", "workload", "version", "state", "type"}, fleet.Query{})
		},
		"facets": func(a fleet.Answers) (any, error) {
			return a.Facets(ctx, "clusters", []string{"state", "environment", "label:*"}, fleet.Query{State: []bundle.State{bundle.Failed}, Selector: "site"})
		},
		"facets of then": func(a fleet.Answers) (any, error) {
			return a.Facets(ctx, "deployments", []string{"workload", "environment"}, fleet.Query{Environments: []string{"dev"}, AsOf: storetest.Epoch.Add(time.Hour)})
		},
		"facets of what cannot be counted": func(a fleet.Answers) (any, error) {
			return a.Facets(ctx, "clusters", []string{"silentFor"}, fleet.Query{})
		},
		"releases": func(a fleet.Answers) (any, error) { return a.Releases(ctx, fleet.Query{}) },
		"a release": func(a fleet.Answers) (any, error) {
			return a.Release(ctx, release.Digest.Encoded()[:10], fleet.Query{})
		},
		"a release by its number": func(a fleet.Answers) (any, error) {
			return a.Release(ctx, "2", fleet.Query{Environments: []string{"dev"}, Type: "drone"})
		},
		"an unknown release": func(a fleet.Answers) (any, error) { return a.Release(ctx, "0123456789", fleet.Query{}) },
		"environments":       func(a fleet.Answers) (any, error) { return a.Environments(ctx, fleet.Query{}) },
		"a rollout": func(a fleet.Answers) (any, error) {
			return a.Rollout(ctx, "dev", release.BaseCommit, fleet.RolloutQuery{})
		},
		"content": func(a fleet.Answers) (any, error) {
			return a.Content(ctx, "dev", fleet.ContentQuery{
				Record: record, MaxReportAge: 24 * time.Hour, Required: "site=a-good", Workloads: []fleet.AskedWorkload{
					{Key: ledger.Key{Workload: "drone"}, Since: w.clock.Now().Add(time.Minute)}, {Key: ledger.Key{Registration: "x", Workload: "radar"}, Removed: map[string][]string{"drone": {"radar-main"}}},
				},
			})
		},
		"content of a record that is not known": func(a fleet.Answers) (any, error) {
			return a.Content(ctx, "dev", fleet.ContentQuery{Record: release.Digest})
		},
		"content, a bad selector": func(a fleet.Answers) (any, error) {
			return a.Content(ctx, "dev", fleet.ContentQuery{Record: record, Required: "a in ("})
		},
		"a comparison": func(a fleet.Answers) (any, error) {
			return a.Compare(ctx, side("dev"), side("prod"), fleet.CompareOptions{})
		},
		"a comparison, differs": func(a fleet.Answers) (any, error) {
			return a.Compare(ctx, side("dev"), side("prod"), fleet.CompareOptions{OnlyDiff: true})
		},
		"a comparison without some": func(a fleet.Answers) (any, error) {
			return a.Compare(ctx, side("dev"), side("prod"), fleet.CompareOptions{Ignore: []string{"config", "version"}})
		},
		"a candidate":              func(a fleet.Answers) (any, error) { return a.Candidate(ctx, "", "dev", "prod", "") },
		"a candidate from nowhere": func(a fleet.Answers) (any, error) { return a.Candidate(ctx, "edge", "", "dev", "") },
		"a candidate of a ring":    func(a fleet.Answers) (any, error) { return a.Candidate(ctx, "edge", "", "dev", "early") },
		"drift":                    func(a fleet.Answers) (any, error) { return a.Drift(ctx, fleet.Query{}) },
		"history": func(a fleet.Answers) (any, error) {
			return a.History(ctx, fleet.HistoryQuery{Query: fleet.Query{Workload: "drone"}})
		},
		"history of a cluster": func(a fleet.Answers) (any, error) {
			return a.History(ctx, fleet.HistoryQuery{Query: fleet.Query{Cluster: "a-good"}, From: storetest.Epoch, Until: w.clock.Now()})
		},
		"reports":           func(a fleet.Answers) (any, error) { return a.Reports(ctx, "a-good", fleet.Query{}) },
		"reports, one":      func(a fleet.Answers) (any, error) { return a.Reports(ctx, "a-good", fleet.Query{Limit: 1}) },
		"a report":          func(a fleet.Answers) (any, error) { return a.Report(ctx, "a-good", "r1-2") },
		"an unknown report": func(a fleet.Answers) (any, error) { return a.Report(ctx, "a-good", "r1-99") },
		"events": func(a fleet.Answers) (any, error) {
			var all []fleet.Event
			err := a.Events(ctx, 0, fleet.Query{Environments: []string{"dev"}}, func(e fleet.Event) error {
				if all = append(all, e); e.Change != nil && e.Change.To.Version == "1.1.0" {
					return enough
				}
				return nil
			})
			require.ErrorIs(t, err, enough)
			return all, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, wantErr := ask(here)
			got, err := ask(there)
			if wantErr != nil {
				require.Error(t, err)
				requireSameError(t, wantErr, err)
				return
			}
			require.NoError(t, err)
			wantJSON, err := json.Marshal(want)
			require.NoError(t, err)
			gotJSON, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, string(wantJSON), string(gotJSON))
			require.NotEqual(t, "null", string(gotJSON))
		})
	}
}

// A part of an environment's clusters proves nothing.
func TestContentIsForWhoSeesTheWholeEnvironment(t *testing.T) {
	w := newWorld(t)
	q := fleet.ContentQuery{Record: storetest.Record(2, storetest.Release(2).Digest).Digest, Workloads: []fleet.AskedWorkload{{Key: ledger.Key{Workload: "drone"}, Since: w.clock.Now().Add(time.Minute)}}}
	for name, tc := range map[string]struct {
		scope store.AccessScope
		sees  bool
	}{
		"all":                     {sees: true},
		"this-environment":        {scope: store.AccessScope{Environments: []string{"dev", "prod"}}, sees: true},
		"another-environment":     {scope: store.AccessScope{Environments: []string{"prod"}}},
		"clusters-by-their-label": {scope: store.AccessScope{Selector: "region=east"}},
		"one-workspace":           {scope: store.AccessScope{Workspaces: []string{"shop"}}},
	} {
		token, _, err := w.hub.Access().Create(t.Context(), access.Request{Name: name, Role: access.Viewer, AccessScope: tc.scope})
		require.NoError(t, err)
		c, err := client.Client{URL: w.server.URL, Token: token.Reveal()}.Content(t.Context(), "dev", q)
		if tc.sees {
			require.NoError(t, err, name)
			require.True(t, c.Known, name)
			require.NotZero(t, c.Workloads[0].Clusters, name)
			continue
		}
		var refused *hubapi.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, hubapi.CodeForbidden, refused.Code, name)
		require.Equal(t, "content of environment dev: not all of it is in the scope of the access token", refused.Message, name)
	}
}

func TestAQuestionWithABodyIsBounded(t *testing.T) {
	w := newWorld(t)
	path := "/v1/content?environment=dev&record=" + storetest.Release(1).Digest.String()
	for body, want := range map[string]int{
		`[]`: 200, `null`: 200, ``: 400, `{}`: 400, `[] []`: 400, `[{"workload": "drone", "since": "x"}]`: 400, `[{"name": "drone"}]`: 400,
		strings.Repeat(" ", 16<<20+1): 413,
	} {
		status, answer, _ := w.ask("POST", path, []byte(body))
		require.Equal(t, want, status, "%s", answer)
	}
	status, answer, _ := w.ask("POST", "/v1/content?environment=dev", nil)
	require.Equal(t, 400, status)
	require.Contains(t, string(answer), "are needed")
}

// requireSameError requires that callers can test for the same.
func requireSameError(t *testing.T, want, got error) {
	t.Helper()
	var here, there *fleet.UnknownNameError
	if errors.As(want, &here) {
		require.ErrorAs(t, got, &there)
		require.Equal(t, here, there)
		return
	}
	for _, e := range []error{store.ErrInvalid, store.ErrUnknownCluster, store.ErrUnknownRelease, store.ErrUnknownReport, store.ErrForgotten} {
		require.Equal(t, errors.Is(want, e), errors.Is(got, e), "%v: %v, %v", e, want, got)
	}
}

func TestHubsOfOneDatabaseShowTheSameEvents(t *testing.T) {
	w := newWorld(t)
	other, err := hub.Open(w.dir, hub.Options{Now: w.clock.Now})
	require.NoError(t, err)
	defer other.Close()
	follow := func(h *hub.Hub, until string) <-chan []string {
		told := make(chan []string, 1)
		v, err := h.Answers(t.Context(), store.AccessScope{})
		require.NoError(t, err)
		go func() {
			var all []string
			_ = v.Events(t.Context(), 0, fleet.Query{}, func(e fleet.Event) error {
				data, err := json.Marshal(e)
				if all = append(all, string(data)); err != nil || e.Change != nil && e.Change.To.Version == until {
					return errors.New("enough")
				}
				return nil
			})
			told <- all
		}()
		return told
	}
	here, there := follow(w.hub, "9.9.9"), follow(other, "9.9.9")
	item := storetest.Item("drone", bundle.Compliant)
	item.Version = "9.9.9"
	id := storetest.Identity("c-new")
	r := storetest.Snapshot(id, store.Order{Incarnation: 1, Seq: 1}, item)
	w.report(id, r)
	require.Equal(t, <-here, <-there)
}

func TestHistoryShowsARollback(t *testing.T) {
	w := newWorld(t)
	id := storetest.Identity("a-good")
	r := storetest.Snapshot(id, store.Order{Incarnation: 1, Seq: 3}, storetest.Item("drone", bundle.Compliant))
	r.OccurredAt = w.clock.Now()
	r.Observed = &bundle.ReportRelease{Digest: storetest.Release(1).Digest, Sequence: 1}
	w.report(id, r)
	there := client.Client{URL: w.server.URL, Token: w.token}
	h, err := there.History(t.Context(), fleet.HistoryQuery{Query: fleet.Query{Cluster: "a-good"}})
	require.NoError(t, err)
	var told []string
	for _, c := range h.Changes {
		if c.Assignment != "radar-main" {
			told = append(told, fmt.Sprint(c.Assignment, " ", c.From.Version, ">", c.To.Version, " ", c.To.ReleaseName, " ", c.Rollback))
		}
	}
	one, two := bundle.ReleaseName(1, storetest.Release(1).Digest), bundle.ReleaseName(2, storetest.Release(2).Digest)
	require.ElementsMatch(t, []string{
		" > " + one + " true", "drone-main 1.1.0>1.0.0 " + one + " true",
		" > " + two + " false", "drone-main 1.0.0>1.1.0 " + two + " false",
		" > " + one + " false", "drone-main >1.0.0 " + one + " false",
	}, told)
}
