package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// oracle knows the permitted states, from the published releases and from the states after earlier kills.
type oracle struct {
	valid    map[digest.Digest]released          // by manifest: all releases that were published with a trusted key
	contents map[digest.Digest]map[string]string // of assignments, by content digest
	tampered map[string]bool                     // assignments that somebody has changed since the agent could see

	known    bool // the agent has an identity, which the hub has too
	id       enroll.Identity
	highest  bundle.Order
	versions int
	seq      int64
	ids      map[int64]digest.Digest // of reports, by seq
	stored   map[digest.Digest]bool  // what the hub has acknowledged
}

// released is what a release wants.
type released struct {
	order bundle.Order
	items map[string]digest.Digest // content by assignment
}

// learn notes a release that may run.
func (o *oracle) learn(d draft, manifest digest.Digest) {
	folders := map[string]map[string]string{}
	for path, content := range d.Files {
		name, below, _ := strings.Cut(path, "/")
		if folders[name] == nil {
			folders[name] = map[string]string{}
		}
		folders[name][below] = content
	}
	r := released{order: bundle.OrderOf(d.Release, manifest), items: map[string]digest.Digest{}}
	for name, files := range folders {
		var list []bundle.File
		for _, path := range sortedKeys(files) {
			list = append(list, bundle.File{Path: path, Data: []byte(files[path])})
		}
		content := bundle.ContentDigest(list)
		r.items[name], o.contents[content] = content, files
	}
	o.valid[manifest] = r
}

// remains is what a dead agent has left in its state.
type remains struct {
	accepted, running, good *state.Release
	order                   bundle.Order
	versions                int
	seq                     int64
	records                 []assignments.Record
	queue                   map[int64]digest.Digest
	status                  Status
}

// judge looks at what a dead agent has left.
func (o *oracle) judge(w *realm) {
	t := w.t
	_ = os.Remove(filepath.Join(w.dir, control.SocketFile))
	s, err := ReadState(w.dir)
	if !o.known && (errors.Is(err, state.ErrNoState) || errors.Is(err, fs.ErrNotExist)) {
		require.Empty(t, readCluster(t, w.cluster), "nothing is applied before there is a state")
		return
	}
	require.NoError(t, err, "the state opens after a kill")
	defer s.Close()
	m := recall(t, s, w.stream)
	if !o.known {
		o.known, o.id = true, s.who.Identity()
		o.stored = map[digest.Digest]bool{}
		w.enroll(m.status)
	}
	require.Equal(t, o.id, s.who.Identity(), "an agent stays who it is")

	for _, r := range []*state.Release{m.accepted, m.running, m.good} {
		if r != nil {
			require.Contains(t, o.valid, r.Digest(), "only what was verified is accepted, or runs")
		}
	}
	require.GreaterOrEqual(t, m.order.Compare(o.highest), 0, "the order never falls")
	require.Equal(t, m.order.Digest, m.accepted.Digest(), "and is that of the release which was accepted last")
	require.GreaterOrEqual(t, m.versions, o.versions, "no trust document is forgotten")
	require.GreaterOrEqual(t, m.seq, o.seq, "the numbers of reports never fall")
	o.highest, o.versions, o.seq = m.order, m.versions, m.seq
	o.judgeCluster(t, m, readCluster(t, w.cluster))
	w.mu.Lock()
	defer w.mu.Unlock()
	o.judgeReports(t, m)
	require.Equal(t, len(o.stored), w.accepted, "no report is counted twice at the hub")
}

