package cohort

import (
	"crypto/ed25519"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/memory"
	"github.com/wherry-dev/wherry/publisher/gate"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/scheduler"
)

// The two judges answer alike about generated fleets, but for what was decided:
//
//   - A cluster whose object names no ring is in the one that its agent claims, as in a hub.
//   - A record of which a release is missing still vouches for those that were made from its own commits.
//   - A report that is from the future is unknown to both; the fleet does not say when it was seen, and has the reason ClockAhead.
//   - The reason of an open cluster is that of its first assignment in the cluster's state, whatever the state is; the message is plain.
func TestTwoJudgesOfGeneratedFleets(t *testing.T) {
	fleets := "200"
	if sweeptest.Full() {
		fleets = "10000"
	}
	require.NoError(t, flag.Set("rapid.checks", fleets))
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		old, got := w.old(rt), w.fleet(rt)
		for _, c := range []*gate.Cohort{&old, &got} {
			for i := range c.Open {
				c.Open[i].Reason, c.Open[i].Message = "", ""
				if w.ahead[c.Open[i].UID] {
					c.Open[i].LastSeen = time.Time{}
				}
			}
			if len(w.ahead) > 0 {
				slices.SortFunc(c.Open, func(a, b gate.Cluster) int { return len(a.UID) - len(b.UID) })
			}
		}
		if w.missing {
			require.GreaterOrEqual(rt, got.Compliant+got.Progressing+got.Failed, old.Compliant+old.Progressing+old.Failed)
			require.Equal(rt, []int{old.Clusters, old.Unknown, old.NotReporting, old.Failures}, []int{got.Clusters, got.Unknown, got.NotReporting, got.Failures})
			return
		}
		require.Equal(rt, old, got)
	})
}

// drawn is a generated fleet and a question about it.
type drawn struct {
	history History
	reports Reports
	q       Query
	missing bool            // a release that a record names
	ahead   map[string]bool // clusters whose newest report is from the future, by uid
}

var judged = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func drawWorld(t *rapid.T) *drawn {
	w := &drawn{ahead: map[string]bool{}}
	w.history = History{Environment: "stage", Platform: "coffee", reader: &Reader{now: judged}, known: map[digest.Digest]*bundle.Verified{digest.FromString("foreign"): nil}}
	releases := w.publish(t)
	w.register(t, releases)
	w.q = Query{
		Commit: pick(t, "commit", "aaaaaaaa", "bbbbbbbb", "cccccccc", "zzzzzzzz"), Since: judged.Add(-6 * time.Hour), MaxReportAge: 24 * time.Hour,
		Rings: pick(t, "rings", nil, nil, []string{"canary"}, []string{"stable", ""}),
	}
	if rapid.Bool().Draw(t, "registered before") {
		w.q.RegisteredBefore = judged.Add(-6 * time.Hour)
	}
	if rapid.IntRange(0, 3).Draw(t, "selects") == 0 {
		w.q.Selector = labels.SelectorFromSet(labels.Set{"pilot": "true"})
	}
	if len(w.ahead) == 0 {
		w.q.Open = rapid.IntRange(0, 3).Draw(t, "open")
	}
	return w
}

func pick[T any](t *rapid.T, name string, from ...T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, name)]
}

