package publisher

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

const broken = "/home/ann/templates/db.yaml:7: no such key" // a machine's paths must not be published

// fail lets an assignment of a cluster type fail.
func (w *world) fail(clusterType, name string) {
	ct := w.clusterType(clusterType)
	w.remove(clusterType, name)
	ct.Failures = append(ct.Failures, scheduler.Failure{Name: name, ClusterType: clusterType, Reason: scheduler.TemplateFailed, Err: errors.New(broken)})
}

// remove takes an assignment off a cluster type, or its failure.
func (w *world) remove(clusterType, name string) {
	ct := w.clusterType(clusterType)
	var left []scheduler.Assignment
	for _, a := range ct.Assignments {
		if a.Name != name {
			left = append(left, a)
		}
	}
	ct.Assignments, ct.Failures = left, nil
}

// assign puts an assignment on a cluster type, in place of one of that name.
func (w *world) assign(clusterType, name, text string) {
	w.remove(clusterType, name)
	ct := w.clusterType(clusterType)
	ct.Assignments = append(ct.Assignments, assignment(clusterType, name, text))
}

func (w *world) clusterType(name string) *scheduler.ClusterTypeResult {
	for i := range w.result.ClusterTypes {
		if w.result.ClusterTypes[i].Name == name {
			return &w.result.ClusterTypes[i]
		}
	}
	w.t.Fatalf("no cluster type %s", name)
	return nil
}

// content returns what the newest release of a cluster type lists, by name, and its files, by path.
func (w *world) content(clusterType, tag string) (map[string]bundle.Assignment, map[string]string) {
	w.t.Helper()
	v := w.verified(clusterType, tag)
	tree, err := published.OpenTree(w.t.Context(), w.repository("bundles/dev/"+clusterType), v.Tree, v.Release.Content)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, tree.Close()) }()
	list, files := map[string]bundle.Assignment{}, map[string]string{}
	for _, a := range tree.Assignments {
		list[a.Name] = a
	}
	for _, a := range tree.Assignments {
		own, err := tree.Files(a)
		require.NoError(w.t, err)
		for _, f := range own {
			files[a.Name+"/"+f.Path] = string(f.Data)
		}
	}
	return list, files
}

func TestAFailedAssignmentIsHeldAndTheRestIsPublished(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		before, _ := w.content("drone", "latest")

		w.now, w.result.BaseCommit = w.now.Add(time.Hour), "decaf"
		w.assign("drone", "web-live", "v2")
		w.fail("drone", "db-live")
		outcomes, second := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		from := &bundle.Held{Sequence: row(t, first, "drone").Sequence, BaseCommit: "c0ffee", Reason: "TemplateFailed"}
		require.Equal(t, []FailedAssignment{{Name: "db-live", Error: broken, Reason: scheduler.TemplateFailed, HeldFrom: from}}, row(t, second, "drone").Failures)
		require.Equal(t, 2, row(t, second, "drone").Assignments)
		list, files := w.content("drone", "latest")
		held := list["db-live"]
		require.Equal(t, from, held.HeldFrom)
		held.HeldFrom = nil
		require.Equal(t, before["db-live"], held, "all else about it is as it was")
		require.Equal(t, map[string]string{
			"db-live/platform-config.yaml": "text: v1\n", "db-live/reconciler.yaml": "kind: ConfigMap\n",
			"web-live/platform-config.yaml": "text: v2\n", "web-live/reconciler.yaml": "kind: ConfigMap\n",
		}, files)
		require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete)
		require.Equal(t, "decaf", w.environmentRecord().BaseCommit)
		require.NoError(t, w.complete())

		// Lists show it.
		listed, err := catalog.List(t.Context(), w.loc, "dev", w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, 1, listed[0].Held)
		require.Zero(t, listed[1].Held)

		// The same failure again is nothing new, whenever and with whatever message it fails.
		w.now, w.result.BaseCommit = w.now.Add(time.Hour), "cafe"
		w.clusterType("drone").Failures[0].Err = errors.New("templates/db.yaml:8: no such key")
		outcomes, _ = w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete)

		// While others change it stays held from where it was rendered.
		w.assign("drone", "web-live", "v3")
		w.fail("drone", "db-live")
		w.mustPublish()
		list, files = w.content("drone", "latest")
		require.Equal(t, from, list["db-live"].HeldFrom)
		require.Equal(t, "text: v3\n", files["web-live/platform-config.yaml"])

		// Held assignments get the platform's present permissions.
		w.result.Accounts = map[string]string{list["db-live"].Workspace: "confined"}
		w.mustPublish()
		list, _ = w.content("drone", "latest")
		require.Equal(t, list["db-live"].Namespace+"/confined", list["db-live"].ServiceAccount)
		require.Equal(t, from, list["db-live"].HeldFrom)
		w.result.Accounts = nil

		w.assign("drone", "db-live", "v2")
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		list, files = w.content("drone", "latest")
		require.Nil(t, list["db-live"].HeldFrom)
		require.Equal(t, "text: v2\n", files["db-live/platform-config.yaml"])
		require.Empty(t, w.environmentRecord().Incomplete)
	})
}

