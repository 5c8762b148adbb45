package facts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/registrytest"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// commit returns the base commit of that letter.
func commit(letter string) string { return strings.Repeat(letter, 40) }

// world is an environment "stage" that is published to a location, and the clusters of its roster.
type world struct {
	t        testing.TB
	loc      oci.Location
	opts     oci.Options
	key      *keys.Key
	now      time.Time
	rings    []string
	clusters []scheduler.Cluster
	agents   map[string]ed25519.PrivateKey
	seq      int64
	warnings []string

	environment string // that is published
}

func newWorld(t testing.TB, rings ...string) *world {
	return &world{
		t: t, loc: oci.Location{Dir: t.TempDir() + "/layout"}, key: keytest.New(t), now: start, rings: rings, agents: map[string]ed25519.PrivateKey{},
		environment: "stage",
	}
}

// publish publishes cluster types, each given as TYPE=CONTENT, from a commit, an hour after the publication before. It returns the releases
// for the first ring, by cluster type.
func (w *world) publish(commit string, types ...string) map[string]digest.Digest {
	w.t.Helper()
	result := &scheduler.Result{Environment: w.environment, Platform: "coffee", BaseCommit: commit, Rings: w.rings, Workloads: []scheduler.Workload{{Name: "web", Object: digest.FromString(strings.Join(types, " ")), Targets: []scheduler.WorkloadTarget{{Name: "live", FullName: "web-live"}}}}}
	for _, one := range types {
		name, content, _ := strings.Cut(one, "=")
		a := scheduler.Assignment{
			Name: "web-live", ClusterType: name, Workload: "web", Target: "live", Adapter: "directory",
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte("text: " + content + "\n")}},
		}
		switch content {
		case "unpinned":
			a.Files[0].Data = []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: \"example.com/web:latest\"}]}\n")
		case "floating":
			a.Files[0].Data = []byte("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: web}\nspec: {url: \"https://example.com/web\", ref: {branch: main}}\n")
		}
		result.ClusterTypes = append(result.ClusterTypes, scheduler.ClusterTypeResult{Name: name, Assignments: []scheduler.Assignment{a}})
	}
	w.now = w.now.Add(time.Hour)
	done, err := publisher.Publish(w.t.Context(), result, w.loc, []*keys.Key{w.key}, publisher.PublishOptions{Now: func() time.Time { return w.now }, OCI: w.opts})
	require.NoError(w.t, err)
	first := map[string]digest.Digest{}
	for _, ct := range done.ClusterTypes {
		if first[ct.ClusterType] == "" {
			first[ct.ClusterType] = ct.Digest
		}
	}
	return first
}

// cluster adds a cluster to the roster, which has always been there.
func (w *world) cluster(name, typ string, change ...func(*scheduler.Cluster)) {
	w.t.Helper()
	seed := sha(name)
	key := ed25519.NewKeyFromSeed(seed[:])
	pem, err := bundle.MarshalPublicKey(key.Public())
	require.NoError(w.t, err)
	c := scheduler.Cluster{Name: name, UID: "uid-" + name, ClusterType: typ, PublicKey: string(pem), Reporting: true}
	for _, f := range change {
		f(&c)
	}
	w.clusters, w.agents[name] = append(w.clusters, c), key
}

func sha(text string) (seed [32]byte) {
	copy(seed[:], digest.FromString(text).Encoded())
	return seed
}

// report returns the envelope of a report of a cluster, of now.
func (w *world) report(name string, state bundle.State, observed, desired digest.Digest, change ...func(*bundle.Report)) []byte {
	w.t.Helper()
	w.seq++
	r := bundle.Report{
		Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster{UID: "uid-" + name, Name: name, Platform: "coffee", Type: "drone", Environment: "stage"},
		Agent: bundle.ReportAgent{Version: "1", Incarnation: 1, Seq: w.seq}, Kind: bundle.Snapshot, OccurredAt: w.now, State: state, Items: []bundle.Item{},
	}
	if observed != "" {
		r.Observed = &bundle.ReportRelease{Digest: observed, Sequence: 1}
	}
	if desired != "" {
		r.Desired = &bundle.ReportRelease{Digest: desired, Sequence: 1}
	}
	for _, f := range change {
		f(&r)
	}
	body, err := json.Marshal(r)
	require.NoError(w.t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, w.agents[name])
	require.NoError(w.t, err)
	return envelope
}

