package agent

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/reconcilers"
)

// 30 days without a hub: an agent that looks every ten minutes, of whose assignments one flaps all the time, one
// fails for hours now and then, one has failed once, and one waits for it ever since.
func TestThirtyDaysOfflineStaySmallAndLoseNoFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	st := openTestState(t, t.TempDir())
	agenttest.Bolt(st.db).NoSync = true
	a := s.agentOn(st)
	records := make([]assignments.Record, 8)
	for i := range records {
		name := fmt.Sprintf("w%02d-x", i)
		records[i] = assignments.Record{Spec: bundle.Assignment{Name: name}, Item: bundle.Item{Assignment: name, Workload: name, Target: "x", Content: testID(i), Message: strings.Repeat("m", 300)}}
		records[i] = records[i].After(reconcilers.Result{State: bundle.Compliant}, assignments.Rules{}, s.now)
	}
	days := 30 / sweeptest.Every(3)
	began, onsets, random := s.now, 0, rand.New(rand.NewPCG(1, 3))
	until := map[int]time.Time{}
	for pass := range days * 24 * 6 {
		s.now = s.now.Add(10 * time.Minute)
		for i := range 4 {
			failing := s.now.Before(until[i])
			switch {
			case i == 0:
				failing = pass%2 == 0
			case i == 1 && !failing && random.IntN(200) == 0:
				until[i], failing = s.now.Add(time.Duration(random.IntN(9)+1)*time.Hour), true
			case i == 2:
				failing = pass == 777
			case i == 3:
				failing = pass >= 777
			}
			r := &records[i]
			if failing {
				if r.Item.State != bundle.Failed {
					onsets++
				}
				*r = r.After(reconcilers.Result{State: bundle.Failed, Reason: "DeadlineExceeded", Message: strings.Repeat("f", 300)}, assignments.Rules{}, s.now)
			} else {
				*r = r.After(reconcilers.Result{State: bundle.Compliant}, assignments.Rules{}, s.now)
			}
		}
		require.NoError(t, st.db.Update(func(tx *bbolt.Tx) (err error) {
			for _, r := range records {
				if err == nil {
					err = assignments.Save(tx, r)
				}
			}
			return err
		}))
		require.NoError(t, a.report(s.now))
	}
	queue := queueOf(t, st)
	t.Logf("%d failures in %s: %d reports of %d bytes wait, %d were coalesced", onsets, s.now.Sub(began), queue.Length, queue.Bytes, queue.Coalesced)
	require.Greater(t, onsets, 2000*days/30)
	require.Zero(t, queue.Dropped)
	require.Less(t, queue.Length, 100+2*(days*4*2)) // two series in twelve hours at most, of two failures
	require.Greater(t, queue.Coalesced, int64(2000*days/30))

	reports := openReports(t, a)
	newest := reports[len(reports)-1]
	require.Equal(t, records[3].Item.State, newest.Items[3].State)
	total := int64(0)
	for i, item := range newest.Items {
		require.Equal(t, records[i].Item.State, item.State)
		total += item.Failures
	}
	require.EqualValues(t, onsets, total, "the newest report tells how often each has failed")
	require.True(t, slices.ContainsFunc(reports, func(r bundle.Report) bool { return r.Items[2].State == bundle.Failed }), "what has failed once, long ago, is still told")
	first := slices.IndexFunc(reports, func(r bundle.Report) bool { return r.Items[3].State == bundle.Failed })
	require.Equal(t, began.Add(778*10*time.Minute), reports[first].OccurredAt)
}

