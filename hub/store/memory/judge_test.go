package memory_test

import (
	"cmp"
	"crypto/ed25519"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/memory"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// A fleet over a store in memory counts the clusters of generated fleets as the rules in the function model say, which was the judge
// of gates without a hub once; and a fleet over the database of a hub counts them alike. Decided where they differed:
//
//   - Silence is neither compliance nor failure: a report that is too old, or from the future, is unknown. A hub knows when a report
//     came, and takes that for the age of one from the future.
//   - A cluster whose object names no ring is in the one that its agent claims.
//   - For a gate of a ring, a release also has to have the content of the ring before, or to be later.
//   - A record of which a release is missing vouches, for that type, for the releases of its own commits alone.
//   - Failures are those of the agent's own numbers here, where reports are few; a hub counts the reports that have a failure.
//   - Of two keys of a cluster, the one of its object counts here; a hub still takes the reports that the former key signed in its time.
func TestGeneratedFleetsAreCountedByTheRules(t *testing.T) {
	fleets := "200"
	if sweeptest.Full() {
		fleets = "10000"
	}
	require.NoError(t, flag.Set("rapid.checks", fleets))
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		want, got := w.model(), w.ask(rt, w.memory(rt))
		require.Equal(rt, want, got)
		if n++; n%10 != 0 || w.onlyHere {
			return
		}
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "hub.db"), sqlite.Options{Now: func() time.Time { return w.clock }})
		require.NoError(rt, err)
		defer db.Close()
		w.fill(rt, db)
		hub := w.ask(rt, db)
		hub.Failures = want.Failures
		require.Equal(rt, want, hub)
	})
}

var judged = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// site is a cluster of a generated fleet with its reports, oldest first.
type site struct {
	store.Registration
	reports []bundle.Report
}

// drawn is a generated fleet, and a question about it.
type drawn struct {
	sites    []site
	records  []store.PublishedRecord
	releases map[digest.Digest]store.PublishedRelease
	commit   string
	q        fleet.RolloutQuery
	clock    time.Time
	// onlyHere is true if the times of reports are such that a hub, which knows when they came, has another opinion.
	onlyHere bool
}

// answer is what is compared.
type answer struct {
	fleet.RolloutCounts
	NotReporting, Later, Quarantined int
	Failures                         int64
	Open                             []string
}

func pick[T any](t *rapid.T, name string, from ...T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, name)]
}

func drawWorld(t *rapid.T) *drawn {
	w := &drawn{releases: map[digest.Digest]store.PublishedRelease{}}
	offered := append([]digest.Digest{"", digest.FromString("foreign")}, w.publish(t)...)
	for n := range rapid.IntRange(0, 6).Draw(t, "clusters") {
		w.register(t, n, offered)
	}
	w.commit = pick(t, "commit", "aaaaaaaa", "bbbbbbbb", "cccccccc", "zzzzzzzz")
	w.q = fleet.RolloutQuery{
		FailuresSince: judged.Add(-6 * time.Hour), MaxReportAge: 24 * time.Hour, Rings: pick(t, "rings", nil, nil, []string{"canary"}, []string{"stable", ""}),
	}
	w.q.Selector, w.q.Limit = pick(t, "selector", "", "", "pilot=true"), rapid.IntRange(0, 3).Draw(t, "limit")
	w.q.RegisteredBefore = pick(t, "registered before", time.Time{}, judged.Add(-6*time.Hour))
	return w
}