// leave puts reports into the registry as one artifact, as agents do.
func (w *world) leave(name string, envelopes ...[]byte) {
	w.t.Helper()
	blobs, err := bundle.StoredReports(envelopes)
	require.NoError(w.t, err)
	repo, err := w.loc.Repository(bundle.ReportRepository("uid-"+name), w.opts)
	require.NoError(w.t, err)
	for _, b := range blobs {
		there, err := repo.Exists(w.t.Context(), b.Descriptor)
		require.NoError(w.t, err)
		if !there {
			require.NoError(w.t, repo.Push(w.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), blobs[len(blobs)-1].Descriptor, bundle.ReportTag(1, w.seq)))
}

func (w *world) facts() *Facts {
	return &Facts{
		Location: w.loc, Options: w.opts, Signers: trust.PinnedBy([]*keys.Key{w.key}), Platform: "coffee", Now: func() time.Time { return w.now },
		Warn: func(format string, args ...any) { w.warnings = append(w.warnings, fmt.Sprintf(format, args...)) },
	}
}

func (w *world) history() *History {
	w.t.Helper()
	h, err := w.facts().History(w.t.Context(), "stage")
	require.NoError(w.t, err)
	return h
}

// question is what is asked about clusters.
type question struct {
	fleet.RolloutQuery
	commit string
}

// count counts the clusters, with reports from elsewhere.
func (w *world) count(q question, envelopes ...[]byte) gate.Cohort {
	w.t.Helper()
	f := w.facts()
	f.Reports = envelopes
	h, err := f.History(w.t.Context(), "stage")
	require.NoError(w.t, err)
	return w.countBy(f, h, q)
}

func (w *world) countBy(f *Facts, h *History, q question) gate.Cohort {
	w.t.Helper()
	l, err := f.local(w.t.Context(), h, w.clusters, cmp.Or(q.MaxReportAge, 24*time.Hour))
	require.NoError(w.t, err)
	c, err := f.count(w.t.Context(), l, h.Environment, q.commit, q.RolloutQuery)
	require.NoError(w.t, err)
	require.Equal(w.t, w.loc.String(), c.Source)
	c.Source = ""
	return c
}

func TestAFailedClusterSaysWhichAssignmentFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := w.publish(commit("a"), "drone=one")
	w.cluster("bad", "drone")
	w.leave("bad", w.report("bad", bundle.Failed, now["drone"], now["drone"], func(r *bundle.Report) {
		r.Items = []bundle.Item{
			{Assignment: "good-prod", Workload: "good", Target: "prod", State: bundle.Compliant, Since: w.now},
			{Assignment: "web-prod", Workload: "web", Target: "prod", State: bundle.Failed, Reason: "NotOurs", Message: "somebody else's", Since: w.now},
		}
	}))
	got := w.count(question{commit: commit("a")}).Open
	require.Len(t, got, 1)
	require.Equal(t, "NotOurs", got[0].Reason)
	require.Equal(t, "web-prod: somebody else's", got[0].Message)
}

func TestClustersAreCountedByTheirReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.publish(commit("a"), "drone=one", "large=one")
	now := w.publish(commit("b"), "drone=two", "large=one")
	at := w.now
	ring := func(name string) func(*scheduler.Cluster) { return func(c *scheduler.Cluster) { c.Ring = name } }
	registered := func(when time.Time) func(*scheduler.Cluster) {
		return func(c *scheduler.Cluster) { c.RegisteredAt = when }
	}
	report := func(name, typ string, state bundle.State, observed, desired digest.Digest, change ...func(*bundle.Report)) {
		w.cluster(name, typ)
		w.leave(name, w.report(name, state, observed, desired, change...))
	}
	report("good", "drone", bundle.Compliant, now["drone"], now["drone"])
	report("unchanged", "large", bundle.Compliant, old["large"], old["large"])
	report("bad", "drone", bundle.Failed, now["drone"], now["drone"], func(r *bundle.Report) { r.Reason, r.Message = "Crash", "exit\x1b[2J" })
	report("quarantines", "drone", bundle.Failed, old["drone"], now["drone"], func(r *bundle.Report) { r.Reason = "Quarantined" })
	report("behind", "drone", bundle.Compliant, old["drone"], old["drone"])
	report("busy", "drone", bundle.Applying, old["drone"], now["drone"])
	report("foreign", "drone", bundle.Compliant, digest.FromString("never published"), "")
	report("silent", "drone", bundle.Compliant, now["drone"], now["drone"], func(r *bundle.Report) { r.OccurredAt = at.Add(-25 * time.Hour) })
	report("ahead", "drone", bundle.Compliant, now["drone"], now["drone"], func(r *bundle.Report) { r.OccurredAt = at.Add(time.Hour) })
	w.cluster("never", "drone")
	w.cluster("hidden", "drone", func(c *scheduler.Cluster) { c.Reporting = false })
	w.cluster("late", "drone", registered(at))
	w.cluster("in-time", "drone", registered(at.Add(-time.Second)))
	w.leave("in-time", w.report("in-time", bundle.Compliant, now["drone"], ""))
	// Somebody else pushes a newer report for good, and one that is no report.
	w.cluster("stranger", "drone", func(c *scheduler.Cluster) { c.UID = "uid-stranger" })
	forged := w.report("stranger", bundle.Failed, now["drone"], "", func(r *bundle.Report) { r.Cluster.UID = "uid-good" })
	w.leave("good", forged)
	w.clusters = w.clusters[:len(w.clusters)-1]

	q := question{fleet.RolloutQuery{FailuresSince: at, RegisteredBefore: at, MaxReportAge: 24 * time.Hour}, commit("b")}
	got := w.count(q)
	var open []string
	for _, c := range got.Open {
		open = append(open, c.Verdict+" "+c.Name)
	}
	require.Equal(t, []string{"failed bad", "failed quarantines", "unknown ahead", "unknown never", "unknown silent", "waiting behind", "waiting foreign", "progressing busy"}, open)
	require.Equal(t, "exit[2J", got.Open[0].Message)
	got.Open = nil
	require.Equal(t, gate.Cohort{
		From: "registry", AsOf: at, Clusters: 11, Compliant: 3, Progressing: 1, Failed: 2, Waiting: 2, Unknown: 3, Quarantined: 1, NotReporting: 1,
	}, got)
	require.Contains(t, strings.Join(w.warnings, "\n"), "1 reports of cluster good do not count: the key of its Cluster has not signed it")

	// The commit before: those that have the later one have it, too.
	q.commit = commit("a")
	got = w.count(q)
	require.Equal(t, []int{4, 1}, []int{got.Compliant, got.Waiting})

	// A commit that nobody published.
	q.commit = commit("c")
	got = w.count(q)
	require.Equal(t, []int{0, 8, 3}, []int{got.Compliant, got.Waiting, got.Unknown})

	// By labels, and by ring.
	q.commit, q.Limit = commit("b"), 1
	w.clusters[0].Labels, w.clusters[2].Labels = map[string]string{"pilot": "true"}, map[string]string{"pilot": "true"}
	ring("canary")(&w.clusters[0])
	q.Selector = "pilot=true"
	got = w.count(q)
	require.Equal(t, []int{2, 1, 1, 1}, []int{got.Clusters, got.Compliant, got.Failed, len(got.Open)})
	q.Selector, q.Rings = "", []string{"canary"}
	require.Equal(t, 1, w.count(q).Clusters)

	// A report that came on a medium counts if it is newer.
	q.Rings = nil
	require.Equal(t, 4, w.count(q, w.report("never", bundle.Compliant, now["drone"], "")).Compliant)
	require.Equal(t, 3, w.count(q, forged, []byte("hello")).Compliant)
}

func TestTheAssignmentsOfARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := w.publish(commit("a"), "drone=one")
	h := w.history()
	release, all, err := h.Assignments(t.Context(), "drone", now["drone"])
	require.NoError(t, err)
	require.Equal(t, "drone", release.ClusterType)
	require.Len(t, all, 1)
	require.Equal(t, "web", all[0].Workload)
	_, _, err = h.Assignments(t.Context(), "drone", digest.FromString("gone"))
	require.ErrorContains(t, err, "assignments of cluster type drone in environment stage: release sha256:")
}

func TestFailuresSinceTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := w.publish(commit("a"), "drone=one")["drone"]
	since := w.now
	w.cluster("x", "drone")
	at := func(hours int, incarnation, failures int64, states ...bundle.State) []byte {
		return w.report("x", bundle.Compliant, now, now, func(r *bundle.Report) {
			r.OccurredAt, r.Agent.Incarnation = since.Add(time.Duration(hours)*time.Hour), incarnation
			item := bundle.Item{Assignment: "web-live", Workload: "web", Target: "live", State: bundle.Compliant, Failures: failures, Since: r.OccurredAt}
			for _, s := range states {
				item.State = s
			}
			r.Items = []bundle.Item{item}
		})
	}
	w.now = w.now.Add(10 * time.Hour)
	for _, c := range []struct {
		name    string
		reports func() [][]byte
		want    int
	}{
		{"those before the record do not count", func() [][]byte { return [][]byte{at(-2, 1, 3), at(-1, 1, 5)} }, 0},
		{"the rise since the last report before it does", func() [][]byte { return [][]byte{at(-2, 1, 3), at(-1, 1, 5), at(1, 1, 6), at(2, 1, 8)} }, 3},
		{"without one before it, the rise since the first that is known", func() [][]byte { return [][]byte{at(1, 1, 5), at(2, 1, 6)} }, 1},
		{"and what failed after the record and still does", func() [][]byte { return [][]byte{at(1, 1, 5, bundle.Failed), at(2, 1, 6, bundle.Failed)} }, 2},
		{"a new state file counts anew", func() [][]byte { return [][]byte{at(-1, 1, 5), at(1, 2, 2)} }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.count(question{fleet.RolloutQuery{FailuresSince: since}, commit("a")}, c.reports()...)
			require.Equal(t, c.want, got.Failures)
		})
	}
}

func TestTheCandidateOfAnEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	require.Nil(t, h.Newest())
	found, err := h.Find("", "")
	require.NoError(t, err)
	require.Nil(t, found, "nothing is published")

	w.publish(commit("a"), "drone=one", "large=one")
	w.publish(commit("b"), "drone=unpinned", "large=floating")
	other := w.key
	w.key = keytest.New(t)
	w.publish(commit("c"), "drone=three", "large=three")
	w.key = other
	h = w.history()
	require.Len(t, w.warnings, 1, "a record of another key is passed over")
	require.Equal(t, commit("b"), h.Newest().BaseCommit)
	found, err = h.Find(commit("c")[:9], "")
	require.NoError(t, err)
	require.Nil(t, found)
	_, err = h.Find("a", "")
	require.ErrorIs(t, err, ErrNoCommit)
	found, err = h.Find(commit("b")[:7], "")
	require.NoError(t, err)
	got, err := h.Candidate(t.Context(), found, true)
	require.NoError(t, err)
	require.Equal(t, []string{"coffee", "stage", commit("b")}, []string{got.Platform, got.Environment, got.BaseCommit})
	require.Equal(t, []string{"large/web-live"}, got.Floating)
	require.Equal(t, []string{"drone/web-live"}, got.Unpinned)
	require.Len(t, got.Contents, 2)

	// Content, and not the release, is what a decision is about: of the same content it is the same.
	w.now = w.now.Add(20 * 24 * time.Hour)
	w.publish(commit("a"), "drone=one", "large=one")
	h = w.history()
	back, err := h.Candidate(t.Context(), h.Newest(), false)
	require.NoError(t, err)
	first, err := h.Candidate(t.Context(), &h.Records[0].Record, false)
	require.NoError(t, err)
	require.Equal(t, first.Contents, back.Contents)
	require.NotEqual(t, first.IssuedAt, back.IssuedAt)
	require.Equal(t, []gate.Stay{{From: start.Add(time.Hour), Until: start.Add(2 * time.Hour)}, {From: back.IssuedAt}}, h.Stays(commit("a"), ""))
	require.Equal(t, []gate.Stay{{From: start.Add(2 * time.Hour), Until: back.IssuedAt}}, h.Stays(commit("b"), ""))
	require.Empty(t, h.Stays(commit("c"), ""))
}

