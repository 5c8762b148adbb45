package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAFullQueueGivesUpWhatIsSuperseded(t *testing.T) {
	for _, tc := range []struct {
		name     string
		reports  string // one letter each, oldest first: F tells of a failure
		limits   QueueLimits
		left     []uint64
		dropped  int
		eachSize int
	}{
		{"room for all", "aaa", QueueLimits{Reports: 3}, []uint64{1, 2, 3}, 0, 10},
		{"oldest first", "aaaaa", QueueLimits{Reports: 3}, []uint64{3, 4, 5}, 2, 10},
		{"failures stay", "FaFaa", QueueLimits{Reports: 3}, []uint64{1, 3, 5}, 2, 10},
		{"among failures the oldest goes", "FFFF", QueueLimits{Reports: 3}, []uint64{2, 3, 4}, 1, 10},
		{"by size", "aaaa", QueueLimits{Bytes: 25}, []uint64{3, 4}, 2, 10},
		{"the newest stays though it is too large", "aa", QueueLimits{Bytes: 5}, []uint64{2}, 1, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTestState(t, t.TempDir())
			dropped := 0
			for i, letter := range tc.reports {
				require.NoError(t, s.update(func(tx *bbolt.Tx) error {
					n, err := enqueue(tx, int64(i+1), queued{ID: testID(i), Size: tc.eachSize, At: epoch, Failure: letter == 'F'}, fmt.Append(nil, i), tc.limits.withDefaults())
					dropped += n
					return err
				}))
			}
			all, err := s.batch(0, 100, 1000, func(digest.Digest) bool { return false })
			require.NoError(t, err)
			var left []uint64
			for _, q := range all {
				left = append(left, q.seq)
			}
			require.Equal(t, tc.left, left)
			require.Equal(t, tc.dropped, dropped)
		})
	}
}

func TestABatchKeepsTheBoundsOfARequestAndMovesOn(t *testing.T) {
	s := openTestState(t, t.TempDir())
	for i := range 5 {
		require.NoError(t, s.update(func(tx *bbolt.Tx) error {
			_, err := enqueue(tx, int64(i+1), queued{ID: testID(i), Size: 10}, []byte("x"), QueueLimits{}.withDefaults())
			return err
		}))
	}
	none := func(digest.Digest) bool { return false }
	for _, tc := range []struct {
		name  string
		after uint64
		n     int
		bytes int
		skip  func(digest.Digest) bool
		want  []uint64
	}{
		{"all", 0, 100, 1000, none, []uint64{1, 2, 3, 4, 5}},
		{"by count", 0, 2, 1000, none, []uint64{1, 2}},
		{"by bytes", 2, 100, 25, none, []uint64{3, 4}},
		{"one that is too large goes alone", 0, 100, 5, none, []uint64{1}},
		{"without the skipped", 0, 2, 1000, func(id digest.Digest) bool { return id == testID(0) }, []uint64{2, 3}},
		{"at the end", 5, 2, 1000, none, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			batch, err := s.batch(tc.after, tc.n, tc.bytes, tc.skip)
			require.NoError(t, err)
			var got []uint64
			for _, q := range batch {
				got = append(got, q.seq)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestReportsAreMadeWhenSomethingChangesAndForHeartbeats(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.now = s.now.Add(30 * time.Minute)
	s.once()
	s.now = s.now.Add(31 * time.Minute)
	s.once()
	s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
	s.once()

	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		require.Len(t, reports, 3)
		instances := map[string]bool{}
		for i, kind := range []bundle.ReportKind{bundle.Snapshot, bundle.Heartbeat, bundle.Event} {
			require.Equal(t, kind, reports[i].Kind)
			require.NotEmpty(t, reports[i].Agent.Instance)
			instances[reports[i].Agent.Instance], reports[i].Agent.Instance = true, ""
			require.Equal(t, bundle.ReportAgent{Version: "v0.0.0-test", Incarnation: epoch.Add(time.Hour).Unix(), Seq: int64(i + 1)}, reports[i].Agent)
		}
		require.Len(t, instances, 3, "each process has one of its own")
		last := reports[2]
		require.Equal(t, "plant-7", last.Cluster.UID)
		require.Equal(t, bundle.Compliant, last.State)
		require.EqualValues(t, 2, last.Observed.Sequence)
		require.Equal(t, "c0ffee", last.Desired.BaseCommit)
		require.Equal(t, "a-x", last.Items[0].Assignment)
		require.NotEmpty(t, last.Items[0].Revision)
	})
}

func TestARefusalIsReportedAsDesiredBesideWhatRuns(t *testing.T) {
	s := newSite(t)
	good := s.publish(s.draft(5, map[string]string{"a-x/f": "1"}))
	s.once()
	d := s.draft(6, map[string]string{"a-x/f": "2"})
	d.Signer = nil
	bad := s.publish(d)
	s.once()

	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		last := reports[len(reports)-1]
		require.Equal(t, bundle.Rejected, last.State)
		require.Equal(t, string(bundle.Unsigned), last.Reason)
		require.Equal(t, bad.Digest, last.Desired.Digest)
		require.Equal(t, good.Digest, last.Observed.Digest)
		require.Equal(t, bundle.Compliant, last.Items[0].State)
	})
}

// openReports verifies and parses what the queue holds.
func openReports(t *testing.T, a *Agent) []bundle.Report {
	t.Helper()
	signer, err := a.state.identity().signer()
	require.NoError(t, err)
	envelopes, err := a.state.Reports()
	require.NoError(t, err)
	var reports []bundle.Report
	for _, e := range envelopes {
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, e, signer.Public())
		require.NoError(t, err)
		r, err := bundle.ParseReport(body)
		require.NoError(t, err)
		reports = append(reports, r)
	}
	return reports
}

func testID(i int) digest.Digest { return digest.FromString(fmt.Sprint("report ", i)) }