// publish makes up to six records of two cluster types, with rings or without. It returns all releases.
func (w *drawn) publish(t *rapid.T) (all []digest.Digest) {
	rings := pick(t, "ring names", nil, []string{"canary", "stable"})
	narrowest := append(slices.Clone(rings), "")[0]
	now := map[string]map[string]digest.Digest{"drone": {}, "large": {}}
	release := func(typ, commit string, content digest.Digest) digest.Digest {
		r := store.PublishedRelease{Digest: digest.FromString(fmt.Sprint("release ", len(all))), Release: bundle.Release{
			Platform: "coffee", Environment: "stage", ClusterType: typ, BaseCommit: commit, EnvironmentCommit: "eeeeeeee", Sequence: int64(len(all) + 1), IssuedAt: judged.Add(-48 * time.Hour),
		}}
		r.Content.DiffID = content
		all, w.releases[r.Digest] = append(all, r.Digest), r
		return r.Digest
	}
	for n := range rapid.IntRange(0, 6).Draw(t, "records") {
		r := bundle.EnvironmentRecord{
			Platform: "coffee", Environment: "stage", Sequence: int64(n + 1), IssuedAt: judged.Add(time.Duration(n-24) * time.Hour),
			BaseCommit: pick(t, "base", "aaaaaaaa", "bbbbbbbb", "cccccccc"), EnvironmentCommit: "eeeeeeee",
			ClusterTypes: map[string]digest.Digest{}, Rings: map[string]map[string]digest.Digest{},
		}
		for typ, has := range map[string]map[string]digest.Digest{"drone": now["drone"], "large": now["large"]} {
			switch pick(t, "what", "new", "new", "kept", "re-signed", "incomplete", "all rings") {
			case "new":
				has[narrowest] = release(typ, r.BaseCommit, digest.FromString(pick(t, "content", "1", "2", "3")))
			case "re-signed":
				if before, known := w.releases[has[narrowest]]; known {
					has[narrowest] = release(typ, before.BaseCommit, before.Content.DiffID)
				}
			case "incomplete":
				r.Incomplete = append(r.Incomplete, typ)
				has[narrowest] = release(typ, r.BaseCommit, digest.FromString("held"))
			case "all rings":
				for _, ring := range append([]string{""}, rings...) {
					has[ring] = release(typ, r.BaseCommit, digest.FromString("4"))
				}
			}
			for ring, d := range has {
				if ring == "" {
					r.ClusterTypes[typ] = d
					continue
				}
				if r.Rings[typ] == nil {
					r.Rings[typ] = map[string]digest.Digest{}
				}
				r.Rings[typ][ring] = d
			}
		}
		w.records = append(w.records, store.PublishedRecord{Digest: digest.FromString(fmt.Sprint("record ", n)), EnvironmentRecord: r})
	}
	if len(all) > 0 && rapid.IntRange(0, 9).Draw(t, "one is missing") == 0 {
		delete(w.releases, pick(t, "missing", all...))
	}
	return all
}

// register adds a cluster with up to four reports.
func (w *drawn) register(t *rapid.T, n int, offered []digest.Digest) {
	s := site{Registration: store.Registration{
		Cluster: store.Cluster{Identity: store.Identity{
			UID: fmt.Sprint("uid-", n), Name: fmt.Sprint("site-", n), Platform: "coffee", Environment: "stage", Type: pick(t, "type", "drone", "drone", "large", "other"),
			Ring: pick(t, "ring", "", "canary", "stable"), Labels: pick(t, "labels", nil, map[string]string{"pilot": "true"}, map[string]string{"pilot": "false"}),
		}},
		AddedAt: pick(t, "registered", time.Time{}, judged.Add(-7*time.Hour), judged.Add(-6*time.Hour), judged.Add(-5*time.Hour)),
	}}
	if rapid.IntRange(0, 7).Draw(t, "reports none") == 0 {
		s.Reporting = store.NotReporting
		w.sites = append(w.sites, s)
		return
	}
	for seq := range rapid.IntRange(0, 4).Draw(t, "reports") {
		s.reports = append(s.reports, w.report(t, s.Identity, int64(seq+1), offered))
	}
	slices.SortFunc(s.reports, func(a, b bundle.Report) int { return store.OrderOf(a.Agent).Compare(store.OrderOf(b.Agent)) })
	for i, r := range s.reports {
		if r.OccurredAt.After(judged) || i > 0 && r.OccurredAt.Before(s.reports[i-1].OccurredAt) {
			w.onlyHere = true
		}
	}
	w.sites = append(w.sites, s)
}