// Commits with one base are one base: for the record that a pin names, and for the time that an environment had it.
func TestCommitsWithTheSameBase(t *testing.T) {
	t.Parallel()
	record := func(name, id string, hour int) bundle.VerifiedEnvironment {
		return bundle.VerifiedEnvironment{Record: bundle.EnvironmentRecord{BaseCommit: commit(name), BaseID: id, IssuedAt: start.Add(time.Duration(hour) * time.Hour)}}
	}
	h := &History{Records: []bundle.VerifiedEnvironment{record("a", "one", 0), record("b", "two", 1), record("c", "one", 2), record("d", "one", 3), record("e", "", 4)}}
	for _, c := range []struct{ name, id, want string }{
		{"f", "one", "d"},
		{"f", "three", ""},
		{"f", "", ""},
		{"a", "one", "a"},
		{"b", "one", "b"},
	} {
		found, err := h.Find(commit(c.name), c.id)
		require.NoError(t, err)
		if c.want == "" {
			require.Nil(t, found, c)
			continue
		}
		require.Equal(t, commit(c.want), found.BaseCommit, c)
	}
	at := func(hour int) time.Time { return start.Add(time.Duration(hour) * time.Hour) }
	require.Equal(t, []gate.Stay{{From: at(0), Until: at(1)}, {From: at(2), Until: at(4)}}, h.Stays(commit("d"), "one"))
	require.Equal(t, []gate.Stay{{From: at(4)}}, h.Stays(commit("e"), ""))
}

func TestTheCandidateOfARing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "canary", "early", "stable")
	w.publish(commit("a"), "drone=one", "large=unpinned")
	w.publish(commit("b"), "drone=floating", "large=unpinned")
	h := w.history()
	got, err := h.RingCandidate(t.Context(), h.Newest(), "canary", "early")
	require.NoError(t, err)
	require.Equal(t, commit("b"), got.BaseCommit)
	require.Len(t, got.Contents, 1, "large has not changed")
	require.NoError(t, h.AddMoving(t.Context(), h.Newest(), "canary", got))
	require.Equal(t, []string{"drone/web-live"}, got.Floating, "of large nothing is to be judged")
	require.ErrorContains(t, h.AddMoving(t.Context(), h.Newest(), "early", got), "ring early has other content of cluster type drone by now")
	stays, err := h.RingStays(t.Context(), "canary", got)
	require.NoError(t, err)
	require.Equal(t, []gate.Stay{{From: start.Add(2 * time.Hour)}}, stays)
	stays, err = h.RingStays(t.Context(), "early", got)
	require.NoError(t, err)
	require.Empty(t, stays)
	none, err := h.RingCandidate(t.Context(), h.Newest(), "early", "stable")
	require.NoError(t, err)
	require.Nil(t, none, "early and stable have the same")
}

func TestAReleaseThatIsGoneVouchesForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "canary", "stable")
	old := w.publish(commit("a"), "drone=one")["drone"]
	now := w.publish(commit("b"), "drone=two")["drone"]
	w.cluster("stable", "drone")
	w.leave("stable", w.report("stable", bundle.Compliant, old, old))
	require.Equal(t, 1, w.count(question{commit: commit("b")}).Waiting)
	require.NoError(t, os.Remove(filepath.Join(w.loc.Dir, "blobs", "sha256", now.Encoded())))
	require.Equal(t, 1, w.count(question{commit: commit("b")}).Waiting, "the wider ring's release is not taken for that of the commit")
	h := w.history()
	_, err := h.Candidate(t.Context(), h.Newest(), false)
	require.ErrorContains(t, err, "cluster type drone is not there")
}

