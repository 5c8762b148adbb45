package memory_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/memory"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// The rules by which clusters prove the content of workloads, on generated fleets: the model counts cluster by cluster, and a fleet in
// memory and one over the database of a hub count alike.
func TestGeneratedFleetsProveContentByTheRules(t *testing.T) {
	fleets := "300"
	if sweeptest.Full() {
		fleets = "10000"
	}
	require.NoError(t, flag.Set("rapid.checks", fleets))
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawContents(rt)
		want, got := w.count(), w.askContent(rt, w.inMemory(rt))
		require.Equal(rt, want, got)
		if n++; n%10 != 0 {
			return
		}
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "hub.db"), sqlite.Options{Now: func() time.Time { return w.clock }})
		require.NoError(rt, err)
		defer db.Close()
		w.fill(rt, db)
		require.Equal(rt, want, w.askContent(rt, db))
	})
}

// contents is a generated fleet with a ledger, and a question about its newest record.
type contents struct {
	drawn
	ledger *ledger.Ledger
	asked  fleet.ContentQuery
	ring   string
}

// drawContents makes two records of two cluster types, of which the first has content 1 and the second content 2 of what has changed.
func drawContents(t *rapid.T) *contents {
	w := &contents{drawn: drawn{releases: map[digest.Digest]store.PublishedRelease{}}}
	rings := pick(t, "ring names", nil, []string{"canary", "stable"})
	w.ring = append(slices.Clone(rings), "")[max(0, len(rings)-1)]
	var offered []digest.Digest
	for n := range 2 {
		r := bundle.EnvironmentRecord{
			Platform: "coffee", Environment: "stage", Sequence: int64(n + 1), IssuedAt: judged.Add(time.Duration(n-24) * time.Hour), BaseCommit: "aaaaaaaa", RingOrder: rings,
			ClusterTypes: map[string]digest.Digest{}, Rings: map[string]map[string]digest.Digest{},
		}
		for _, typ := range []string{"drone", "large"} {
			if rapid.IntRange(0, 9).Draw(t, "the type is not published") == 0 {
				continue
			}
			release := store.PublishedRelease{Digest: digest.FromString(fmt.Sprint(typ, n)), Release: bundle.Release{
				Platform: "coffee", Environment: "stage", ClusterType: typ, BaseCommit: "aaaaaaaa", Sequence: int64(n + 1), IssuedAt: r.IssuedAt,
			}}
			release.Content.DiffID = digest.FromString(fmt.Sprint("tree of ", typ, n))
			for _, a := range []struct{ registration, workload, target string }{{"shop", "cart", "live"}, {"shop", "cart", "spare"}, {"", "menu", "live"}, {"other", "cart", "other"}} {
				if rapid.IntRange(0, 3).Draw(t, "not assigned") == 0 {
					continue
				}
				line := bundle.Assignment{
					Name: a.workload + "-" + a.target, Registration: a.registration, Workload: a.workload, Target: a.target, Adapter: "kubernetes",
					Content: digest.FromString(fmt.Sprint("content ", pick(t, "changed", 1, n+1))),
				}
				if pick(t, "more than files", false, false, true) {
					line.ServiceAccount = "apps/deployer"
				}
				release.Assignments = append(release.Assignments, line)
			}
			slices.SortFunc(release.Assignments, func(a, b bundle.Assignment) int { return cmp.Compare(a.Name, b.Name) })
			w.releases[release.Digest], offered = release, append(offered, release.Digest)
			r.ClusterTypes[typ] = release.Digest
			if len(rings) > 0 {
				r.Rings[typ] = map[string]digest.Digest{"canary": release.Digest, "stable": release.Digest}
			}
		}
		w.records = append(w.records, store.PublishedRecord{Digest: digest.FromString(fmt.Sprint("record ", n)), EnvironmentRecord: r})
	}
	for n := range rapid.IntRange(0, 6).Draw(t, "clusters") {
		w.register(t, n, offered)
	}
	w.ledger = w.drawLedger(t)
	w.asked = fleet.ContentQuery{Record: pick(t, "record", w.records...).Digest, Workloads: fleet.WorkloadsOf(w.ledger, w.ring), MaxReportAge: 24 * time.Hour, Required: pick(t, "required", "", "pilot=true")}
	return w
}

