package agent

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// converge publishes once more and leaves the agent in peace. Then all is as the newest release wants it, and
// everybody knows.
func (w *realm) converge() {
	t := w.t
	w.note("converge")
	w.release(w.random.IntN(3) == 0)
	o := order{Resume: true}
	if w.taken {
		o.Trust = w.takeOver(false)
	}
	stranger := !w.oracle.known
	if w.run(o); stranger { // to the hub, which takes its reports from now on
		w.run(o)
	}
	clear(w.tampered)
	w.judge(w)

	s, err := ReadState(w.dir)
	require.NoError(t, err)
	defer s.Close()
	m := recall(t, s, w.stream)
	require.Equal(t, w.latest.Digest, m.running.Digest(), "the newest release runs")
	require.Nil(t, m.status.Release.Refused)
	w.judgeItems(t, m)
	require.Empty(t, m.queue, "the hub has all reports")
	w.judgeHub(t, m)
}

// judgeItems looks at each assignment after the end. What needs one that fails waits, and so does what that needs.
func (w *realm) judgeItems(t testing.TB, m remains) {
	want := maps.Clone(w.valid[w.latest.Digest].items)
	bad := slices.ContainsFunc(sortedKeys(w.files), func(path string) bool { return strings.HasPrefix(w.files[path], rejected) })
	for _, r := range m.records {
		i := r.Item
		switch {
		case strings.HasPrefix(w.files[r.Spec.Name+"/1"], rejected):
			require.Equal(t, bundle.Failed, i.State, "%s: %s", r.Spec.Name, i.Reason)
		case bad && (i.Reason == assignments.ReasonDependencyNotReady || r.Removing && i.State == bundle.Pending):
		default:
			require.Equal(t, bundle.Compliant, i.State, "%s: %s %s", r.Spec.Name, i.Reason, i.Message)
		}
		require.True(t, r.Removing || r.Spec.Content == want[r.Spec.Name], "%s is to have what the release lists", r.Spec.Name)
		delete(want, r.Spec.Name)
	}
	require.Empty(t, want, "all that the release lists is there")
}

// judgeHub compares what the hub shows with what the agent says.
func (w *realm) judgeHub(t testing.TB, m remains) {
	answers, err := w.hub.Answers(context.Background(), store.AccessScope{})
	require.NoError(t, err)
	list, err := answers.Clusters(context.Background(), fleet.Query{Cluster: m.status.Cluster.UID})
	require.NoError(t, err)
	require.Len(t, list.Clusters, 1)
	shown := list.Clusters[0]
	require.Zero(t, shown.Conflicts, "no number was given to two reports")
	require.Equal(t, m.seq, shown.Seq)
	require.Equal(t, m.status.State, shown.State)
	require.Equal(t, m.running.Digest(), shown.Observed.Digest)
	items, err := answers.Deployments(context.Background(), fleet.Query{Cluster: m.status.Cluster.UID})
	require.NoError(t, err)
	at := map[string]bundle.State{}
	for _, d := range items.Deployments {
		at[d.Assignment] = d.State
	}
	require.Len(t, at, len(m.records))
	for _, r := range m.records {
		require.Equal(t, r.Item.State, at[r.Spec.Name], r.Spec.Name)
	}
}

// leaveNothing looks for left-overs. What writers that were killed have left goes once it is an hour old; the process of a
// delta may outlive its agent by some milliseconds.
func (w *realm) leaveNothing() {
	t := w.t
	ingest := filepath.Join(w.dir, state.StoreDir, "ingest")
	old := time.Now().Add(-2 * time.Hour)
	for range 3 {
		entries, _ := os.ReadDir(ingest) // none where the last agent was new
		for _, e := range entries {
			_ = os.Chtimes(filepath.Join(ingest, e.Name()), old, old)
		}
		w.converge()
	}
	s, err := ReadState(w.dir)
	require.NoError(t, err)
	defer s.Close()
	m := recall(t, s, w.stream)
	want := map[string]bool{
		"agent.db": true, "store/index.json": true, "store/index.json.lock": true, "store/oci-layout": true, "store/parts/lock": true,
	}
	p := newPass(w.agentOn(s), scope{})
	require.NoError(t, p.remember())
	for _, r := range p.kept(nil) {
		if r == nil {
			continue
		}
		var manifest ocispec.Manifest
		blob := func(d digest.Digest) string { return filepath.Join(w.dir, state.StoreDir, "blobs/sha256", d.Encoded()) }
		data, err := os.ReadFile(blob(r.Digest()))
		require.NoError(t, err, "what is kept is there")
		require.NoError(t, json.Unmarshal(data, &manifest))
		forms := []digest.Digest{r.Release.Content.DiffID, r.Tree.Digest} // the tar first
		form := slices.IndexFunc(forms, func(d digest.Digest) bool {
			_, err := os.Stat(blob(d))
			return err == nil
		})
		require.GreaterOrEqual(t, form, 0, "the tree of what is kept is there")
		for _, d := range []digest.Digest{r.Digest(), manifest.Config.Digest, forms[form]} {
			want["store/blobs/sha256/"+d.Encoded()] = true
		}
		for _, d := range w.signatureOf(s, r.Digest()) { // of what has come by a file, and is kept for going back
			want["store/blobs/sha256/"+d.Encoded()] = true
		}
	}
	want["trees/"+m.running.Release.Content.DiffID.Encoded()+"/"+bundle.AssignmentsPath] = true
	for _, files := range w.valid[m.running.Digest()].items {
		for path := range w.contents[files] {
			want["contents/"+files.Encoded()+"/"+path] = true
		}
	}
	var found []string
	require.NoError(t, filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(w.dir, path)
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	}))
	require.Equal(t, sortedKeys(want), found, "nothing else is on the disk")
}

// signatureOf lists what the store has of a release's signature.
func (w *realm) signatureOf(s *State, release digest.Digest) []digest.Digest {
	w.t.Helper()
	var signature ocispec.Descriptor
	require.NoError(w.t, s.db.View(func(tx *bbolt.Tx) (err error) {
		if tx.Bucket([]byte(content.BucketSignatures)) != nil {
			signature, err = state.Load[ocispec.Descriptor](tx, content.BucketSignatures, release.Encoded())
		}
		return err
	}))
	if signature.Digest == "" {
		return nil
	}
	var m ocispec.Manifest
	data, err := os.ReadFile(filepath.Join(w.dir, state.StoreDir, "blobs/sha256", signature.Digest.Encoded()))
	require.NoError(w.t, err, "a signature that is known is there")
	require.NoError(w.t, json.Unmarshal(data, &m))
	all := []digest.Digest{signature.Digest, m.Config.Digest}
	for _, l := range m.Layers {
		all = append(all, l.Digest)
	}
	return all
}
