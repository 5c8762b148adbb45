package publisher

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/garbage"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/verify"
	"github.com/wherry-dev/wherry/rollout/decisions"
)

// old publishes n releases of drone, a day apart, and lets a week pass.
func (w *world) old(n int) {
	for i := range n {
		w.publishes(strings.Repeat("x", i+1))
		w.mustPublish()
		w.now = w.now.Add(24 * time.Hour)
	}
	w.now = w.now.Add(7 * 24 * time.Hour)
	w.age()
}

// age makes the files of a layout as old as their content.
func (w *world) age() {
	if w.loc.Dir == "" {
		return
	}
	long := time.Now().Add(-30 * 24 * time.Hour)
	require.NoError(w.t, filepath.WalkDir(filepath.Join(w.dir, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chtimes(path, long, long)
		}
		return err
	}))
}

func (w *world) collect(opts garbage.Options) *garbage.Collection {
	w.t.Helper()
	opts.OCI, opts.Now = w.opts.OCI, func() time.Time { return w.now }
	c, err := garbage.Collect(w.t.Context(), w.loc, opts)
	require.NoError(w.t, err)
	return c
}

// tagsOf lists a repository's tags without those of signatures, and counts these.
func (w *world) tagsOf(repository string) (tags []string, signatures int) {
	all, err := w.repository(repository).Tags(w.t.Context())
	require.NoError(w.t, err)
	tags = slices.DeleteFunc(slices.Clone(all), func(tag string) bool { return strings.HasSuffix(tag, ".sig") })
	return tags, len(all) - len(tags)
}

// eachKind runs a test against a registry that deletes, and against a layout.
func eachKind(t *testing.T, test func(*testing.T, *world)) {
	t.Parallel()
	t.Run("registry", func(t *testing.T) { t.Parallel(); w, _ := newWiredWorld(t); test(t, w) })
	t.Run("embedded registry", func(t *testing.T) { t.Parallel(); test(t, newWorld(t, "embedded")) })
	t.Run("layout", func(t *testing.T) { t.Parallel(); test(t, newWorld(t, "layout")) })
}

func TestWhatIsNotNeededIsDeletedAndTheRestStays(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		w.old(5)
		repo := w.repository("bundles/dev/drone")
		before, _ := w.tagsOf("bundles/dev/drone")
		oldest := w.verified("drone", before[1])
		require.NoError(t, repo.Tag(t.Context(), oldest.Descriptor, "ring-slow"))
		second := w.verified("drone", before[2])
		require.NoError(t, repo.Tag(t.Context(), second.Descriptor, "audit-2026"))

		c := w.collect(garbage.Options{Keep: 1})
		all, deleted := c.Count()
		require.Equal(t, []int{6, 0}, []int{all, deleted}, "4 records, 2 releases of 4: one has a ring, one a foreign tag")
		after, _ := w.tagsOf("bundles/dev/drone")
		require.Len(t, after, len(before)+2, "nothing is deleted yet")
		require.Equal(t, []string{"audit-2026"}, c.Repositories[1].Foreign)
		require.NoError(t, c.Delete(t.Context()))
		all, deleted = c.Count()
		require.Equal(t, all, deleted)

		after, signatures := w.tagsOf("bundles/dev/drone")
		require.Equal(t, []string{"audit-2026", "latest", "ring-slow", before[1], before[2], before[5]}, after)
		require.Equal(t, 3, signatures)
		records, signatures := w.tagsOf("environments/dev")
		require.Len(t, records, 2)
		require.Equal(t, 1, signatures)
		for _, tag := range []string{"latest", "ring-slow", "audit-2026"} {
			w.verified("drone", tag)
		}
		require.NoError(t, w.readInFull("bundles/dev/drone", before[5]))
		if w.loc.Dir != "" {
			require.Equal(t, 2*6+4*5, c.Blobs.Blobs, "manifest, document and tree, and three parts of a signature; the empty layer of records stays")
		}
		again := w.collect(garbage.Options{Keep: 1})
		all, _ = again.Count()
		require.Zero(t, all)
		if w.loc.Dir != "" {
			require.Zero(t, again.Blobs.Blobs)
		}
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["record"])
		require.Equal(t, w.verified("drone", before[5]).Descriptor.Digest, row(t, p, "drone").Digest)
	})
}

// readInFull reads a release in full.
func (w *world) readInFull(repository, tag string) error {
	_, err := verify.ByKeys(w.t.Context(), w.reference(repository+":"+tag), trustIn(w.key), time.Time{}, w.opts.OCI)
	return err
}