// drawLedger makes a ledger whose first workload has all that a ring needs, and others that may be absent or removed.
func (w *contents) drawLedger(t *rapid.T) *ledger.Ledger {
	l := &ledger.Ledger{Schema: ledger.Schema}
	in := func() []ledger.Stay {
		return []ledger.Stay{{Ring: pick(t, "ring of the ledger", w.ring, w.ring, w.ring, "canary"), Since: judged.Add(pick(t, "since", -time.Hour, -6*time.Hour)), Record: ledger.Record{Epoch: 1, Sequence: 1}}}
	}
	for _, k := range []ledger.Key{{Workload: "menu"}, {Registration: "other", Workload: "cart"}, {Registration: "shop", Workload: "cart"}} {
		switch pick(t, "workload", "there", "there", "there", "removed", "absent") {
		case "there":
			l.Workloads = append(l.Workloads, ledger.Workload{Key: k, Revisions: []ledger.Revision{{In: in()}}})
		case "removed":
			l.Removed = append(l.Removed, ledger.Removed{Key: k, In: in(), Assignments: map[string][]string{"drone": {"gone-live", "web-live"}}})
		}
	}
	l.Sort()
	return l
}

// register adds a cluster with at most one report, of what releases have and of what they have not.
func (w *contents) register(t *rapid.T, n int, offered []digest.Digest) {
	s := site{Registration: store.Registration{
		Cluster: store.Cluster{Identity: store.Identity{
			UID: fmt.Sprint("uid-", n), Name: fmt.Sprint("site-", n), Platform: "coffee", Environment: "stage", Type: pick(t, "type", "drone", "drone", "large", "other"),
			Ring: pick(t, "ring", "stable", "stable", "canary", ""), Labels: pick(t, "labels", nil, map[string]string{"pilot": "true"}),
		}},
		AddedAt: judged.Add(pick(t, "registered", -48*time.Hour, -48*time.Hour, -6*time.Hour, -5*time.Hour)),
	}}
	w.sites = append(w.sites, s)
	at := &w.sites[len(w.sites)-1]
	switch pick(t, "reports", "yes", "yes", "yes", "yes", "silent", "none") {
	case "none":
		at.Reporting = store.NotReporting
		return
	case "silent":
		return
	}
	r := bundle.Report{
		Schema: bundle.ReportSchema, Kind: bundle.Event, Cluster: bundle.ReportCluster(s.Identity), Agent: bundle.ReportAgent{Version: "1", Incarnation: 1, Seq: 1},
		OccurredAt: judged.Add(pick(t, "age", -time.Minute, -time.Minute, -time.Minute, -24*time.Hour-time.Second)),
		State:      pick(t, "state", bundle.Compliant, bundle.Failed), Reason: pick(t, "reason", "", "", "Quarantined"),
	}
	if d := pick(t, "observed", append(offered, "")...); d != "" {
		r.Observed = &bundle.ReportRelease{Digest: d}
	}
	for _, name := range []string{"cart-live", "cart-other", "cart-spare", "gone-live", "menu-live"} {
		if rapid.IntRange(0, 3).Draw(t, "no item") > 0 {
			r.Items = append(r.Items, bundle.Item{
				Assignment: name, Workload: name[:4], Target: name[5:], State: pick(t, "item", bundle.Compliant, bundle.Compliant, bundle.Failed, bundle.Progressing),
				Content: digest.FromString(fmt.Sprint("content ", pick(t, "content", 1, 2))), Since: judged.Add(-8 * time.Hour),
			})
		}
	}
	at.reports = []bundle.Report{r}
}