// A look that is repeated asks for new reports alone. What a cluster has not signed is looked at each time.
func TestALookThatIsRepeatedMakesOneRequestForEachCluster(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{} // by the kind of request
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		kind := "tree"
		if strings.Contains(r.URL.Path, "/reports/") {
			kind = "reports"
		} else if !strings.Contains(r.URL.Path, "/bundles/") || !strings.Contains(r.URL.Path, "/blobs/") {
			kind = "other"
		}
		mu.Lock()
		asked[kind]++
		mu.Unlock()
		handler.ServeHTTP(rw, r)
	}))
	defer server.Close()
	w := newWorld(t)
	w.loc = oci.Location{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "edge"}
	now := w.publish(commit("a"), "drone=one", "large=floating")
	var memory Memory
	look := func() (gate.Cohort, []string) {
		t.Helper()
		clear(asked)
		f := w.facts()
		f.Memory = &memory
		h, err := f.History(t.Context(), "stage")
		require.NoError(t, err)
		c, err := h.Candidate(t.Context(), h.Newest(), true)
		require.NoError(t, err)
		return w.countBy(f, h, question{commit: commit("a")}), c.Floating
	}
	for _, name := range []string{"one", "two", "three"} {
		w.cluster(name, "drone")
		w.leave(name, w.report(name, bundle.Progressing, now["drone"], now["drone"]))
	}
	first, floating := look()
	require.Equal(t, 3, first.Progressing)
	require.Equal(t, []string{"large/web-live"}, floating)
	require.Equal(t, map[string]int{"reports": 9, "tree": 2, "other": asked["other"]}, asked, "the tags, a manifest and a blob")
	again, floating := look()
	require.Equal(t, first, again)
	require.Equal(t, []string{"large/web-live"}, floating)
	require.Equal(t, map[string]int{"reports": 3, "other": asked["other"]}, asked, "the tags")

	w.leave("one", w.report("one", bundle.Compliant, now["drone"], now["drone"]))
	c, _ := look()
	require.Equal(t, 1, c.Compliant)
	require.Equal(t, 5, asked["reports"])

	// Somebody else is faster than the cluster under its next tag.
	own := w.report("two", bundle.Compliant, now["drone"], now["drone"])
	w.agents["two"] = w.agents["one"]
	w.leave("two", w.report("two", bundle.Compliant, now["drone"], now["drone"]))
	c, _ = look()
	require.Equal(t, 1, c.Compliant)
	w.leave("two", own)
	c, _ = look()
	require.Equal(t, 2, c.Compliant)

	// The roster has another key by now: what was kept does not count.
	w.clusters[0].PublicKey = w.clusters[2].PublicKey
	c, _ = look()
	require.Equal(t, 1, c.Compliant)
}

// A look that decides about content reads both ledgers besides, and nothing twice.
func TestALookWithContentMakesTwoRequestsMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var requests atomic.Int64
	server := httptest.NewServer(counted(registrytest.New(t, "memory", ""), &requests))
	defer server.Close()
	w.loc = oci.Location{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "edge"}
	ask := w.chain(3)
	ask.Policy.Groups = []promotion.Group{{Name: "leads", Members: []promotion.Member{{Name: "anna", Key: w.agents["site-0"].Public()}}}}
	var memory Memory
	look := func(content bool) int64 {
		f := w.facts()
		f.Memory = &memory
		before := requests.Load()
		w.look(f.Look(), ask, content)
		return requests.Load() - before
	}
	first := look(false)
	memory = Memory{}
	require.Equal(t, first+2, look(true))
	again := look(false)
	require.Less(t, again, first)
	require.Equal(t, again+2, look(true))
}

