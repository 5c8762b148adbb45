package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// memory is a store in memory: the present, its feed, and presents of the past.
type memory struct {
	Source
	mu       sync.Mutex
	states   map[string]store.ClusterState
	entries  []store.FeedEntry
	end      store.Position
	changed  chan struct{}
	then     map[int64][]store.ClusterState // for ScanAt
	releases []store.PublishedRelease
	records  []store.PublishedRecord
	broken   error
	scanned  atomic.Int64 // clusters
	failures []store.Failures
	judged   []store.Promotion
}

func (m *memory) Promotions(context.Context) ([]store.Promotion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.judged, nil
}

// Failures are the same since any time.
func (m *memory) Failures(_ context.Context, from time.Time, _ store.Scope, each func(store.Failures) error) (time.Time, error) {
	for _, f := range m.failures {
		if err := each(f); err != nil {
			return from, err
		}
	}
	return from, m.broken
}

func newMemory(states ...store.ClusterState) *memory {
	m := &memory{states: map[string]store.ClusterState{}, changed: make(chan struct{}), then: map[int64][]store.ClusterState{}}
	for _, s := range states {
		m.put(s)
	}
	return m
}

func (m *memory) note(kind store.FeedKind, uid string) {
	m.end++
	m.entries = append(m.entries, store.FeedEntry{Position: m.end, Kind: kind, UID: uid})
	close(m.changed)
	m.changed = make(chan struct{})
}

// put stores a state and returns it with its position.
func (m *memory) put(s store.ClusterState) store.ClusterState {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(store.FeedReports, s.UID)
	s.Change = m.end
	m.states[s.UID] = s
	return s
}

func (m *memory) remove(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(store.FeedCluster, uid)
	delete(m.states, uid)
}

func (m *memory) publish(r store.PublishedRelease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releases = append(m.releases, r)
	m.note(store.FeedPublished, "")
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = err
}

func (m *memory) End(ctx context.Context) (store.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(m.broken, context.DeadlineExceeded) { // it hangs
		<-ctx.Done()
	}
	return m.end, m.broken
}

func (m *memory) Entries(_ context.Context, after store.Position, limit int) ([]store.FeedEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entries) > 0 && m.entries[0].Position > after+1 {
		return nil, store.ErrForgotten
	}
	i, _ := slices.BinarySearchFunc(m.entries, after+1, func(e store.FeedEntry, p store.Position) int { return cmp.Compare(e.Position, p) })
	return slices.Clone(m.entries[i:min(len(m.entries), i+limit)]), m.broken
}