// count counts by the rules.
func (w *contents) count() fleet.Content {
	record := w.records[slices.IndexFunc(w.records, func(r store.PublishedRecord) bool { return r.Digest == w.asked.Record })]
	answer := fleet.Content{Known: true, Ring: w.ring, Workloads: []fleet.WorkloadCount{}}
	// assigned are the contents that a type has to have by the name of the assignment, empty for none; whole those of which the tree counts.
	look := func(k ledger.Key, since time.Time, assigned func(typ string) (map[string]digest.Digest, map[string]bool)) {
		c := fleet.WorkloadCount{Key: k}
		for _, s := range w.sites {
			contents, whole := assigned(s.Type)
			if len(contents) == 0 || w.ring != "" && s.Ring != w.ring {
				continue
			}
			counts := []*fleet.ContentCount{&c.ContentCount}
			if w.asked.Required == "" || s.Labels["pilot"] == "true" {
				counts = append(counts, &c.Required)
			}
			for i, n := range counts {
				if !s.AddedAt.Before(since) {
					n.Later++
					continue
				}
				if s.Reporting != "" {
					n.NotReporting++
					continue
				}
				n.Clusters++
				if len(s.reports) == 0 {
					n.Unknown++
					continue
				}
				tree := w.releases[digestOf(s.reports[0].Observed)].Content.DiffID == w.releases[record.ClusterTypes[s.Type]].Content.DiffID && s.reports[0].Observed != nil
				failed, waiting, progressing := false, false, false
				for name, content := range contents {
					at := slices.IndexFunc(s.reports[0].Items, func(i bundle.Item) bool { return i.Assignment == name })
					switch {
					case content == "":
						waiting = waiting || at >= 0
					case at < 0 || s.reports[0].Items[at].Content != content || whole[name] && !tree:
						waiting = true
					case s.reports[0].Items[at].State == bundle.Failed:
						failed = true
					case s.reports[0].Items[at].State != bundle.Compliant:
						progressing = true
					}
				}
				if waiting && s.reports[0].Reason == "Quarantined" {
					n.Quarantined++
				}
				switch {
				case judged.Sub(s.reports[0].OccurredAt) > w.asked.MaxReportAge:
					n.Unknown++
					if at := s.reports[0].OccurredAt; i == 0 && at.After(c.LastSeen) {
						c.LastSeen = at
					}
				case failed:
					n.Failed++
					if i == 0 && n.Failed <= 5 {
						c.Failing = append(c.Failing, s.Name)
					}
				case waiting:
					n.Waiting++
				case progressing:
					n.Progressing++
				default:
					n.Compliant++
				}
			}
		}
		answer.Workloads = append(answer.Workloads, c)
	}
	for _, l := range w.ledger.Workloads {
		if _, in := l.In(w.ring); l.Revisions[0].In[0].Ring == w.ring {
			look(l.Key, in.Since, func(typ string) (map[string]digest.Digest, map[string]bool) {
				contents, whole := map[string]digest.Digest{}, map[string]bool{}
				for _, a := range w.releases[record.ClusterTypes[typ]].Assignments {
					if a.Registration == l.Registration && a.Workload == l.Workload {
						contents[a.Name], whole[a.Name] = a.Content, a.ServiceAccount != ""
					}
				}
				return contents, whole
			})
		}
	}
	for _, l := range w.ledger.Removed {
		if l.In[0].Ring == w.ring {
			look(l.Key, l.In[0].Since, func(typ string) (map[string]digest.Digest, map[string]bool) {
				contents := map[string]digest.Digest{}
				for _, name := range l.Assignments[typ] {
					contents[name] = ""
				}
				return contents, nil
			})
			answer.Workloads[len(answer.Workloads)-1].Removed = true
		}
	}
	return answer
}

// inMemory returns the fleet in a store in memory.
func (w *contents) inMemory(t *rapid.T) fleet.Source {
	s := w.memory(t).(*memory.Store)
	s.Contents = func(_ context.Context, r store.PublishedRelease) ([]bundle.Assignment, []bundle.Artifact, error) {
		return w.releases[r.Digest].Assignments, nil, nil
	}
	return s
}

// askContent asks a fleet over a store.
func (w *contents) askContent(t *rapid.T, from fleet.Source) fleet.Content {
	f, err := fleet.Open(t.Context(), from, fleet.Options{Now: func() time.Time { return judged }})
	require.NoError(t, err)
	view, err := f.View(store.AccessScope{})
	require.NoError(t, err)
	return w.contentFrom(t, view)
}

// contentFrom asks the question.
func (w *contents) contentFrom(t *rapid.T, from fleet.Answers) fleet.Content {
	c, err := from.Content(t.Context(), "stage", w.asked)
	require.NoError(t, err)
	return c
}

// fleetOf is a fleet with one record of one cluster type without rings, which assigns shop/cart and the platform's menu.
func fleetOf(t *testing.T, sites ...site) (*memory.Store, fleet.ContentQuery) {
	release := store.PublishedRelease{Digest: digest.FromString("release"), Release: bundle.Release{Platform: "coffee", Environment: "stage", ClusterType: "drone", Sequence: 1}}
	record := store.PublishedRecord{Digest: digest.FromString("record"), EnvironmentRecord: bundle.EnvironmentRecord{
		Platform: "coffee", Environment: "stage", Sequence: 1, ClusterTypes: map[string]digest.Digest{"drone": release.Digest},
	}}
	s := memory.New(judged)
	s.Contents = func(context.Context, store.PublishedRelease) ([]bundle.Assignment, []bundle.Artifact, error) {
		return []bundle.Assignment{{Name: "cart-live", Registration: "shop", Workload: "cart", Content: digest.FromString("new")}, {Name: "menu-live", Workload: "menu", Content: digest.FromString("new")}}, nil, nil
	}
	for _, one := range sites {
		require.NoError(t, s.Add(one.Registration, one.reports...))
	}
	s.Publish([]store.PublishedRecord{record}, []store.PublishedRelease{release})
	in := []ledger.Stay{{Since: judged}}
	return s, fleet.ContentQuery{Record: record.Digest, Workloads: fleet.WorkloadsOf(&ledger.Ledger{Workloads: []ledger.Workload{
		{Key: ledger.Key{Workload: "menu"}, Revisions: []ledger.Revision{{In: in}}}, {Key: ledger.Key{Registration: "shop", Workload: "cart"}, Revisions: []ledger.Revision{{In: in}}},
	}}, "")}
}