func TestWhatIsYoungOrRecordedIsKept(t *testing.T) {
	w, _ := newWiredWorld(t)
	w.old(5)
	count := func(opts garbage.Options) int {
		n, _ := w.collect(opts).Count()
		return n
	}
	require.Equal(t, 8, count(garbage.Options{}))
	require.Zero(t, count(garbage.Options{Keep: 5}))
	require.Equal(t, 2*3, count(garbage.Options{KeepFor: 9*24*time.Hour + time.Minute}), "the two newest are younger")
	require.Equal(t, 2, count(garbage.Options{Keep: 4}))
	w.result.Environment = "prod"
	w.mustPublish()
	require.Zero(t, count(garbage.Options{Environment: "prod"}))
	require.Equal(t, 8, count(garbage.Options{Environment: "dev"}))

	// A record that stays has all that it names: one that drone has left behind, here.
	repo := w.repository("environments/dev")
	tags, _ := w.tagsOf("environments/dev")
	first, err := repo.Resolve(t.Context(), tags[1])
	require.NoError(t, err)
	require.NoError(t, repo.Tag(t.Context(), first, "audit"))
	require.Equal(t, 3+3, count(garbage.Options{}))
}

func TestDecisionsStayAsLongAsTheirCommit(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		w.old(2)
		person := keytest.New(t)
		repo := w.repository(bundle.EnvironmentRepository("dev"))
		desc, err := repo.Resolve(t.Context(), "latest")
		require.NoError(t, err)
		v, err := bundle.ReadEnvironment(t.Context(), repo, desc)
		require.NoError(t, err)
		record := v.Record
		decide := func(d bundle.Decision, at time.Time) string {
			d.Platform, d.Environment = record.Platform, record.Environment
			done, err := decisions.Write(t.Context(), w.loc, w.opts.OCI, d, person, at)
			require.NoError(t, err)
			return done.Decision.Tag(done.KeyID)
		}
		approval := bundle.Decision{Action: bundle.Approve, From: record.Environment, BaseCommit: record.BaseCommit, Contents: map[string]digest.Digest{"drone": digest.FromString("x")}}
		long := w.now.Add(-365 * 24 * time.Hour)
		stays := []string{decide(bundle.Decision{Action: bundle.Pause}, long), decide(approval, long)}
		approval.BaseCommit = strings.Repeat("5", 40)
		goes := decide(approval, long)
		approval.BaseCommit = strings.Repeat("6", 40)
		stays = append(stays, decide(approval, w.now.Add(-time.Minute)))
		require.NoError(t, repo.Tag(t.Context(), desc, "gate-nonsense"))

		c := w.collect(garbage.Options{Keep: 5})
		var found []string
		for _, g := range c.Repositories[0].Garbage {
			require.Equal(t, garbage.Decision, g.Kind)
			found = append(found, g.Tags...)
		}
		slices.Sort(found)
		require.Len(t, found, 3)
		require.Equal(t, []string{goes, "gate-nonsense"}, []string{found[0], found[2]})
		require.Regexp(t, "^"+goes+"-[0-9a-f]{16}$", found[1], "under the tag that keeps it, too")
		require.Empty(t, c.Repositories[0].Foreign)
		require.NoError(t, c.Delete(t.Context()))
		left, err := repo.Tags(t.Context())
		require.NoError(t, err)
		require.Subset(t, left, append(stays, "latest"), "the record that the nonsense named stays")
		require.NotContains(t, left, goes)
		require.NotContains(t, left, found[1])
		require.Empty(t, w.collect(garbage.Options{Keep: 5}).Repositories[0].Garbage)
	})
}

// The record with a commit is gone, and the ledger says that the environment had it.
func TestDecisionsStayWhileTheLedgerHasTheirCommit(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		w.mustPublish()
		person, long := keytest.New(t), w.now
		decide := func(commit string) string {
			done, err := decisions.Write(t.Context(), w.loc, w.opts.OCI, bundle.Decision{
				Action: bundle.Approve, Platform: "edge", Environment: "dev", From: "dev", BaseCommit: commit, Contents: map[string]digest.Digest{"drone": digest.FromString("x")},
			}, person, long)
			require.NoError(t, err)
			return done.Decision.Tag(done.KeyID)
		}
		stays, goes := decide(w.result.BaseCommit), decide(strings.Repeat("5", 40))
		w.now, w.result.BaseCommit = w.now.Add(24*time.Hour), "decaf"
		w.mustPublish()
		w.now = w.now.Add(30 * 24 * time.Hour)
		w.age()
		for range 2 { // once with the old record, and once without it
			require.NoError(t, w.collect(garbage.Options{Keep: 1}).Delete(t.Context()))
		}
		tags, err := published.ReadTags(t.Context(), w.repository("environments/dev"))
		require.NoError(t, err)
		require.Len(t, tags.Releases(), 1, "records")
		require.Contains(t, tags.All, stays)
		require.NotContains(t, tags.All, goes)
	})
}