func (m *memory) Await(ctx context.Context, after store.Position) error {
	m.mu.Lock()
	changed, end := m.changed, m.end
	m.mu.Unlock()
	if end > after {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memory) Scan(_ context.Context, s store.Scope, each func(store.ClusterState) error) error {
	m.mu.Lock()
	all := make([]store.ClusterState, 0, len(m.states))
	for _, state := range m.states {
		all = append(all, state)
	}
	err := m.broken
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.scan(all, s, each)
}

func (m *memory) ScanAt(_ context.Context, at time.Time, s store.Scope, each func(store.ClusterState) error) error {
	m.mu.Lock()
	all, known := m.then[at.UnixMilli()]
	m.mu.Unlock()
	if !known {
		return store.ErrForgotten
	}
	return m.scan(slices.Clone(all), s, each)
}

func (m *memory) scan(all []store.ClusterState, s store.Scope, each func(store.ClusterState) error) error {
	slices.SortFunc(all, func(a, b store.ClusterState) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range all {
		if s.UIDs != nil && !slices.Contains(s.UIDs, c.UID) || s.Environment != "" && c.Environment != s.Environment || s.Type != "" && c.Type != s.Type {
			continue
		}
		if s.Workspace != "" || s.Workload != "" {
			c.Deployments = slices.DeleteFunc(slices.Clone(c.Deployments), func(d store.Deployment) bool {
				return s.Workspace != "" && d.Workspace != s.Workspace || s.Workload != "" && d.Workload != s.Workload
			})
			if len(c.Deployments) == 0 {
				continue
			}
		}
		if s.WithoutDeployments {
			c.Deployments = nil
		}
		m.scanned.Add(1)
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Releases(_ context.Context, each func(store.PublishedRelease) error) error {
	for _, r := range m.releases {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Records(_ context.Context, each func(store.PublishedRecord) error) error {
	for _, r := range m.records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Release(_ context.Context, d digest.Digest) (store.PublishedRelease, error) {
	for _, r := range m.releases {
		if r.Digest == d {
			return r, nil
		}
	}
	return store.PublishedRelease{}, store.ErrUnknownRelease
}

// start is the time of tests.
var start = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

// all returns the view of the whole fleet of a source, at start.
func all(t testing.TB, from Source) *View {
	return viewOf(t, from, store.AccessScope{})
}

func viewOf(t testing.TB, from Source, s store.AccessScope) *View {
	f, err := Open(t.Context(), from, Options{Now: func() time.Time { return start }})
	require.NoError(t, err)
	v, err := f.View(s)
	require.NoError(t, err)
	return v
}

// The values of random fleets: few, so that rows have them in common.
var (
	someEnvironments = []string{"dev", "prod", "stage"}
	someTypes        = []string{"drone", "line", "shop"}
	someWorkspaces   = []string{"", "red", "blue"}
	someWorkloads    = []string{"web", "db", "cache", "mail"}
	someVersions     = []string{"", "1.0.0", "1.1.0", "2.0.0"}
	someReasons      = []string{"", "Timeout", "BadImage"}
	someStates       = []bundle.State{bundle.Compliant, bundle.Compliant, bundle.Failed, bundle.Progressing, bundle.Drifted, "pondering"}
	someCommits      = []string{"", "0123456789abcdef0123", "0123456fffffffffffff", "fedcba9876543210fedc"}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func someDigest(r *rand.Rand) digest.Digest { return digest.FromString(fmt.Sprint(r.IntN(3))) }

// randomCluster returns the n-th cluster with random values. Now and then it has never reported.
func randomCluster(r *rand.Rand, n int) store.ClusterState {
	var s store.ClusterState
	s.UID, s.Name = fmt.Sprintf("uid-%d", n), fmt.Sprintf("site-%d", n)
	s.Environment, s.Type, s.Ring, s.Platform = pick(r, someEnvironments), pick(r, someTypes), pick(r, []string{"", "canary"}), "edge"
	s.AddedAt, s.ExpectedInterval, s.ExpectedSeconds = start.Add(-1000*time.Hour), time.Hour, 3600
	s.Labels = map[string]string{}
	for _, k := range []string{"region", "gpu", "size"} {
		if r.IntN(3) > 0 {
			s.Labels[k] = pick(r, []string{"east", "west", "true", "3", "17"})
		}
	}
	if r.IntN(8) == 0 {
		return s
	}
	s.Newest = store.Order{Incarnation: 1, Seq: 1 + int64(r.IntN(100))}
	s.State, s.Reason, s.Message = pick(r, someStates), pick(r, someReasons), pick(r, []string{"", "no luck"})
	if r.IntN(6) == 0 {
		s.State = bundle.Rejected
	}
	s.Claims = bundle.ReportCluster(s.Identity)
	s.Since, s.LastSeen = start.Add(-time.Duration(r.IntN(50))*time.Hour), start.Add(-time.Duration(r.IntN(300))*time.Minute)
	s.AgentVersion = pick(r, someVersions)
	s.Proof = store.Proof{Report: digest.FromString(s.UID), At: s.Newest, OccurredAt: s.LastSeen, ReceivedAt: s.LastSeen, Via: pick(r, []store.Via{store.ViaHTTP, store.ViaMedia})}
	if r.IntN(5) > 0 {
		n := int64(r.IntN(4))
		s.Observed = &bundle.ReportRelease{Digest: digest.FromString(fmt.Sprint("release", n)), Sequence: n, BaseCommit: someCommits[n]}
	}
	for _, w := range someWorkloads {
		if r.IntN(2) == 0 {
			continue
		}
		s.Deployments = append(s.Deployments, store.Deployment{
			Assignment: w + "-main", Workspace: pick(r, someWorkspaces), Application: pick(r, []string{"", "store"}), Workload: w, Target: "main",
			Adapter: pick(r, []string{"flux", "zarf"}), State: pick(r, someStates), Reason: pick(r, someReasons), Message: pick(r, []string{"", "it broke"}),
			Since: start.Add(-time.Duration(r.IntN(50)) * time.Hour), Version: pick(r, someVersions), Revision: pick(r, someVersions),
			ConfigDigest: someDigest(r), Content: someDigest(r), Failures: int64(r.IntN(3)), Floating: r.IntN(2) == 0,
		})
	}
	slices.SortFunc(s.Deployments, func(a, b store.Deployment) int { return strings.Compare(a.Assignment, b.Assignment) })
	return s
}

func randomFleet(r *rand.Rand, n int) []store.ClusterState {
	var fleet []store.ClusterState
	for i := range n {
		fleet = append(fleet, randomCluster(r, i))
	}
	return fleet
}

// randomQuery returns a query with few conditions, so that it often chooses something.
func randomQuery(r *rand.Rand) Query {
	var q Query
	for range r.IntN(3) {
		switch r.IntN(15) {
		case 0:
			for range 1 + r.IntN(2) {
				q.Environments = append(q.Environments, pick(r, append(someEnvironments, "prd")))
			}
		case 1:
			q.Type = pick(r, someTypes)
		case 2:
			q.Workspace = pick(r, append(someWorkspaces, "green"))
		case 3:
			q.Workload = pick(r, append(someWorkloads, "wbe"))
		case 4:
			q.Version = pick(r, someVersions)
		case 5:
			q.Selector = pick(r, []string{"region=east", "gpu!=true,region", "size in (3,17)", "!gpu", "size notin (3),region=east", "size>3"})
		case 6:
			q.State = []bundle.State{pick(r, []bundle.State{bundle.Compliant, bundle.Failed, store.Stale, store.Unreported}), bundle.Drifted}
		case 7:
			q.SilentFor = time.Duration(r.IntN(5)) * time.Hour
		case 8:
			q.Commit = pick(r, []string{"0123456", "fedcba98", "abcdef0"})
		case 9:
			q.ConfigDigest = digest.Digest(someDigest(r).Encoded()[:9])
		case 10:
			q.Content = someDigest(r)
		case 11:
			q.Cluster = pick(r, []string{"site-1", "uid-2", "site-33", "nowhere"})
		case 12:
			q.Release = digest.FromString(fmt.Sprint("release", r.IntN(4)))
		case 13:
			q.Application, q.Adapter = pick(r, []string{"", "store"}), pick(r, []string{"", "zarf"})
		case 14:
			q.Ring, q.Target = pick(r, []string{"", "canary"}), pick(r, []string{"", "main"})
		}
	}
	return q
}