// publish makes up to six records of two cluster types, with rings or without. It returns all releases.
func (w *drawn) publish(t *rapid.T) (all []digest.Digest) {
	types, rings := []string{"drone", "large"}, pick(t, "ring names", nil, []string{"canary", "stable"})
	now := map[string]map[string]digest.Digest{"drone": {}, "large": {}}
	release := func(typ, commit, content string) digest.Digest {
		v := &bundle.Verified{Release: bundle.Release{
			Platform: "coffee", Environment: "stage", ClusterType: typ, BaseCommit: commit, EnvironmentCommit: "eeeeeeee", Sequence: int64(len(all) + 1), IssuedAt: judged.Add(-48 * time.Hour),
		}}
		v.Release.Content.DiffID = digest.FromString(content)
		v.Descriptor.Digest = digest.FromString(fmt.Sprint("release ", len(all)))
		all = append(all, v.Descriptor.Digest)
		w.history.known[v.Descriptor.Digest] = v
		return v.Descriptor.Digest
	}
	for n := range rapid.IntRange(0, 6).Draw(t, "records") {
		r := bundle.EnvironmentRecord{
			Platform: "coffee", Environment: "stage", Sequence: int64(n + 1), IssuedAt: judged.Add(time.Duration(n-24) * time.Hour),
			BaseCommit: pick(t, "base", "aaaaaaaa", "bbbbbbbb", "cccccccc"), EnvironmentCommit: "eeeeeeee", ClusterTypes: map[string]digest.Digest{},
		}
		for _, typ := range types {
			switch pick(t, "what", "new", "new", "kept", "re-signed", "incomplete", "all rings") {
			case "new":
				now[typ][first(rings)] = release(typ, r.BaseCommit, typ+pick(t, "content", "1", "2", "3"))
			case "re-signed":
				if before := w.history.known[now[typ][first(rings)]]; before != nil {
					d := release(typ, before.Release.BaseCommit, "")
					w.history.known[d].Release.Content, now[typ][first(rings)] = before.Release.Content, d
				}
			case "incomplete":
				r.Incomplete = append(r.Incomplete, typ)
				now[typ][first(rings)] = release(typ, r.BaseCommit, typ+"held")
			case "all rings":
				for _, ring := range append([]string{""}, rings...) {
					now[typ][ring] = release(typ, r.BaseCommit, typ+"4")
				}
			}
			for ring, d := range now[typ] {
				if ring == "" {
					r.ClusterTypes[typ] = d
					continue
				}
				if r.Rings == nil {
					r.Rings = map[string]map[string]digest.Digest{}
				}
				if r.Rings[typ] == nil {
					r.Rings[typ] = map[string]digest.Digest{}
				}
				r.Rings[typ][ring] = d
			}
		}
		w.history.Records = append(w.history.Records, bundle.VerifiedEnvironment{Record: r})
	}
	if len(all) > 0 && rapid.IntRange(0, 9).Draw(t, "one is missing") == 0 {
		w.missing = true
		w.history.known[pick(t, "missing", all...)] = nil
	}
	return all
}

// first returns the first ring; empty for a platform without rings.
func first(rings []string) string { return append(slices.Clone(rings), "")[0] }

var agentKeys = func() (all []ed25519.PrivateKey) {
	for i := range 8 {
		all = append(all, ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032d", i))))
	}
	return all
}()

// register makes up to six clusters with up to four reports each, some of them by a key that was replaced.
func (w *drawn) register(t *rapid.T, releases []digest.Digest) {
	offered := append([]digest.Digest{"", digest.FromString("foreign")}, releases...)
	for n := range rapid.IntRange(0, 6).Draw(t, "clusters") {
		pem, err := bundle.MarshalPublicKey(agentKeys[n].Public())
		require.NoError(t, err)
		c := scheduler.Cluster{
			Name: fmt.Sprintf("site-%d", n), UID: fmt.Sprintf("uid%s", "xxxxxxxxx"[:n]), ClusterType: pick(t, "type", "drone", "drone", "large", "other"), Ring: pick(t, "ring", "", "canary", "stable"),
			PublicKey: string(pem), Reporting: rapid.IntRange(0, 7).Draw(t, "reports none") > 0,
			RegisteredAt: pick(t, "registered", time.Time{}, judged.Add(-7*time.Hour), judged.Add(-6*time.Hour), judged.Add(-5*time.Hour)),
			Labels:       pick(t, "labels", nil, map[string]string{"pilot": "true"}, map[string]string{"pilot": "false"}),
		}
		review, err := roster.NewReview([]scheduler.Cluster{c})
		require.NoError(t, err)
		for seq := range rapid.IntRange(0, 4).Draw(t, "reports") {
			if c.Reporting {
				review.Add(w.report(t, c, n, int64(seq+1), offered))
			}
		}
		if all := review.ReportsOf(c.UID); len(all) > 0 {
			newest := all[len(all)-1]
			if newest.OccurredAt.Sub(judged) > MaxAhead {
				w.ahead[c.UID] = true
			}
			if c.Ring == "" {
				c.Ring = newest.Cluster.Ring
			}
			if w.reports.byUID == nil {
				w.reports.byUID = map[string][]bundle.Report{}
			}
			w.reports.byUID[c.UID] = all
		}
		w.reports.clusters = append(w.reports.clusters, c)
	}
}

func (w *drawn) report(t *rapid.T, c scheduler.Cluster, n int, seq int64, offered []digest.Digest) []byte {
	r := bundle.Report{
		Schema: bundle.ReportSchema, Kind: bundle.Event,
		Cluster:    bundle.ReportCluster{UID: c.UID, Name: c.Name, Platform: "coffee", Type: c.ClusterType, Environment: "stage", Ring: pick(t, "claims", c.Ring, c.Ring, "canary")},
		Agent:      bundle.ReportAgent{Version: "1", Incarnation: pick[int64](t, "incarnation", 1, 1, 2), Seq: seq},
		OccurredAt: judged.Add(pick(t, "age", -time.Minute, -5*time.Hour, -7*time.Hour, -24*time.Hour, -24*time.Hour-time.Second, 10*time.Minute, 11*time.Minute)),
		State:      pick(t, "state", bundle.Compliant, bundle.Compliant, bundle.Progressing, bundle.Failed, bundle.Rejected, bundle.Drifted, bundle.Applying),
		Reason:     pick(t, "reason", "", "Crash", "Quarantined"),
	}
	if d := pick(t, "observed", offered...); d != "" {
		r.Observed = &bundle.ReportRelease{Digest: d}
	}
	if d := pick(t, "desired", offered...); d != "" {
		r.Desired = &bundle.ReportRelease{Digest: d}
	}
	for _, name := range []string{"web-live", "db-live"}[:rapid.IntRange(0, 2).Draw(t, "items")] {
		r.Items = append(r.Items, bundle.Item{
			Assignment: name, Workload: name, Target: "live", State: pick(t, "item", bundle.Compliant, bundle.Failed, bundle.Progressing), Failures: rapid.Int64Range(0, 4).Draw(t, "failures"),
			Since: judged.Add(pick(t, "since", -8*time.Hour, -time.Hour)),
		})
	}
	body, err := json.Marshal(r)
	require.NoError(t, err)
	key := agentKeys[n]
	if rapid.IntRange(0, 7).Draw(t, "replaced key") == 0 {
		key = agentKeys[len(agentKeys)-1]
	}
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, key)
	require.NoError(t, err)
	return envelope
}