func TestDecisionsAboutARevisionStayAsLongAsALedgerNamesIt(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		w.reads("c1", "f1")
		w.mustPublish()
		r, _ := w.ledger().Find(webKey).In("")
		person, long := keytest.New(t), w.now
		decide := func(revision digest.Digest) string {
			done, err := decisions.Write(t.Context(), w.loc, w.opts.OCI, bundle.Decision{
				Action: bundle.Approve, Platform: DefaultPlatform, Environment: "dev", From: "dev",
				Workload: bundle.DecisionWorkload{Registration: webKey.Registration, Name: webKey.Workload, Revision: revision},
			}, person, long)
			require.NoError(t, err)
			return done.Decision.Tag(done.KeyID)
		}
		stays, other, removal := decide(r.Revision), decide(digest.FromString("other")), decide("")
		w.now = w.now.Add(30 * 24 * time.Hour)
		w.age()
		var found []string
		for _, g := range w.collect(garbage.Options{Keep: 5}).Repositories[0].Garbage {
			found = append(found, g.Tags...)
		}
		require.Len(t, found, 4, "each under two tags")
		require.Subset(t, found, []string{other, removal})
		require.NotContains(t, found, stays)
	})
}

func TestWhatWaitedInVainOrLostItsTagGoes(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		w.old(3)
		repo := w.repository("bundles/dev/drone")
		tags, _ := w.tagsOf("bundles/dev/drone")
		older, old, newest := w.verified("drone", tags[1]), w.verified("drone", tags[2]), w.verified("drone", tags[3])
		require.NoError(t, repo.Tag(t.Context(), older.Descriptor, strings.Replace(tags[1], "s", "pending-", 1)))
		require.NoError(t, repo.Untag(t.Context(), tags[1]), "it waits only")
		require.NoError(t, repo.Untag(t.Context(), tags[2]), "its publisher was killed before it had a tag")
		require.NoError(t, repo.Tag(t.Context(), newest.Descriptor, strings.Replace(tags[3], "s", "pending-", 1)))
		require.NoError(t, repo.Tag(t.Context(), newest.Descriptor, "pending-0-9999999999"))

		c := w.collect(garbage.Options{})
		require.Equal(t, []garbage.Item{
			{Kind: garbage.Pending, Tags: []string{strings.Replace(tags[1], "s", "pending-", 1)}, Digest: older.Descriptor.Digest, IssuedAt: older.Release.IssuedAt},
			{Kind: garbage.Untagged, Tags: []string{}, Digest: old.Descriptor.Digest, IssuedAt: old.Release.IssuedAt},
			{Kind: garbage.Pending, Tags: []string{strings.Replace(tags[3], "s", "pending-", 1)}, IssuedAt: newest.Release.IssuedAt},
		}, shown(c.Repositories[1].Garbage))
		require.NoError(t, c.Delete(t.Context()))
		tags, signatures := w.tagsOf("bundles/dev/drone")
		require.Equal(t, []string{"latest", "pending-0-9999999999", newest.Release.Tag()}, tags)
		require.Equal(t, 1, signatures)
		w.verified("drone", "latest")
	})
}

// shown returns garbage with the printed fields only.
func shown(all []garbage.Item) []garbage.Item {
	all = slices.Clone(all)
	for i := range all {
		g := all[i]
		all[i] = garbage.Item{Kind: g.Kind, Tags: g.Tags, Digest: g.Digest, IssuedAt: g.IssuedAt, Deleted: g.Deleted}
	}
	return all
}

// Deletion is stopped before and after each of its requests. The rest of a release has no tag, and the
// next deletion removes it.
func TestACollectionKilledAnywhereLeavesNoTagOnAnythingIncomplete(t *testing.T) {
	t.Parallel()
	for _, f := range faults[:2] {
		for k, met := 1, true; met; k++ {
			w, line := newWiredWorld(t)
			agent := w.newFollower(line.handler)
			w.old(3)
			c := w.collect(garbage.Options{})
			n := 0
			line.on = func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
				if n++; n >= k {
					return f.do(r, serve)
				}
				return serve(), nil
			}
			err := c.Delete(t.Context())
			line.on = nil
			if met = n >= k; met {
				require.ErrorIs(t, err, errKilled)
			} else {
				require.NoError(t, err)
			}
			agent.requireSettled("request %d", k)
			require.NoError(t, w.collect(garbage.Options{}).Delete(t.Context()))
			agent.requireSettled("request %d", k)
			left, _ := w.collect(garbage.Options{}).Count()
			require.Zero(t, left)
			for _, name := range []string{"bundles/dev/drone", "environments/dev"} {
				tags, signatures := w.tagsOf(name)
				require.Len(t, tags, 2)
				require.Equal(t, 1, signatures)
			}
			require.Less(t, k, 100)
		}
	}
}