func TestReportsAreMadeWhenSomethingChangesAndForHeartbeats(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	s.now = s.now.Add(30 * time.Minute)
	s.once()
	s.now = s.now.Add(31 * time.Minute)
	require.Equal(t, 2, s.once().Status.Queue.Length)
	s.agent(func(a *Agent) { require.Equal(t, bundle.Heartbeat, openReports(t, a)[1].Kind) })
	d := s.draft(2, map[string]string{"a-x/f": "2"})
	d.Release.EnvironmentCommit = "facade"
	d.ChangeList = func(as []bundle.Assignment) { as[0].Application = "till" }
	s.publish(d)
	s.once()

	s.agent(func(a *Agent) {
		reports := openReports(t, a)
		require.Len(t, reports, 2, "an event makes the heartbeat before it superfluous")
		instances := map[string]bool{}
		for i, seq := range []int64{1, 3} {
			require.Equal(t, []bundle.ReportKind{bundle.Snapshot, bundle.Event}[i], reports[i].Kind)
			require.NotEmpty(t, reports[i].Agent.Instance)
			instances[reports[i].Agent.Instance], reports[i].Agent.Instance = true, ""
			require.Equal(t, bundle.ReportAgent{Version: "v0.0.0-test", Incarnation: epoch.Add(time.Hour).Unix(), Seq: seq, Oldest: s.tag(1)}, reports[i].Agent)
		}
		require.Len(t, instances, 2, "each process has one of its own")
		last := reports[1]
		require.Equal(t, "plant-7", last.Cluster.UID)
		require.Equal(t, bundle.Compliant, last.State)
		require.EqualValues(t, 2, last.Observed.Sequence)
		require.Equal(t, "c0ffee", last.Desired.BaseCommit)
		require.Equal(t, "facade", last.Desired.EnvironmentCommit)
		require.Equal(t, "a-x", last.Items[0].Assignment)
		require.Equal(t, "till", last.Items[0].Application)
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

func queueOf(t testing.TB, s *State) outbox.Status {
	t.Helper()
	st, err := s.outbox.Status()
	require.NoError(t, err)
	return st
}

// waiting returns the ids of the reports that wait, oldest first.
func waiting(t testing.TB, a *Agent) (ids []digest.Digest) {
	t.Helper()
	envelopes, err := a.state.outbox.Reports()
	require.NoError(t, err)
	for _, data := range envelopes {
		var e dsse.Envelope
		require.NoError(t, json.Unmarshal(data, &e))
		body, err := e.DecodeB64Payload()
		require.NoError(t, err)
		ids = append(ids, bundle.ReportID(body))
	}
	return ids
}

// openReports verifies and parses what the queue holds.
func openReports(t *testing.T, a *Agent) []bundle.Report {
	t.Helper()
	signer, err := a.state.who.Identity().Signer()
	require.NoError(t, err)
	envelopes, err := a.state.outbox.Reports()
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

// The id is the digest of all that a report says, and with it of incarnation, seq and time: two reports that share
// a seq, as after a backup was restored, or of which one is another incarnation's, have no id in common.
func TestAnAcknowledgementIsForWhatAReportSaysAndNotForItsNumber(t *testing.T) {
	s := newSite(t)
	s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
	s.once()
	backup, err := os.ReadFile(filepath.Join(s.dir, state.File))
	require.NoError(t, err)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s.opts.Hub.Key = key.Public()
	second := func(minutes time.Duration) (ids []digest.Digest, seq int64) {
		s.now = s.now.Add(minutes * time.Minute)
		s.publish(s.draft(int64(minutes), map[string]string{"a-x/f": "2"}))
		s.once()
		s.agent(func(a *Agent) {
			ids = waiting(t, a)
			reports := openReports(t, a)
			seq = reports[len(reports)-1].Agent.Seq
		})
		return ids, seq
	}
	before, seq := second(2)
	ack := ackOf(key, "plant-7", before)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, state.File), backup, 0o600))
	after, again := second(3)
	require.Equal(t, seq, again, "the seq is used again")
	s.agent(func(a *Agent) {
		done, err := a.Acknowledge([][]byte{ack})
		require.NoError(t, err)
		require.Equal(t, outbox.Acknowledged{Deleted: 1, Left: 1}, done, "the first report is the same, and the second is not")
		require.Equal(t, after[1], bundle.ReportID(payloadOf(t, a)))
	})
}

// payloadOf is what the one report says that waits.
func payloadOf(t *testing.T, a *Agent) []byte {
	envelopes, err := a.state.outbox.Reports()
	require.NoError(t, err)
	require.Len(t, envelopes, 1)
	key, err := a.state.who.ReportKey()
	require.NoError(t, err)
	keys, err := bundle.ParsePublicKeys([]byte(key))
	require.NoError(t, err)
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelopes[0], keys...)
	require.NoError(t, err)
	return body
}