func recall(t testing.TB, s *State, stream bundle.Stream) (m remains) {
	t.Helper()
	m.queue = map[int64]digest.Digest{}
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		var errs [6]error
		var last outbox.Last
		m.accepted, errs[0] = state.Load[*state.Release](tx, state.Meta, keyAccepted)
		m.running, errs[1] = state.Load[*state.Release](tx, state.Meta, keyRunning)
		m.good, errs[2] = state.Load[*state.Release](tx, state.Meta, keyGood)
		m.order, errs[3] = state.Load[bundle.Order](tx, state.Orders, stream.Repository()+"@"+stream.Platform)
		last, errs[4] = outbox.LoadLast(tx)
		m.records, errs[5] = s.records.All(tx)
		reports, err := queue.Open[json.RawMessage](tx, "reports")
		require.NoError(t, err)
		for e, err := range reports.From(nil) {
			require.NoError(t, err)
			envelope, err := reports.Body(e.Key)
			require.NoError(t, err)
			body, err := opened(envelope)
			require.NoError(t, err)
			r, err := bundle.ParseReport(body)
			require.NoError(t, err)
			m.queue[r.Agent.Seq] = bundle.ReportID(body)
		}
		m.seq = last.Seq
		return errors.Join(errs[:]...)
	}))
	m.versions = len(s.trust.Chain())
	var err error
	m.status, err = s.Status(time.Now())
	require.NoError(t, err)
	return m
}

// opened returns the content of an envelope, without verifying its signatures.
func opened(envelope []byte) ([]byte, error) {
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil, err
	}
	return e.DecodeB64Payload()
}

// judgeCluster compares the agent's records with the cluster.
func (o *oracle) judgeCluster(t testing.TB, m remains, cluster map[string]map[string]string) {
	t.Helper()
	said := map[string]assignments.Record{}
	for _, r := range m.records {
		said[r.Spec.Name] = r
	}
	for name, files := range cluster {
		r, ok := said[name]
		require.True(t, ok, "%s is on the cluster, and the agent knows nothing of it", name)
		whole := equalFiles(files, o.contents[r.Spec.Content]) || o.tampered[name]
		require.True(t, whole || r.Item.State != bundle.Compliant, "%s is half applied, and called compliant", name)
		for path, content := range files {
			require.True(t, o.mayBe(path, content), "%s/%s is of no release that was verified: %.40s", name, path, content)
		}
	}
	compliant := 0
	for name, r := range said {
		if r.Item.State == bundle.Compliant {
			compliant++
			require.True(t, o.tampered[name] || cluster[name] != nil, "%s is not on the cluster, and called compliant", name)
		}
	}
	if m.status.State == bundle.Compliant {
		require.Len(t, said, compliant, "the agent is compliant when all is")
	}
}

// mayBe reports whether a file is of a release that was verified, or the first half of one.
func (o *oracle) mayBe(path, content string) bool {
	for _, files := range o.contents {
		if whole, ok := files[path]; ok && (whole == content || content == whole[:len(whole)/2] || content == "") {
			return true
		}
	}
	return false
}

// judgeReports looks for each report that was ever made: it waits, or the hub has it, or it says no more than those
// beside it and is counted as such, which the newest never does.
func (o *oracle) judgeReports(t testing.TB, m remains) {
	t.Helper()
	for seq, id := range m.queue {
		require.Equal(t, id, cmp.Or(o.ids[seq], id), "report %d says something else than before", seq)
		o.ids[seq] = id
	}
	gone := int64(0)
	for seq := int64(1); seq <= m.seq; seq++ {
		if _, waits := m.queue[seq]; waits || o.stored[o.ids[seq]] {
			continue
		}
		gone++
		require.Less(t, seq, m.seq, "the newest report is lost: it neither waits nor is at the hub")
	}
	require.LessOrEqual(t, gone, m.status.Queue.Coalesced+m.status.Queue.Dropped, "reports are lost: they neither wait, nor are at the hub, nor are superseded")
}

// sent notes reports on their way to the hub, and the ids that the hub acknowledges.
func (o *oracle) sent(t testing.TB, reports map[int64]digest.Digest, acknowledged []digest.Digest) {
	for seq, id := range reports {
		if id != cmp.Or(o.ids[seq], id) {
			t.Errorf("report %d says something else than before", seq)
		}
		o.ids[seq] = id
	}
	for _, id := range acknowledged {
		o.stored[id] = true
	}
}

func readCluster(t testing.TB, dir string) map[string]map[string]string {
	t.Helper()
	cluster := map[string]map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		cluster[e.Name()], err = readFolder(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	return cluster
}