// A publisher is stopped before each of its requests while everything that can be is collected.
func TestACollectionBesideAPublisherAtWorkHarmsNothing(t *testing.T) {
	t.Parallel()
	for i, stopped := 1, true; stopped; i++ {
		w, line := newWiredWorld(t)
		agent := w.newFollower(line.handler)
		w.old(3)
		w.publishes("new")
		other, _ := w.beside(line.handler, "")
		var publishing *turn
		publishing, stopped = start(w, line, i)
		require.NoError(t, other.collect(garbage.Options{}).Delete(t.Context()))
		require.NoError(t, publishing.end(true))
		agent.found = map[digest.Digest]*bundle.Verified{}
		agent.requireSettled("request %d", i)
	}
}

// hookStore has something happen before each operation on a repository.
type hookStore struct {
	oci.Store
	before func()
}

func (s hookStore) Repository(name string) (oci.Target, error) {
	repo, err := s.Store.Repository(name)
	return hookTarget{repo, s.before}, err
}

type hookTarget struct {
	oci.Target
	before func()
}

func (h hookTarget) Exists(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	h.before()
	return h.Target.Exists(ctx, d)
}

func (h hookTarget) Push(ctx context.Context, d ocispec.Descriptor, r io.Reader) error {
	h.before()
	return h.Target.Push(ctx, d, r)
}

func (h hookTarget) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	h.before()
	return h.Target.Tag(ctx, d, tag)
}

// A layout is swept, with no regard to age, before any operation of a publisher, who finds there what an
// older release left that is needed no more.
func TestASweepBesideAPublisherAtWorkLeavesNoTagOnAnythingIncomplete(t *testing.T) {
	t.Parallel()
	for k, swept := 1, true; swept; k += sweeptest.Every(3) {
		w := newWorld(t, "layout")
		w.checked = map[string]bool{}
		w.old(2)
		c := w.collect(garbage.Options{})
		for _, r := range c.Repositories {
			require.NoError(t, r.Delete(t.Context()))
		}
		w.publishes("x") // as the first was
		p, err := newPublication(w.result, w.loc, []*keys.Key{w.key}, trust.PinnedBy([]*keys.Key{w.key}), PublishOptions{Now: func() time.Time { return w.now }})
		require.NoError(t, err)
		n := 0
		p.Store = hookStore{p.Store, func() {
			if n++; n == k {
				_, err := oci.NewLayout(w.dir).Sweep(t.Context(), time.Now().Add(time.Hour))
				require.NoError(t, err)
				require.NoError(t, w.complete(), "operation %d", k)
			}
		}}
		so := newProgress()
		done, err := p.untilSettled(func(p *publication) (Published, error) { return p.run(t.Context(), w.result, so) })
		require.NoError(t, err, "operation %d", k)
		require.NoError(t, w.complete(), "operation %d", k)
		require.Equal(t, done.ClusterTypes[0].Digest, w.verified("drone", "latest").Descriptor.Digest)
		swept = n >= k
		require.Less(t, k, 100)
	}
}

func TestARegistryThatDeletesNothingSaysSo(t *testing.T) {
	w := newWorld(t, "registry") // distribution's default
	w.old(2)
	before := w.writes.Load()
	c := w.collect(garbage.Options{})
	err := c.Delete(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Regexp(t, `^delete 127.0.0.1:\d+/line/a/environments/dev@sha256:\w+: answered 405 Method Not Allowed: `, err.Error())
	_, deleted := c.Count()
	require.Zero(t, deleted)
	require.Equal(t, before+2, w.writes.Load(), "one tag, one manifest, and no further")
	require.NoError(t, w.complete())
}

func TestTwoTagsThatNameOneSignatureDoNotTakeItAlong(t *testing.T) {
	w, _ := newWiredWorld(t)
	w.old(2)
	repo := w.repository("bundles/dev/drone")
	tags, _ := w.tagsOf("bundles/dev/drone")
	newest, err := repo.Resolve(t.Context(), bundle.SignatureTag(w.verified("drone", "latest").Descriptor.Digest))
	require.NoError(t, err)
	require.NoError(t, repo.Tag(t.Context(), newest, bundle.SignatureTag(w.verified("drone", tags[1]).Descriptor.Digest)))
	require.NoError(t, w.collect(garbage.Options{}).Delete(t.Context()))
	w.verified("drone", "latest")
}