// waiting lets workloads wait, as decided from the record that there is now.
func (w *world) waiting(all map[ledger.Key]string) {
	_, record := w.resolved("environments/dev")
	w.opts.Admission = &Admission{
		Record: record, From: func(ledger.Key, ledger.Revision) (ledger.From, string) { return ledger.From{}, "" },
		IsKnown: true, Waiting: func(map[ledger.Key]ledger.Revision) map[ledger.Key]string { return all },
	}
}

func TestAWorkloadThatWaitsForAProofKeepsItsFilesAndFailsNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, first := w.mustPublish()
		from := &bundle.Held{Sequence: row(t, first, "drone").Sequence, BaseCommit: "c0ffee", Reason: string(AwaitingProof)}
		waits := "db waits for stage: soak 3h left"

		w.now, w.result.BaseCommit = w.now.Add(time.Hour), "decaf"
		w.assign("drone", "web-live", "v2")
		w.assign("drone", "db-live", "v2")
		w.assign("drone", "db-test", "v2") // another target of the workload, which is new
		w.waiting(map[ledger.Key]string{{Workload: "db"}: waits})
		w.opts.Admission.IsKnown = false
		_, err := w.publish()
		require.ErrorIs(t, err, ErrUnproved)
		w.opts.Admission.IsKnown = true
		outcomes, p := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Empty(t, row(t, p, "drone").Failures)
		require.Equal(t, []FailedAssignment{
			{Name: "db-live", Error: waits, Reason: AwaitingProof, HeldFrom: from}, {Name: "db-test", Error: waits, Reason: AwaitingProof},
		}, row(t, p, "drone").Waiting)
		list, files := w.content("drone", "latest")
		require.Equal(t, from, list["db-live"].HeldFrom)
		require.NotContains(t, list, "db-test")
		require.Equal(t, "text: v1\n", files["db-live/platform-config.yaml"])
		require.Equal(t, "text: v2\n", files["web-live/platform-config.yaml"])
		require.Empty(t, w.environmentRecord().Incomplete)
		held, leftOut := p.FailedAssignments()
		require.Zero(t, held+leftOut)

		// What it waits for changes, and no byte with it. Its removal waits, too, and a real failure is still one.
		w.now = w.now.Add(time.Hour)
		w.waiting(map[ledger.Key]string{{Workload: "db"}: "db waits for stage: soak 2h left"})
		w.remove("drone", "db-live")
		w.fail("drone", "db-test")
		outcomes, p = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
		require.Len(t, row(t, p, "drone").Waiting, 1)
		require.Len(t, row(t, p, "drone").Failures, 1)

		// A proof lets it come.
		w.opts.Admission = nil
		w.remove("drone", "db-test")
		w.assign("drone", "db-live", "v2")
		w.mustPublish()
		list, files = w.content("drone", "latest")
		require.Nil(t, list["db-live"].HeldFrom)
		require.Equal(t, "text: v2\n", files["db-live/platform-config.yaml"])
	})
}