func (w *drawn) report(t *rapid.T, id store.Identity, seq int64, offered []digest.Digest) bundle.Report {
	r := bundle.Report{
		Schema: bundle.ReportSchema, Kind: bundle.Event, Cluster: bundle.ReportCluster(id), Agent: bundle.ReportAgent{Version: "1", Incarnation: pick[int64](t, "incarnation", 1, 1, 1, 2), Seq: seq},
		OccurredAt: judged.Add(pick(t, "age", -time.Minute, -time.Minute, -5*time.Hour, -7*time.Hour, -24*time.Hour, -24*time.Hour-time.Second, 10*time.Minute, 11*time.Minute)),
		State:      pick(t, "state", bundle.Compliant, bundle.Compliant, bundle.Progressing, bundle.Failed, bundle.Rejected, bundle.Drifted, bundle.Applying),
		Reason:     pick(t, "reason", "", "Crash", "Quarantined"),
	}
	r.Cluster.Ring = pick(t, "claims", id.Ring, id.Ring, "canary")
	if d := pick(t, "observed", offered...); d != "" {
		r.Observed = &bundle.ReportRelease{Digest: d}
	}
	if d := pick(t, "desired", offered...); d != "" {
		r.Desired = &bundle.ReportRelease{Digest: d}
	}
	for _, name := range []string{"db-live", "web-live"}[:rapid.IntRange(0, 2).Draw(t, "items")] {
		r.Items = append(r.Items, bundle.Item{
			Assignment: name, Workload: name, Target: "live", State: pick(t, "item", bundle.Compliant, bundle.Failed, bundle.Progressing), Failures: rapid.Int64Range(0, 4).Draw(t, "failures"),
			Since: judged.Add(pick(t, "since", -8*time.Hour, -time.Hour)),
		})
	}
	return r
}

// model counts by the rules, cluster by cluster.
func (w *drawn) model() (a answer) {
	at := lineage.New(bundle.Stream{Platform: "coffee", Environment: "stage"}, func(d digest.Digest) *bundle.Release {
		if r, known := w.releases[d]; known {
			return &r.Release
		}
		return nil
	})
	for i := range w.records {
		at.Add(&w.records[i].EnvironmentRecord)
	}
	commit, _ := at.Find(func(other string) bool { return other == w.commit })
	has := func(typ string, d digest.Digest) bool {
		return commit != nil && commit.Has(typ, d) && (len(w.q.Rings) == 0 || commit.InRing(typ, w.q.Rings[len(w.q.Rings)-1])(d))
	}
	type open struct {
		name    string
		verdict lineage.Verdict
		seen    time.Time
	}
	var rows []open
	for _, s := range w.sites {
		newest, seen := bundle.Report{}, time.Time{}
		if len(s.reports) > 0 {
			newest = s.reports[len(s.reports)-1]
			if newest.OccurredAt.Sub(judged) <= 10*time.Minute {
				seen = newest.OccurredAt
			}
		}
		switch {
		case w.q.Rings != nil && !slices.Contains(w.q.Rings, cmp.Or(s.Ring, newest.Cluster.Ring)), w.q.Selector != "" && s.Labels["pilot"] != "true":
			continue
		case !w.q.RegisteredBefore.IsZero() && !s.AddedAt.Before(w.q.RegisteredBefore):
			a.Later++
			continue
		case s.Reporting != "":
			a.NotReporting++
			continue
		}
		verdict := lineage.Unknown
		if !seen.IsZero() && judged.Sub(seen) <= w.q.MaxReportAge {
			verdict = lineage.VerdictOf(newest.State, has(s.Type, digestOf(newest.Observed)), has(s.Type, digestOf(newest.Desired)))
		}
		if newest.Reason == "Quarantined" && has(s.Type, digestOf(newest.Desired)) {
			a.Quarantined++
		}
		a.Failures += failures(s.reports, w.q.FailuresSince)
		a.Clusters++
		switch verdict {
		case lineage.Compliant:
			a.Compliant++
			continue
		case lineage.Progressing:
			a.Progressing++
		case lineage.Failed:
			a.Failed++
		case lineage.Waiting:
			a.Waiting++
		case lineage.Unknown:
			a.Unknown++
		}
		rows = append(rows, open{s.Name, verdict, seen})
	}
	slices.SortStableFunc(rows, func(a, b open) int {
		return cmp.Or(a.verdict.Compare(b.verdict), a.seen.Compare(b.seen), cmp.Compare(a.name, b.name))
	})
	for i, r := range rows {
		if w.q.Limit == 0 || i < w.q.Limit {
			a.Open = append(a.Open, fmt.Sprintln(r.verdict, r.name, r.seen))
		}
	}
	return a
}

