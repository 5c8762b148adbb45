package publisher

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// ledger returns the ledger of the newest record, as whoever trusts the world's key reads it.
func (w *world) ledger() *ledger.Ledger {
	w.t.Helper()
	at, err := published.Open(w.loc, w.opts.OCI, trust.PinnedBy([]*keys.Key{w.key}))
	require.NoError(w.t, err)
	e, err := at.Environment("dev")
	require.NoError(w.t, err)
	v, _, err := e.Read(w.t.Context(), "latest")
	require.NoError(w.t, err)
	l, err := e.Ledger(w.t.Context(), v)
	require.NoError(w.t, err)
	return l
}

// reads has workload web of the registration shop, and db of the platform, with the folder of web at a commit.
func (w *world) reads(commit, id string) {
	at := scheduler.Place{Repo: "https://git.example/shop", Ref: "main", Commit: commit}
	w.result.Places = map[string]scheduler.Place{"": {Repo: "https://git.example/edge", Ref: "dev"}, "shop": at}
	w.result.Declared = map[string]map[string]bool{"shop": {"web-live": true}}
	w.result.Workloads = []scheduler.Workload{
		{Name: "db", Object: digest.FromString("db"), Targets: []scheduler.WorkloadTarget{{Name: "live", FullName: "db-live"}}},
		{Registration: "shop", Name: "web", Object: digest.FromString("web"), Targets: []scheduler.WorkloadTarget{{Name: "live", FullName: "web-live"}}},
	}
	at.Path, at.ID = "deploy", id
	for i := range w.result.ClusterTypes {
		all := slices.Clone(w.result.ClusterTypes[i].Assignments)
		for j := range all {
			if all[j].Workload == "web" {
				all[j].Registration, all[j].Origin = "shop", at
			}
		}
		w.result.ClusterTypes[i].Assignments = all
	}
}

var webKey = ledger.Key{Registration: "shop", Workload: "web"}

func TestARecordSaysWhichRevisionsAnEnvironmentHas(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.reads("c1", "f1")
		_, p := w.mustPublish()
		first := w.ledger()
		r, stay := first.Find(webKey).In("")
		require.Equal(t, ledger.Target{Name: "live", Source: ledger.Source{Repo: "https://git.example/shop", Ref: "main", Commit: "c1"}, Path: "deploy", ID: "f1"}, r.Targets[0])
		began := ledger.Record{Sequence: p.Record.Sequence}
		require.Equal(t, ledger.Stay{Since: w.now, Record: began, BaseCommit: "c0ffee"}, stay)
		require.Equal(t, "c1", first.Registration("shop").Source.Commit)
		require.NotNil(t, first.Find(ledger.Key{Workload: "db"}))

		// Another commit with the same folder is nothing new.
		w.now = w.now.Add(time.Hour)
		w.reads("c2", "f1")
		_, p = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, p.Record.Result)
		require.Equal(t, first, w.ledger())

		// An environment above may have a folder of its own there.
		w.opts.Commits = true
		_, p = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, p.Record.Result)
		r, stay = w.ledger().Find(webKey).In("")
		require.Equal(t, "c2", r.Targets[0].Source.Commit)
		require.Equal(t, began, stay.Record)
		before := ledger.Record{Sequence: p.Record.Sequence}
		_, p = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, p.Record.Result)

		// Another folder is, also if the clusters get the same files.
		w.reads("c3", "f2")
		_, p = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, p.Record.Result)
		second := w.ledger()
		r, stay = second.Find(webKey).In("")
		require.Equal(t, "f2", r.Targets[0].ID)
		require.Equal(t, "f2", r.Version, "of what says no version")
		require.Equal(t, ledger.Stay{Since: w.now, Record: ledger.Record{Sequence: p.Record.Sequence}, Before: before, BaseCommit: "c0ffee"}, stay)
		_, stay = second.Find(ledger.Key{Workload: "db"}).In("")
		require.Equal(t, began, stay.Record, "another workload is as before")

		// What is held stays what it was, and a cluster type on which it is held is listed if others have the new one.
		w.now = w.now.Add(time.Hour)
		w.fail("drone", "web-live")
		w.reads("c4", "f3")
		_, err := w.publish()
		require.NoError(t, err)
		r, stay = w.ledger().Find(webKey).In("")
		require.Equal(t, "f3", r.Targets[0].ID)
		require.Equal(t, []string{"drone"}, stay.Unlike)
		w.fail("large", "web-live")
		w.reads("c4", "f4")
		_, err = w.publish()
		require.NoError(t, err)
		r, _ = w.ledger().Find(webKey).In("")
		require.Equal(t, "f3", r.Targets[0].ID, "no cluster type has the new one")

		// A registration that cannot be read keeps all.
		w.now = w.now.Add(time.Hour)
		kept := w.ledger()
		w.result.Workloads, w.result.Places = w.result.Workloads[:1], map[string]scheduler.Place{}
		for i := range w.result.ClusterTypes {
			ct := &w.result.ClusterTypes[i]
			ct.Failures = nil
			ct.Assignments = slices.DeleteFunc(slices.Clone(ct.Assignments), func(a scheduler.Assignment) bool { return a.Workload == "web" })
		}
		w.opts.Unread = []platform.Unread{{Registration: "shop", Err: context.DeadlineExceeded}}
		_, err = w.publish()
		require.NoError(t, err)
		require.Equal(t, kept.Find(webKey), w.ledger().Find(webKey))

		// What its registration no longer has is removed.
		w.opts.Unread, w.opts.AllowRemovals, w.opts.AllowEmpty = nil, true, true
		_, p = w.mustPublish()
		last := w.ledger()
		require.Nil(t, last.Find(webKey))
		require.Equal(t, ledger.Record{Sequence: p.Record.Sequence}, last.FindRemoved(webKey).In[0].Record)
	})
}