// A cluster type that is new has no files that a workload could keep.
func TestAWorkloadThatWaitsIsLeftOutOfANewClusterType(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		w.now = w.now.Add(time.Hour)
		w.result.ClusterTypes = append(w.result.ClusterTypes, scheduler.ClusterTypeResult{Name: "tiny"})
		w.assign("tiny", "web-live", "v1")
		w.assign("tiny", "db-live", "v2")
		w.assign("drone", "db-live", "v2")
		w.waiting(map[ledger.Key]string{{Workload: "db"}: "db waits for stage"})
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["tiny"])
		require.Equal(t, []FailedAssignment{{Name: "db-live", Error: "db waits for stage", Reason: AwaitingProof}}, row(t, p, "tiny").Waiting)
		list, _ := w.content("tiny", "latest")
		require.Len(t, list, 1)
		require.Contains(t, list, "web-live")
		_, files := w.content("drone", "latest")
		require.Equal(t, "text: v1\n", files["db-live/platform-config.yaml"])
	})
}

func TestADropLetsTheFirstPublicationGoWithoutWhatIsNotProved(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.opts.Admission = &Admission{
			From: func(ledger.Key, ledger.Revision) (ledger.From, string) { return ledger.From{}, "" },
			Waiting: func(map[ledger.Key]ledger.Revision) map[ledger.Key]string {
				return map[ledger.Key]string{{Workload: "db"}: "db waits for stage"}
			},
		}
		_, err := w.publish()
		require.ErrorIs(t, err, ErrUnproved)
		w.opts.Drop = []string{"drone/web-live"}
		_, err = w.publish()
		require.ErrorIs(t, err, ErrUnproved)
		w.opts.Drop = []string{"drone/db-live"}
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Len(t, row(t, p, "drone").Dropped, 1)
		require.Empty(t, p.Warnings)
		list, _ := w.content("drone", "latest")
		require.Len(t, list, 1)
		require.Contains(t, list, "web-live")
	})
}

func TestAnAdmissionHoldsForTheRecordThatItWasDecidedFrom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	w.waiting(nil)
	decided := w.opts.Admission
	w.now, w.result.BaseCommit = w.now.Add(time.Hour), "decaf"
	w.mustPublish() // by somebody else, meanwhile

	w.opts.Admission = decided
	w.assign("drone", "web-live", "v2")
	before, _ := w.content("drone", "latest")
	_, err := w.publish()
	require.ErrorIs(t, err, ErrDecideAgain)
	after, _ := w.content("drone", "latest")
	require.Equal(t, before, after)
}

func TestAnAdmissionIsAskedOnceMoreBeforeTheFirstPush(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	w.waiting(nil)
	asked := 0
	w.opts.Admission.Stands = func(context.Context) (bool, error) {
		asked++
		return false, nil
	}
	w.now = w.now.Add(time.Hour)
	w.mustPublish()
	require.Zero(t, asked, "nothing would be pushed")

	w.assign("drone", "web-live", "v2")
	before, _ := w.content("drone", "latest")
	_, err := w.publish()
	require.ErrorIs(t, err, ErrDecideAgain)
	require.Equal(t, 1, asked)
	after, _ := w.content("drone", "latest")
	require.Equal(t, before, after)
}

func TestOneThatWasNeverPublishedIsLeftOut(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.fail("drone", "db-live")
		w.remove("large", "web-live")
		w.fail("large", "web-live")
		for _, want := range []releases.Outcome{releases.OutcomePublished, releases.OutcomeUnchanged} {
			outcomes, p := w.mustPublish()
			require.Equal(t, map[string]releases.Outcome{"drone": want, "large": want, "small": want, "record": want}, outcomes)
			require.Equal(t, []FailedAssignment{{Name: "db-live", Error: broken, Reason: scheduler.TemplateFailed}}, row(t, p, "drone").Failures)
			held, leftOut := p.FailedAssignments()
			require.Equal(t, []int{0, 2}, []int{held, leftOut})
		}
		list, _ := w.content("drone", "latest")
		require.Len(t, list, 1)
		require.Contains(t, list, "web-live")
		require.Equal(t, []string{"drone", "large"}, w.environmentRecord().Incomplete)
	})
}