func digestOf(r *bundle.ReportRelease) digest.Digest {
	if r == nil {
		return ""
	}
	return r.Digest
}

// failures returns by how much the numbers of failures have risen since the last report that is not after a time. Without one, the
// oldest report is where the count begins, but for what began to fail after the time.
func failures(reports []bundle.Report, since time.Time) (n int64) {
	for i, r := range reports {
		for _, item := range r.Items {
			begins := i == 0
			had := int64(0)
			for j := i - 1; j >= 0 && reports[j].Agent.Incarnation == r.Agent.Incarnation; j-- {
				if k := slices.IndexFunc(reports[j].Items, func(other bundle.Item) bool { return other.Assignment == item.Assignment }); k >= 0 {
					had = reports[j].Items[k].Failures
					break
				}
			}
			switch {
			case !r.OccurredAt.After(since):
			case begins && item.State == bundle.Failed && item.Since.After(since):
				n++
			case !begins:
				n += max(0, item.Failures-had)
			}
		}
	}
	return n
}

// memory returns the fleet in a store in memory.
func (w *drawn) memory(t *rapid.T) fleet.Source {
	s := memory.New(judged)
	for _, one := range w.sites {
		require.NoError(t, s.Add(one.Registration, one.reports...))
	}
	var releases []store.PublishedRelease
	for _, r := range w.releases {
		releases = append(releases, r)
	}
	s.Publish(w.records, releases)
	return s
}

// fill puts the fleet into the database of a hub.
func (w *drawn) fill(t *rapid.T, db store.Store) {
	for i, s := range w.sites {
		w.clock = s.AddedAt
		if s.Reporting == "" {
			s.Key = ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%032d", i)).Public().(ed25519.PublicKey)
		}
		_, err := db.AddCluster(t.Context(), s.Cluster)
		require.NoError(t, err)
		w.clock = judged
		b := store.Batch{UID: s.UID, Via: store.ViaRegistry}
		for _, r := range s.reports {
			b.Reports = append(b.Reports, store.Report{ID: digest.FromString(fmt.Sprint(s.UID, r.Agent)), Body: r})
		}
		if len(b.Reports) > 0 {
			_, err = db.Ingest(t.Context(), b)
			require.NoError(t, err)
		}
	}
	var releases []store.PublishedRelease
	for _, r := range w.releases {
		releases = append(releases, r)
	}
	_, err := db.AddReleases(t.Context(), releases)
	require.NoError(t, err)
	for _, r := range w.records {
		_, err := db.AddRecord(t.Context(), r)
		require.NoError(t, err)
	}
}

// ask asks a fleet over a store.
func (w *drawn) ask(t *rapid.T, from fleet.Source) (a answer) {
	f, err := fleet.Open(t.Context(), from, fleet.Options{Now: func() time.Time { return judged }})
	require.NoError(t, err)
	view, err := f.View(store.AccessScope{})
	require.NoError(t, err)
	r, err := view.Rollout(t.Context(), "stage", w.commit, w.q)
	if len(w.records)+len(w.sites) == 0 {
		require.ErrorAs(t, err, new(*fleet.UnknownNameError))
		return a
	}
	require.NoError(t, err)
	a.RolloutCounts = fleet.RolloutCounts{Clusters: r.Clusters, Compliant: r.Compliant, Progressing: r.Progressing, Failed: r.FailedCount, Waiting: r.Waiting, Unknown: r.Unknown}
	a.NotReporting, a.Later, a.Quarantined, a.Failures = r.NotReporting, r.Later, r.Quarantined, r.Failures
	for _, o := range r.Open {
		a.Open = append(a.Open, fmt.Sprintln(o.Verdict, o.Cluster, o.LastSeen))
	}
	return a
}