// drone is a cluster that reports the states of its items, each of which has the record's content, or an earlier one with "old " before.
func drone(name string, state bundle.State, reason string, items map[string]string) site {
	id := store.Identity{UID: name, Name: name, Platform: "coffee", Environment: "stage", Type: "drone"}
	r := bundle.Report{
		Schema: bundle.ReportSchema, Kind: bundle.Event, Cluster: bundle.ReportCluster(id), Agent: bundle.ReportAgent{Version: "1", Incarnation: 1, Seq: 1},
		OccurredAt: judged.Add(-time.Minute), State: state, Reason: reason,
	}
	for _, item := range slices.Sorted(maps.Keys(items)) {
		content, has := digest.FromString("new"), items[item]
		if len(has) > 4 && has[:4] == "old " {
			content, has = digest.FromString("old"), has[4:]
		}
		r.Items = append(r.Items, bundle.Item{Assignment: item, Workload: item, Target: "live", State: bundle.State(has), Content: content})
	}
	return site{store.Registration{Cluster: store.Cluster{Identity: id}, AddedAt: judged.Add(-time.Hour)}, []bundle.Report{r}}
}

func TestANeighboursFailureNeitherHoldsNorProves(t *testing.T) {
	s, q := fleetOf(t,
		drone("a", bundle.Failed, "", map[string]string{"cart-live": "compliant", "menu-live": "failed"}),
		drone("b", bundle.Failed, "Quarantined", map[string]string{"cart-live": "old compliant", "menu-live": "old compliant"}), // rolled back
		drone("c", bundle.Failed, "Quarantined", map[string]string{"cart-live": "compliant", "menu-live": "old failed"}),
	)
	f, err := fleet.Open(t.Context(), s, fleet.Options{Now: func() time.Time { return judged }})
	require.NoError(t, err)
	view, err := f.View(store.AccessScope{})
	require.NoError(t, err)
	c, err := view.Content(t.Context(), "stage", q)
	require.NoError(t, err)
	menu, cart := c.Workloads[0], c.Workloads[1]
	require.Equal(t, fleet.ContentCount{RolloutCounts: fleet.RolloutCounts{Clusters: 3, Compliant: 2, Waiting: 1}, Quarantined: 1}, cart.ContentCount)
	require.Equal(t, fleet.ContentCount{RolloutCounts: fleet.RolloutCounts{Clusters: 3, Failed: 1, Waiting: 2}, Quarantined: 2}, menu.ContentCount)
	require.Equal(t, []string{"a"}, menu.Failing)

	q.Record = digest.FromString("another record")
	c, err = view.Content(t.Context(), "stage", q)
	require.NoError(t, err)
	require.False(t, c.Known, "the hub lags")
	require.Empty(t, c.Workloads)
}

func TestWhoSeesAPartOfTheFleetProvesNothing(t *testing.T) {
	s, q := fleetOf(t)
	f, err := fleet.Open(t.Context(), s, fleet.Options{Now: func() time.Time { return judged }})
	require.NoError(t, err)
	for _, scope := range []store.AccessScope{{Workspaces: []string{"ops"}}, {Selector: "pilot=true"}, {Environments: []string{"prod"}}} {
		view, err := f.View(scope)
		require.NoError(t, err)
		_, err = view.Content(t.Context(), "stage", q)
		require.ErrorIs(t, err, store.ErrOutOfScope, "%+v", scope)
	}
	view, err := f.View(store.AccessScope{Environments: []string{"stage"}})
	require.NoError(t, err)
	_, err = view.Content(t.Context(), "stage", q)
	require.NoError(t, err)
	for _, bad := range []fleet.ContentQuery{{MaxReportAge: -1}, {Required: "a in"}, {Workloads: make([]fleet.AskedWorkload, 21_001)}} {
		_, err = view.Content(t.Context(), "stage", bad)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
}