func TestNothingIsPublishedOverAReleaseThatIsLost(t *testing.T) {
	for name, damage := range map[string]struct {
		want  string
		files func(w *world, last *bundle.Verified) []string // to remove
		write string                                         // instead of removing
	}{
		"its tree is gone":         {"release 2 (", treeOf, ""},
		"its tree is another":      {"BadContent: layer", treeOf, "a"},
		"its manifest is gone":     {"the last release, sha256:", func(w *world, last *bundle.Verified) []string { return []string{w.blob(last.Descriptor.Digest)} }, ""},
		"its signature is gone":    {"the last release, sha256:", signatureOf, ""},
		"so is that of the record": {"no record of the environment says what the last one is", recordAndSignatureOf, ""},
	} {
		for _, kind := range []string{"layout", "embedded"} {
			t.Run(name+" from "+kind, func(t *testing.T) {
				t.Parallel()
				publishOverDamage(t, newWorld(t, kind), damage.want, damage.files, damage.write)
			})
		}
	}
}

func publishOverDamage(t *testing.T, w *world, want string, files func(*world, *bundle.Verified) []string, write string) {
	w.mustPublish() // an older release, which must not be taken for the last
	w.assign("drone", "db-live", "v2")
	w.now = w.now.Add(time.Hour)
	_, second := w.mustPublish()
	for _, file := range files(w, w.verified("drone", "latest")) {
		if require.FileExists(t, file); write != "" {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, append(data[:len(data)-1], write...), 0o600))
		} else {
			require.NoError(t, os.Remove(file))
		}
	}
	w.fail("drone", "db-live")
	w.assign("large", "web-live", "v2")
	outcomes, third := w.mustPublish()
	require.Equal(t, releases.OutcomeFailed, outcomes["drone"])
	require.Equal(t, releases.OutcomePublished, outcomes["large"])
	got := row(t, third, "drone")
	require.Contains(t, got.Reason, "1 of 2 assignments failed, and what they had is not known: ")
	require.Contains(t, got.Reason, want)
	require.Equal(t, []FailedAssignment{{Name: "db-live", Error: broken, Reason: scheduler.TemplateFailed}}, got.Failures)
	desc, err := w.repository("bundles/dev/drone").Resolve(t.Context(), "latest")
	if err == nil {
		require.Equal(t, row(t, second, "drone").Digest, desc.Digest, "its tags stay")
	}
	require.Contains(t, w.environmentRecord().Incomplete, "drone")

	w.opts.Drop = []string{"drone/db-live"} // the way out
	outcomes, _ = w.mustPublish()
	require.Equal(t, releases.OutcomePublished, outcomes["drone"])
}

// blob is the file that holds a blob.
func (w *world) blob(d digest.Digest) string {
	if w.loc.Host != "" {
		return filepath.Join(w.dir, "docker/registry/v2/blobs/sha256", d.Encoded()[:2], d.Encoded(), "data")
	}
	return filepath.Join(w.dir, "blobs", "sha256", d.Encoded())
}

func treeOf(w *world, last *bundle.Verified) []string { return []string{w.blob(last.Tree.Digest)} }

func signatureOf(w *world, last *bundle.Verified) []string {
	desc, err := w.repository("bundles/dev/drone").Resolve(w.t.Context(), bundle.SignatureTag(last.Descriptor.Digest))
	require.NoError(w.t, err)
	return []string{w.blob(desc.Digest)}
}

func recordAndSignatureOf(w *world, last *bundle.Verified) []string {
	files, repo := signatureOf(w, last), w.repository("environments/dev")
	tags, err := repo.Tags(w.t.Context())
	require.NoError(w.t, err)
	for _, tag := range tags {
		if strings.HasSuffix(tag, ".sig") {
			desc, err := repo.Resolve(w.t.Context(), tag)
			require.NoError(w.t, err)
			files = append(files, w.blob(desc.Digest))
		}
	}
	return files
}

