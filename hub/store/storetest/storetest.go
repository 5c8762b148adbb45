// Package storetest is the conformance suite of store.Store.
//
// An implementation's own test calls Run. What the suite makes, such as a [Clock] and a [Fleet], is there for the tests of
// the hub as well. The suite uses the interface alone; a package tests itself
// how its database fails, such as by a full disk, and how it opens the files of earlier versions.
package storetest

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Open opens the store whose data is in dir, and makes a new one in an empty dir. The suite closes it. It opens the same
// dir several times, even at the same time, as several processes do.
type Open func(t testing.TB, dir string, now func() time.Time) store.Store

// Run tests the implementation that open opens.
func Run(t *testing.T, open Open) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"registry", registryTests()},
		{"enrollment", enrollmentTests()},
		{"reports", reportTests()},
		{"history", historyTests()},
		{"signs of life", lifeSignTests()},
		{"published", publishedTests()},
		{"decisions", decisionTests()},
		{"promotions", promotionTests()},
		{"access", accessTests()},
		{"past", pastTests()},
		{"feed", feedTests()},
		{"evidence", evidenceTests()},
		{"life", lifeTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					c := NewClock()
					dir := t.TempDir()
					tt.run(t, &fixture{t: t, open: open, dir: dir, clock: c, Store: opened(t, open, dir, c)})
				})
			}
		})
	}
}

// test is one promise, as a sentence.
type test struct {
	name string
	run  func(t *testing.T, f *fixture)
}

// fixture is an open store with the other data of a test.
type fixture struct {
	store.Store
	t     *testing.T
	open  Open
	dir   string
	clock *Clock
}

func opened(t testing.TB, open Open, dir string, c *Clock) store.Store {
	t.Helper()
	s := open(t, dir, c.Now)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// again opens the same store once more, as another process.
func (f *fixture) again() *fixture {
	f.t.Helper()
	next := *f
	next.Store = opened(f.t, f.open, f.dir, f.clock)
	return &next
}

// keyOf returns a key that follows from its number.
func keyOf(n uint64) ed25519.PublicKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint64(seed, n)
	return ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func kidOf(t testing.TB, key ed25519.PublicKey) string {
	t.Helper()
	id, err := bundle.KeyID(key)
	require.NoError(t, err)
	return id
}

// cluster returns a cluster with the key of number n.
func cluster(name string, n uint64) store.Cluster {
	return store.Cluster{Identity: Identity(name), Key: keyOf(n)}
}

// added registers clusters by these names, and returns them.
func (f *fixture) added(names ...string) (all []store.Cluster) {
	f.t.Helper()
	for i, name := range names {
		c := cluster(name, uint64(i+1))
		changed, err := f.AddCluster(f.t.Context(), c)
		require.NoError(f.t, err)
		require.True(f.t, changed)
		all = append(all, c)
	}
	return all
}

// reportOf returns a report at a place.
func reportOf(c store.Cluster, at store.Order, items ...bundle.Item) store.Report {
	return identified(Snapshot(c.Identity, at, items...))
}

// identified gives a report its id.
func identified(body bundle.Report) store.Report {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // a report can always be written
	}
	return store.Report{ID: bundle.ReportID(data), KeyID: "k", Body: body}
}

// ingested stores reports of a cluster over HTTP, and returns what became of them, without the cluster's state.
func (f *fixture) ingested(c store.Cluster, reports ...store.Report) store.Outcome {
	f.t.Helper()
	return f.ingestedBy(store.ViaHTTP, c, reports...)
}

func (f *fixture) ingestedBy(via store.Via, c store.Cluster, reports ...store.Report) store.Outcome {
	f.t.Helper()
	done, err := f.Ingest(f.t.Context(), store.Batch{UID: c.UID, Via: via, Reports: reports})
	require.NoError(f.t, err)
	done.State = nil
	return done
}

// status returns the state of a registered cluster, without its deployments and its place in the feed.
func (f *fixture) status(name string) store.ClusterState {
	f.t.Helper()
	for _, c := range f.scanned(time.Time{}, store.Scope{WithoutDeployments: true}) {
		if c.Name == name {
			c.Change = 0
			return c
		}
	}
	require.Fail(f.t, "not registered", name)
	return store.ClusterState{}
}

// deployments returns "cluster/workload state" for each deployment on registered clusters.
func (f *fixture) deployments() (all []string) {
	f.t.Helper()
	for _, c := range f.scanned(time.Time{}, store.Scope{}) {
		for _, d := range c.Deployments {
			all = append(all, fmt.Sprintf("%s/%s %s", c.Name, d.Workload, d.State))
		}
	}
	return all
}

// names returns the names of registrations.
func names(all []store.Registration) (names []string) {
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

func order(incarnation, seq int64) store.Order {
	return store.Order{Incarnation: incarnation, Seq: seq}
}
