package fleet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// stored is a fleet on a real database.
type stored struct {
	t  *testing.T
	db store.Store
	*Fleet
}

func newStored(t *testing.T, clock *storetest.Clock) *stored {
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "hub.db"), sqlite.Options{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	f, err := Open(t.Context(), db, Options{Now: clock.Now})
	require.NoError(t, err)
	return &stored{t, db, f}
}

// register registers the n-th cluster, with random values.
func (s *stored) register(r *rand.Rand, n int) {
	c := randomCluster(r, n).Cluster
	c.Key = make(ed25519.PublicKey, ed25519.PublicKeySize)
	copy(c.Key, c.UID)
	_, err := s.db.ReplaceCluster(s.t.Context(), c)
	require.NoError(s.t, err)
}

// take stores a report that came by media; applied says whether the fleet is told at once, or reads the feed.
func (s *stored) take(r bundle.Report, applied bool) {
	id := digest.FromString(fmt.Sprint(r.Cluster.UID, r.Agent))
	done, err := s.db.Ingest(s.t.Context(), store.Batch{UID: r.Cluster.UID, Via: store.ViaMedia, Reports: []store.Report{{ID: id, KeyID: "key", Body: r}}})
	require.NoError(s.t, err)
	if applied && done.State != nil {
		s.Apply(*done.State)
	}
}

// randomReport returns the report of a cluster that is registered, as of now.
func randomReport(r *rand.Rand, c store.Registration, seq int64, now time.Time) bundle.Report {
	from := randomCluster(r, 0)
	report := bundle.Report{
		Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster(c.Identity), Agent: bundle.ReportAgent{Version: from.AgentVersion, Incarnation: 1, Seq: seq},
		Kind: bundle.Snapshot, OccurredAt: now, State: from.State, Reason: from.Reason, Observed: from.Observed, Desired: from.Observed,
	}
	if report.State == "" {
		report.State = bundle.Pending
	}
	for _, d := range from.Deployments {
		// What an assignment is, beside its state, has no history.
		d.Workspace, d.Application, d.Adapter, d.Floating = map[string]string{"web": "red", "db": "blue"}[d.Workload], "store", "flux", false
		report.Items = append(report.Items, bundle.Item{
			Assignment: d.Assignment, Workspace: d.Workspace, Application: d.Application, Workload: d.Workload, Target: d.Target, Adapter: d.Adapter,
			State: d.State, Reason: d.Reason, Since: now.Add(-time.Hour), Version: d.Version, ConfigDigest: d.ConfigDigest, Content: d.Content,
			Revision: d.Revision, Failures: d.Failures, Floating: d.Floating,
		})
	}
	return report
}

// timeless leaves out of answers what differs where the same reports came at other times, and keys, which have no history.
func timeless(answers []any) []any {
	for i, a := range answers {
		switch a := a.(type) {
		case Clusters:
			for j := range a.Clusters {
				a.Clusters[j].KeyIDs, a.Clusters[j].Proof.ReceivedAt = nil, time.Time{}
			}
		case Deployments:
			for j := range a.Deployments {
				a.Deployments[j].Proof.ReceivedAt = time.Time{}
			}
		case error:
			answers[i] = a.Error()
		}
	}
	return answers
}

// Two databases get the same reports, one of them in time, and the other one some of them late and out of order. What was the
// present of the one at some time is what the other one says of that time, and of now, in the end.
func TestTheStoredFleetAsOfATimeIsThePresentThatThereWas(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 5))
		clock := storetest.NewClock()
		prompt, late := newStored(t, clock), newStored(t, clock)
		scope := randomScope(r)
		type asked struct {
			q     Query
			by    []string
			sorts [2]string
			was   []any
		}
		ask := func(s *stored, a asked) []any {
			v, err := s.View(scope)
			require.NoError(t, err)
			return timeless(answers(t, v, a.q, a.by, a.sorts))
		}
		var then []asked
		var queue []bundle.Report
		deliver := func(n int) {
			r.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
			for _, report := range queue[:n] {
				late.take(report, r.IntN(2) == 0)
			}
			queue = queue[n:]
		}
		for seq := range int64(80) {
			clock.Add(time.Duration(1+r.IntN(20)) * time.Minute)
			n := r.IntN(8)
			uid := fmt.Sprintf("uid-%d", n)
			c, err := prompt.db.Registered(t.Context(), uid)
			switch {
			case errors.Is(err, store.ErrUnknownCluster) || r.IntN(15) == 0:
				seed := r.Uint64()
				prompt.register(rand.New(rand.NewPCG(seed, 1)), n)
				late.register(rand.New(rand.NewPCG(seed, 1)), n)
			case r.IntN(30) == 0:
				deliver(len(queue)) // nobody takes them afterwards
				for _, s := range []*stored{prompt, late} {
					_, err := s.db.RemoveCluster(t.Context(), uid)
					require.NoError(t, err)
				}
			default:
				require.NoError(t, err)
				report := randomReport(r, c, seq+1, clock.Now())
				prompt.take(report, r.IntN(2) == 0)
				queue = append(queue, report)
				deliver(r.IntN(len(queue) + 1))
			}
			if r.IntN(4) == 0 {
				a := asked{q: randomQuery(r), by: []string{pick(r, Dimensions)}, sorts: [2]string{pick(r, ClusterSorts), pick(r, DeploymentSorts)}}
				a.q.Limit = r.IntN(8)
				a.was = ask(prompt, a)
				a.q.AsOf = clock.Now()
				then = append(then, a)
			}
		}
		deliver(len(queue))
		for _, a := range then {
			require.Equal(t, a.was, ask(late, a), "seed %d: scope %+v, query %+v", seed, scope, a.q)
		}
		again, err := Open(t.Context(), late.db, Options{Now: clock.Now})
		require.NoError(t, err)
		for _, a := range slices.Concat(then, []asked{{by: []string{"state", "version"}}}) {
			a.q.AsOf = time.Time{}
			now := ask(late, a)
			require.Equal(t, ask(prompt, a), now)
			require.Equal(t, ask(&stored{t, late.db, again}, a), now, "followed, as read anew")
		}
	}
}