func TestARegistryThatBreaksWhileTheLastReleaseIsFetchedStopsAll(t *testing.T) {
	w := newWorld(t, "registry")
	w.mustPublish()
	tree := w.verified("drone", "latest").Tree.Digest
	w.fail("drone", "db-live")
	w.assign("large", "web-live", "v2")
	before := w.writes.Load()
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		broken := strings.HasSuffix(r.URL.Path, tree.String())
		if broken {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		return broken
	}
	_, err := w.publish()
	require.ErrorIs(t, err, oci.ErrUnreachable)
	require.Equal(t, before, w.writes.Load())
}

func TestDrop(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		w.fail("drone", "db-live")
		before := w.state()
		for _, drop := range []string{"drone/db-life", "drone/web", "dron/db-live", "large/db-live", "nowhere/x"} {
			w.opts.Drop = []string{"drone/db-live", drop}
			_, err := w.publish()
			var bad *usage.Error
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, "there is no assignment "+drop+" to drop")
		}
		for _, drop := range []string{"", "drone", "drone/", "/db-live", "a/b/c"} {
			w.opts.Drop = []string{drop}
			_, err := w.publish()
			require.ErrorContains(t, err, "is not an assignment: write TYPE/TARGET")
		}
		require.Equal(t, before["writes"], w.state()["writes"])

		w.opts.Drop = []string{"drone/db-live", "drone/web-live"}
		outcomes, p := w.mustPublish()
		require.Equal(t, releases.OutcomePublished, outcomes["drone"])
		require.Equal(t, []FailedAssignment{{Name: "db-live", Error: broken, Reason: scheduler.TemplateFailed}}, row(t, p, "drone").Dropped)
		require.Empty(t, row(t, p, "drone").Failures)
		require.Contains(t, p.Warnings, "drone/web-live did not fail, so it is not dropped")
		list, _ := w.content("drone", "latest")
		require.Len(t, list, 1)
		require.Contains(t, list, "web-live")
		require.Equal(t, []string{"drone"}, w.environmentRecord().Incomplete, "the commit still asks for it")

		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"], "the same command again")
		w.opts.Drop = nil
		outcomes, p = w.mustPublish()
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
		require.Nil(t, row(t, p, "drone").Failures[0].HeldFrom, "it stays given up")
	})
}

func TestStrictPublishesNothingWhenAnAssignmentFails(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		before := w.state()
		w.opts.Strict = true
		w.assign("large", "web-live", "v2")
		w.fail("drone", "db-live")
		outcomes, _ := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeSkipped, "large": releases.OutcomeSkipped, "small": releases.OutcomeSkipped, "record": releases.OutcomeSkipped}, outcomes)
		require.Equal(t, before, w.state())

		w.clusterType("drone").Failures = nil
		w.opts.Unread = []platform.Unread{{Registration: "web", Err: errors.New("gone")}}
		outcomes, _ = w.mustPublish()
		require.Equal(t, releases.OutcomeSkipped, outcomes["large"])
		require.Equal(t, before, w.state())
	})
}