func (w *drawn) old(t *rapid.T) gate.Cohort {
	c, err := w.history.Count(t.Context(), &w.reports, w.q)
	require.NoError(t, err)
	return c
}

// fleet asks a fleet over a store with the same facts.
func (w *drawn) fleet(t *rapid.T) gate.Cohort {
	s := memory.New(judged)
	for _, c := range w.reports.clusters {
		r := store.Registration{Cluster: store.Cluster{Identity: store.Identity{
			UID: c.UID, Name: c.Name, Platform: "coffee", Environment: "stage", Type: c.ClusterType, Ring: c.Ring, Labels: c.Labels,
		}}, AddedAt: c.RegisteredAt}
		if !c.Reporting {
			r.Reporting = store.NotReporting
		}
		require.NoError(t, s.Add(r, w.reports.byUID[c.UID]...))
	}
	var records []store.PublishedRecord
	for _, r := range w.history.Records {
		records = append(records, store.PublishedRecord{EnvironmentRecord: r.Record})
	}
	var releases []store.PublishedRelease
	for d, r := range w.history.known {
		if r != nil {
			releases = append(releases, store.PublishedRelease{Digest: d, Release: r.Release})
		}
	}
	s.Publish(records, releases)
	f, err := fleet.Open(t.Context(), s, fleet.Options{Now: func() time.Time { return judged }})
	require.NoError(t, err)
	view, err := f.View(store.AccessScope{})
	require.NoError(t, err)
	q := fleet.RolloutQuery{RegisteredBefore: w.q.RegisteredBefore, MaxReportAge: w.q.MaxReportAge, Rings: w.q.Rings, FailuresSince: w.q.Since}
	q.Limit = w.q.Open
	if w.q.Selector != nil {
		q.Selector = w.q.Selector.String()
	}
	got := gate.Cohort{From: gate.FromRegistry, AsOf: judged, Open: []gate.Cluster{}}
	r, err := view.Rollout(t.Context(), "stage", w.q.Commit, q)
	if unknown := (*fleet.UnknownNameError)(nil); err != nil && len(records)+len(w.reports.clusters) == 0 {
		require.ErrorAs(t, err, &unknown)
		return got
	}
	require.NoError(t, err)
	got.Clusters, got.Compliant, got.Progressing, got.Failed, got.Waiting, got.Unknown = r.Clusters, r.Compliant, r.Progressing, r.FailedCount, r.Waiting, r.Unknown
	got.Quarantined, got.Failures, got.NotReporting = r.Quarantined, int(r.Failures), r.NotReporting
	for _, o := range r.Open {
		got.Open = append(got.Open, gate.Cluster{UID: o.UID, Name: o.Cluster, Type: o.Type, Ring: o.Ring, Verdict: o.Verdict, LastSeen: o.LastSeen})
	}
	return got
}