// BenchmarkGateCheckRegistry gathers the facts of a gate from a registry over HTTP with 1,000 clusters: records, candidate, reports,
// counts and decisions. Its figure is gate-check-registry-ms, and gate-check-registry-again-ms that of a look which is repeated.
func BenchmarkGateCheckRegistry(b *testing.B) {
	benchLook(b, "gate-check-registry", false)
}

// BenchmarkContentGateRegistry is BenchmarkGateCheckRegistry for a gate that holds content, too: it judges the base commit, and decides
// about each workload. It prints the requests of a look with content, and of one without.
func BenchmarkContentGateRegistry(b *testing.B) {
	benchLook(b, "content-gate-registry", true)
}

func benchLook(b *testing.B, figure string, content bool) {
	clusters := 1000
	if testing.Short() {
		clusters = 50
	}
	w := newWorld(b)
	var requests atomic.Int64
	server := httptest.NewServer(counted(registrytest.New(b, "memory", ""), &requests))
	b.Cleanup(server.Close)
	w.loc = oci.Location{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "edge"}
	ask := w.chain(clusters)
	for range b.N {
		var memory Memory
		for _, again := range []string{"", "-again"} {
			f := w.facts()
			f.Memory = &memory
			requests.Store(0)
			began := time.Now()
			w.look(f.Look(), ask, content)
			fmt.Printf("figure %s%s-ms %d ms\n", figure, again, time.Since(began).Milliseconds())
			fmt.Printf("figure %s%s-requests %d\n", figure, again, requests.Load())
		}
	}
}

// counted counts the requests to a handler.
func counted(to http.Handler, n *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n.Add(1)
		to.ServeHTTP(rw, r)
	})
}

// chain publishes stage and prod, then a new revision to stage, which its clusters report. It returns what is asked about prod.
func (w *world) chain(clusters int) ContentAsk {
	w.publish(commit("a"), "drone=one", "large=one")
	w.environment = "prod"
	w.publish(commit("a"), "drone=one", "large=one")
	w.environment = "stage"
	now := w.publish(commit("b"), "drone=two", "large=one")
	contents := map[string]digest.Digest{}
	for i := range clusters {
		name := fmt.Sprintf("site-%d", i)
		w.cluster(name, "drone")
		w.leave(name, w.report(name, bundle.Compliant, now["drone"], now["drone"], func(r *bundle.Report) {
			r.Items = []bundle.Item{{Assignment: "web-live", Workload: "web", Target: "live", State: bundle.Compliant, Since: w.now, Content: w.contentOf(now["drone"], contents)}}
		}))
	}
	return ContentAsk{BaseCommit: commit("b"), Policy: promotion.Policy{
		Environment: "prod", Chain: []string{"stage", "prod"},
		Gate: promotion.Gate{MinCompliant: 100, MaxFailures: -1, MaxReportAge: 24 * time.Hour, Content: promotion.Content{Held: true}},
	}}
}

// contentOf returns the digest of the content of web-live in a release of drone.
func (w *world) contentOf(release digest.Digest, known map[string]digest.Digest) digest.Digest {
	if known["drone"] == "" {
		_, all, err := w.history().Assignments(w.t.Context(), "drone", release)
		require.NoError(w.t, err)
		known["drone"] = all[0].Content
	}
	return known["drone"]
}

// look asks a gate once, which passes.
func (w *world) look(f *Facts, ask ContentAsk, content bool) {
	w.t.Helper()
	f.Clusters = func(context.Context, string) ([]scheduler.Cluster, error) { return w.clusters, nil }
	verdict, err := f.Judge(w.t.Context(), Ask{Policy: ask.Policy})
	require.NoError(w.t, err)
	require.Equal(w.t, gate.Pass, verdict.Result, "%+v", verdict.Rules)
	require.Equal(w.t, len(w.clusters), verdict.Cohort.Compliant)
	if !content {
		return
	}
	e, err := f.Entry(w.t.Context(), ask)
	require.NoError(w.t, err)
	require.Len(w.t, e.Decision.Takes, 1)
	require.Empty(w.t, e.Awaiting())
	require.True(w.t, e.Decision.Takes[0].Moves, "%+v", e.Decision.Takes[0])
}