func TestAllOfARegistrationIsHeldWhileItsSourceCannotBeRead(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		of := func(clusterType, name, registration string) {
			w.assign(clusterType, name, "v1")
			list := w.clusterType(clusterType).Assignments
			list[len(list)-1].Registration = registration
		}
		of("drone", "db-live", "db")
		of("drone", "web-live", "web")
		of("drone", "web-beta", "web")
		of("large", "web-live", "web")
		of("large", "old-live", "db")
		_, first := w.mustPublish()

		w.opts.Unread = []platform.Unread{{Registration: "web", Err: errors.New("web.yaml:3: gone")}}
		for _, a := range [][2]string{{"drone", "web-live"}, {"drone", "web-beta"}, {"large", "web-live"}, {"large", "old-live"}} {
			w.remove(a[0], a[1])
		}
		of("drone", "db-live", "db")
		of("drone", "web-live", "thief") // another team takes the name meanwhile
		outcomes, p := w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePublished, "large": releases.OutcomePublished, "small": releases.OutcomeUnchanged, "record": releases.OutcomePublished}, outcomes)
		require.Equal(t, []platform.UnreadRegistration{{Registration: "web", Error: "web.yaml:3: gone"}}, p.Unread)
		from := &bundle.Held{Sequence: row(t, first, "drone").Sequence, BaseCommit: "c0ffee", Reason: "SourceUnreadable"}
		const text = "the source of registration web cannot be read"
		require.Equal(t, []FailedAssignment{{Name: "web-beta", Error: text, Reason: SourceUnreadable, HeldFrom: from}, {Name: "web-live", Error: text, Reason: SourceUnreadable, HeldFrom: from}}, row(t, p, "drone").Failures)
		list, _ := w.content("drone", "latest")
		require.Len(t, list, 3)
		require.Equal(t, "web", list["web-live"].Registration)
		require.Nil(t, list["db-live"].HeldFrom)
		list, _ = w.content("large", "latest")
		require.Len(t, list, 1, "what another registration has removed is removed: %v", list)
		require.Contains(t, list, "web-live")
		require.Equal(t, []string{"drone", "large", "small"}, w.environmentRecord().Incomplete, "it may have more for any of them")

		w.opts.Unread[0].Err = errors.New("web.yaml:3: still gone, in another way")
		outcomes, _ = w.mustPublish()
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, outcomes)

		w.opts.Drop = []string{"drone/web-beta"}
		_, p = w.mustPublish()
		require.Equal(t, "web-beta", row(t, p, "drone").Dropped[0].Name)
		list, _ = w.content("drone", "latest")
		require.Len(t, list, 2)

		// A cluster type that leaves does so with all it has.
		w.opts.Drop, w.opts.AllowEmpty = nil, true
		w.result.ClusterTypes = w.result.ClusterTypes[:1]
		w.mustPublish()
		list, _ = w.content("large", "latest")
		require.Empty(t, list)
	})
}

func TestWhatOneRingTriesIsNotHeldForTheOthers(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.result.Rings = []string{"canary", "broad"}
		_, all := w.mustPublish()
		w.assign("drone", "db-live", "v2")
		_, canary := w.mustPublish()

		w.assign("drone", "web-live", "v2")
		w.fail("drone", "db-live")
		_, p := w.mustPublish()
		require.Equal(t, row(t, canary, "drone").Sequence, row(t, p, "drone").Failures[0].HeldFrom.Sequence)
		_, files := w.content("drone", "ring-canary")
		require.Equal(t, "text: v2\n", files["db-live/platform-config.yaml"])

		w.opts.Rings = []string{"broad"}
		_, p = w.mustPublish()
		require.Equal(t, row(t, all, "drone").Sequence, row(t, p, "drone").Failures[0].HeldFrom.Sequence)
		_, files = w.content("drone", "latest")
		require.Equal(t, "text: v1\n", files["db-live/platform-config.yaml"])
		require.Equal(t, "text: v2\n", files["web-live/platform-config.yaml"])
	})
}

func TestWhatAHeldAssignmentNeedsStaysListed(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		needs := func(name, image string) {
			w.assign("drone", name, "v1")
			list := w.clusterType("drone").Assignments
			list[len(list)-1].Files[2].Data = []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{image: nginx}, {image: '" + image + "@" + anyDigest + "'}]}\n")
		}
		needs("db-live", "db")
		needs("web-live", "web")
		w.mustPublish()
		before := w.verified("drone", "latest").Release.Artifacts
		require.Equal(t, 3, before.Count)

		w.fail("drone", "db-live")
		w.mustPublish()
		require.Equal(t, before, w.verified("drone", "latest").Release.Artifacts)
		w.remove("drone", "web-live")
		w.fail("drone", "db-live")
		w.mustPublish()
		require.Equal(t, 2, w.verified("drone", "latest").Release.Artifacts.Count, "the others' go with them")
	})
}