func TestALedgerFollowsContentThroughRings(t *testing.T) {
	w := newRingWorld(t, "inmemory")
	w.says("v1")
	w.reads("c1", "f1")
	_, p := w.to("")
	first := ledger.Record{Sequence: p.Record.Sequence}
	has := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for _, ring := range ringsOfTest {
			r, _ := w.ledger().Find(webKey).In(ring)
			got[ring] = r.Targets[0].ID
		}
		require.Equal(t, want, got)
	}
	has(map[string]string{"canary": "f1", "early": "f1", "broad": "f1"})
	w.says("v2")
	w.reads("c2", "f2")
	_, p = w.to("")
	second := ledger.Record{Sequence: p.Record.Sequence}
	has(map[string]string{"canary": "f2", "early": "f1", "broad": "f1"})

	// An advance brings along what orders revisions, and begins a stay.
	give := func(ring, from string) {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		opts := w.opts
		opts.Now = func() time.Time { return w.now }
		_, err := Reissue(t.Context(), w.loc, []*keys.Key{w.key}, "dev", func(_ context.Context, _ *state.Reader, record state.Record) (*Content, error) {
			r := record.Verified.Record
			c := &Content{Releases: map[string]map[string]digest.Digest{}, BaseCommit: r.BaseCommit, EnvironmentCommit: r.EnvironmentCommit}
			for name, rings := range r.Rings {
				c.Releases[name] = map[string]digest.Digest{ring: rings[from]}
				for other, d := range rings {
					if other != ring {
						c.Releases[name][other] = d
					}
				}
			}
			return c, nil
		}, opts)
		require.NoError(t, err)
	}
	give("early", "canary")
	has(map[string]string{"canary": "f2", "early": "f2", "broad": "f1"})
	_, stay := w.ledger().Find(webKey).In("early")
	require.Equal(t, w.now, stay.Since)
	require.Equal(t, second, stay.Record)

	// An abort gives the old one back, which is not new.
	give("canary", "broad")
	has(map[string]string{"canary": "f1", "early": "f2", "broad": "f1"})
	_, stay = w.ledger().Find(webKey).In("canary")
	require.Equal(t, w.now, stay.Since)
	require.Equal(t, first, stay.Record)
}
