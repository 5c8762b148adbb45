package publisher

import (
	"encoding/json"
	"fmt"
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
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/garbage"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// ringsOfTest are narrowest first, and not in the order of their names.
var ringsOfTest = []string{"canary", "early", "broad"}

// newRingWorld is a world whose platform names rings.
func newRingWorld(t testing.TB, kind string) *world {
	w := newWorld(t, kind)
	w.result.Rings = ringsOfTest
	return w
}

// to publishes to a ring, to the first where it is empty.
func (w *world) to(ring string) (outcome map[string]releases.Outcome, p *Published) {
	w.t.Helper()
	w.opts.Rings = nil
	if ring != "" {
		w.opts.Rings = []string{ring}
	}
	w.now = w.now.Add(time.Minute)
	return w.mustPublish()
}

// says has drone's web-live say text from now on.
func (w *world) says(text string) {
	next := *w.result
	next.ClusterTypes = slices.Clone(next.ClusterTypes)
	next.ClusterTypes[0].Assignments = []scheduler.Assignment{assignment("drone", "web-live", text), assignment("drone", "db-live", "v1")}
	w.result = &next
}

// texts returns what drone's first assignment says, by moving tag.
func (w *world) texts() map[string]string {
	w.t.Helper()
	repo := w.repository("bundles/dev/drone")
	named, err := published.ReadTags(w.t.Context(), repo)
	require.NoError(w.t, err)
	texts := map[string]string{}
	for tag := range named.Moving {
		v := w.verified("drone", tag)
		tree, err := published.OpenTree(w.t.Context(), repo, v.Tree, v.Release.Content)
		require.NoError(w.t, err)
		data, err := tree.ReadFile("web-live/platform-config.yaml")
		require.NoError(w.t, err)
		texts[tag] = string(data)
		require.NoError(w.t, tree.Close())
	}
	return texts
}

// running are the texts that texts returns where rings have these versions.
func running(canary, early, broad, latest string) map[string]string {
	texts := map[string]string{}
	for tag, v := range map[string]string{"ring-canary": canary, "ring-early": early, "ring-broad": broad, "latest": latest} {
		texts[tag] = "text: " + v + "\n"
	}
	return texts
}

// place is the order of the release that a moving tag of drone names.
func (w *world) place(tag string) bundle.Order { return published.OrderOf(w.verified("drone", tag)) }

func inBothWithRings(t *testing.T, test func(*testing.T, *world)) {
	inBoth(t, func(t *testing.T, w *world) {
		w.result.Rings = ringsOfTest
		test(t, w)
	})
}

func TestACanaryLastsUntilItIsPublishedToTheNextRing(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		_, p := w.to("")
		require.Equal(t, running("v1", "v1", "v1", "v1"), w.texts(), "the first publication gives every ring its tag")
		require.Empty(t, w.verified("drone", "latest").Release.Rings)
		require.Equal(t, 1, len(row(t, p, "drone").Releases))

		w.says("v2")
		w.to("")
		require.Equal(t, running("v2", "v1", "v1", "v1"), w.texts())
		require.Equal(t, []string{"canary"}, w.verified("drone", "ring-canary").Release.Rings)
		outcomes, _ := w.to("")
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])

		w.says("v3")
		w.to("")
		require.Equal(t, running("v3", "v1", "v1", "v1"), w.texts(), "a canary does not end at the next plain publish")

		w.to("early")
		require.Equal(t, running("v3", "v3", "v1", "v1"), w.texts())
		require.Equal(t, []string{"canary", "early"}, w.verified("drone", "ring-early").Release.Rings)
		w.says("v4")
		w.to("canary")
		require.Equal(t, running("v4", "v3", "v1", "v1"), w.texts())
		w.to("broad")
		require.Equal(t, running("v4", "v4", "v4", "v4"), w.texts())
		require.Empty(t, w.verified("drone", "ring-broad").Release.Rings, "what reaches the last ring names none")
		require.NoError(t, w.complete())
	})
}

func TestRingsPublishedInTurnDoNotRepublishEachOther(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.to("")
		w.says("v2")
		w.to("canary")
		w.to("early")
		for range 2 {
			for _, ring := range []string{"canary", "early", ""} {
				before := w.texts()
				places := []bundle.Order{w.place("ring-canary"), w.place("ring-early"), w.place("latest")}
				outcomes, p := w.to(ring)
				require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"], ring)
				require.Equal(t, releases.OutcomeUnchanged, outcomes["record"], "%s: %+v", ring, p)
				require.Equal(t, before, w.texts())
				require.Equal(t, places, []bundle.Order{w.place("ring-canary"), w.place("ring-early"), w.place("latest")})
			}
		}
	})
}

func TestTheRecordKnowsTheReleaseOfEachRing(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.to("")
		w.says("v2")
		w.to("")
		r := w.environmentRecord()
		of := func(tag string) digest.Digest { return w.verified("drone", tag).Descriptor.Digest }
		require.Equal(t, of("latest"), r.ClusterTypes["drone"])
		require.Equal(t, map[string]digest.Digest{"canary": of("ring-canary"), "early": of("latest"), "broad": of("latest")}, r.Rings["drone"])
		require.Equal(t, []string{"drone", "large", "small"}, r.Types())

		w.result.Rings = nil
		w.mustPublish()
		require.Nil(t, w.environmentRecord().Rings, "without named rings the record is as it always was")
	})
}

func TestAnUnknownRingIsRefusedWithThoseThatThereAre(t *testing.T) {
	w := newRingWorld(t, "layout")
	w.opts.Rings = []string{"canery"}
	_, err := w.publish()
	var option *usage.Error
	require.ErrorAs(t, err, &option)
	require.EqualError(t, err, `unknown ring "canery" (known: canary, early, broad)`)
}

func TestWhatFailsIsHeldFromWhatThatRingRuns(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.to("")
		w.says("v2")
		w.to("")
		fails := func() {
			ct := &w.result.ClusterTypes[0]
			ct.Assignments = slices.DeleteFunc(slices.Clone(ct.Assignments), func(a scheduler.Assignment) bool { return a.Name == "web-live" })
			ct.Failures = []scheduler.Failure{{Name: "web-live", Err: fmt.Errorf("no"), Reason: scheduler.RenderFailed}}
		}
		fails()
		w.result.ClusterTypes[0].Assignments[0].Files[1].Data = []byte("text: v3\n")
		w.to("")
		require.Equal(t, running("v2", "v1", "v1", "v1"), w.texts(), "the canary keeps its own")
		w.to("early")
		require.Equal(t, running("v1", "v1", "v1", "v1"), w.texts(), "the wider ring does not get what it never had")
		require.Equal(t, []string{"canary", "early"}, w.verified("drone", "ring-early").Release.Rings)
		require.Empty(t, w.verified("drone", "latest").Release.Rings)
	})
}

func TestEachRingIsRenewedInItsOwnRight(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.opts.ValidFor = 90 * 24 * time.Hour
		w.to("")
		w.now = w.now.Add(50 * 24 * time.Hour)
		w.says("v2")
		w.to("")
		canary, wide := w.verified("drone", "ring-canary"), w.verified("drone", "latest")
		w.now = w.now.Add(15 * 24 * time.Hour)
		_, p := w.to("")
		require.Equal(t, running("v2", "v1", "v1", "v1"), w.texts(), "nothing is gained or lost")
		renewed := w.verified("drone", "latest")
		numbers := []int64{wide.Release.Number, canary.Release.Number, renewed.Release.Number, w.verified("drone", "ring-canary").Release.Number}
		require.Equal(t, []int64{1, 2, 3, 4}, numbers, "each release has its own number")
		require.Equal(t, int64(3), row(t, p, "drone").releaseOf("").Number)
		require.Equal(t, wide.Release.Content, renewed.Release.Content)
		require.Empty(t, renewed.Release.Rings)
		require.Equal(t, wide.Release.BaseCommit, renewed.Release.BaseCommit)
		require.True(t, renewed.Release.ExpiresAt.After(wide.Release.ExpiresAt))
		require.Equal(t, wide.Tree, renewed.Tree)
		above := w.verified("drone", "ring-canary")
		require.Equal(t, []string{"canary"}, above.Release.Rings)
		require.Equal(t, canary.Release.Content, above.Release.Content)
		require.Positive(t, published.OrderOf(above).Compare(published.OrderOf(renewed)), "a canary never accepts what is renewed for all in place of its own")
		require.Regexp(t, "it expires at", row(t, p, "drone").releaseOf("").Renewed)
		outcomes, _ := w.to("")
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, outcomes)

		w.now = w.now.Add(70 * 24 * time.Hour)
		w.says("v3")
		w.to("")
		require.Equal(t, running("v3", "v1", "v1", "v1"), w.texts(), "new content of one ring and the renewal of another go together")
		require.Positive(t, w.place("ring-canary").Compare(w.place("latest")))
	})
}

func TestARingThatIsNewBeginsWithWhatTheNextWiderOneHas(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.result.Rings = []string{"early", "broad"}
		w.to("")
		w.says("v2")
		w.to("")
		w.result.Rings = ringsOfTest
		w.to("broad")
		w.says("v3")
		w.to("early")
		w.result.Rings = []string{"canary", "sooner", "early", "broad"}
		_, p := w.to("")
		texts := w.texts()
		require.Equal(t, "text: v3\n", texts["ring-sooner"])
		require.Equal(t, "text: v2\n", texts["latest"])
		require.Equal(t, []string{"sooner"}, w.verified("drone", "ring-sooner").Release.Rings)
		require.Equal(t, "ring sooner is new", row(t, p, "drone").releaseOf("sooner").Renewed)
		outcomes, _ := w.to("")
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
	})
}

func TestAFleetThatRunsAlreadyGetsRings(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.result.Rings = nil
		w.mustPublish()
		w.says("v2")
		w.result.Rings = ringsOfTest
		w.to("")
		require.Equal(t, running("v2", "v1", "v1", "v1"), w.texts())
	})
}

func TestAClusterTypeLeavesRingByRing(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.to("")
		gone := w.result.ClusterTypes[1:]
		w.result.ClusterTypes = gone
		w.opts.AllowEmpty = true
		w.to("")
		require.Zero(t, w.verified("drone", "ring-canary").Release.Content.Files-1)
		require.Greater(t, w.verified("drone", "latest").Release.Content.Files, 1)
		require.Contains(t, w.environmentRecord().ClusterTypes, "drone", "it is renewed as long as rings run it")
		w.to("")
		require.Contains(t, w.environmentRecord().ClusterTypes, "drone")
		w.to("broad")
		require.Equal(t, 1, w.verified("drone", "latest").Release.Content.Files)
		require.NotContains(t, w.environmentRecord().ClusterTypes, "drone")
		_, p := w.to("broad")
		require.Len(t, p.ClusterTypes, 2)
	})
}

// A registry that has lost all but the record does not make a publication to the first ring one for all.
func TestALostRegistryDoesNotEndACanary(t *testing.T) {
	w := newRingWorld(t, "layout")
	w.to("")
	w.says("v2")
	index := filepath.Join(w.dir, "index.json")
	data, err := os.ReadFile(index)
	require.NoError(t, err)
	var all ocispec.Index
	require.NoError(t, json.Unmarshal(data, &all))
	all.Manifests = slices.DeleteFunc(all.Manifests, func(d ocispec.Descriptor) bool {
		return strings.HasPrefix(d.Annotations[ocispec.AnnotationRefName], "bundles/dev/drone/")
	})
	data, err = json.Marshal(all)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(index, data, 0o600))
	was := w.environmentRecord().ClusterTypes["drone"]
	w.to("")
	require.Equal(t, map[string]string{"ring-canary": "text: v2\n"}, w.texts())
	require.Equal(t, was, w.environmentRecord().ClusterTypes["drone"], "what is lost is not forgotten")
}

func TestSignersReleaseWhatEachRingIsToHave(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		q := newQuorum(w, 2)
		texts := func() map[string]string {
			q.key = q.anna
			return q.texts()
		}
		publishTo := func(ring string) {
			q.opts.Rings = nil
			if ring != "" {
				q.opts.Rings = []string{ring}
			}
			q.now = q.now.Add(time.Minute)
			_, err := q.publish(q.anna)
			require.NoError(t, err)
		}
		publishTo("")
		require.True(t, q.sign(q.bob).Complete())
		require.Equal(t, running("v1", "v1", "v1", "v1"), texts())

		w.says("v2")
		publishTo("")
		require.Equal(t, running("v1", "v1", "v1", "v1"), texts())
		e := q.sign(q.bob)
		require.True(t, e.Complete())
		require.Equal(t, running("v2", "v1", "v1", "v1"), texts())

		// The release for all expires: it and the canary's wait, and are signed together.
		q.now = q.now.Add(80 * 24 * time.Hour)
		publishTo("")
		e, err := q.open()
		require.NoError(t, err)
		var waiting []string
		for _, c := range e.ClusterTypes {
			if c.ClusterType == "drone" {
				waiting = append(waiting, fmt.Sprint(c.Rings, len(c.Changed)))
			}
		}
		require.Equal(t, []string{"[canary] 0", "[] 0"}, waiting, "the newest first")
		require.True(t, q.sign(q.bob).Complete())
		require.Equal(t, running("v2", "v1", "v1", "v1"), texts())
		require.Positive(t, published.OrderOf(q.tagged("drone", "ring-canary")).Compare(published.OrderOf(q.tagged("drone", "latest"))))

		// A promotion that waits is not taken back by a publication to the first ring.
		publishTo("broad")
		publishTo("")
		require.True(t, q.sign(q.bob).Complete())
		got := texts()
		require.Equal(t, "text: v2\n", got["latest"])
		require.Equal(t, "text: v2\n", got["ring-canary"])
		publishTo("")
		require.Equal(t, everywhere(releases.OutcomeUnchanged), q.outcomes(q.carol))
	})
}

func TestAPlanSaysWhatEachRingGets(t *testing.T) { // it changes the folder, so that it runs alone
	w, c := newWorld(t, "layout"), newCoffee(t)
	state := func() platform.Built {
		p := c.planned()
		p.Result.Rings = ringsOfTest
		w.result = p.Result
		return p
	}
	differenceTo := func(ring string) *diff.TypeDifference {
		p := state()
		if w.opts.Rings = nil; ring != "" {
			w.opts.Rings = []string{ring}
		}
		d, err := w.compare(p)
		require.NoError(t, err)
		at := slices.IndexFunc(d.ClusterTypes, func(ct diff.TypeDifference) bool { return ct.ClusterType == "shop" })
		return &d.ClusterTypes[at]
	}
	results := func(d *diff.TypeDifference) (all []string) {
		for _, r := range d.ByRing {
			all = append(all, fmt.Sprintf("%v %t %s %d", r.Rings, r.Latest, r.Result, r.Changed))
		}
		return all
	}
	state()
	w.to("")
	c.edit("dev/configs/dev.yaml", "debug", "trace")
	changed := differenceTo("").Count().Changed
	require.Positive(t, changed)
	w.to("")

	d := differenceTo("")
	require.Equal(t, diff.ResultUnchanged, d.Result)
	require.False(t, (&diff.Difference{ClusterTypes: []diff.TypeDifference{*d}}).WouldChange(), "what rings keep is no change")
	require.Equal(t, []string{"[canary] false unchanged 0", fmt.Sprint("[early broad] true kept ", changed)}, results(d))
	d = differenceTo("broad")
	require.Equal(t, changed, d.Count().Changed, "the canary has it, and the others do not")
	require.True(t, (&diff.Difference{ClusterTypes: []diff.TypeDifference{*d}}).WouldChange())
	require.Equal(t, []string{"[canary] false unchanged 0", fmt.Sprint("[early broad] true changed ", changed)}, results(d))
	c.edit("dev/configs/dev.yaml", "trace", "debug")
	d = differenceTo("broad")
	require.Equal(t, changed, d.Count().Changed, "the widest ring has it, and the canary would be taken back")
	require.True(t, (&diff.Difference{ClusterTypes: []diff.TypeDifference{*d}}).WouldChange())
	require.Equal(t, []string{fmt.Sprint("[canary] false changed ", changed), "[early broad] true unchanged 0"}, results(d))
}

func TestWhatARingHasIsListedAndKept(t *testing.T) {
	t.Run("layout", func(t *testing.T) { // nothing can be deleted in this registry
		w := newRingWorld(t, "layout")
		w.to("")
		for i := range 4 {
			w.says(fmt.Sprint("v", i+2))
			w.to("")
		}
		list, err := catalog.List(t.Context(), w.loc, "dev", w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, []string{"canary"}, list[0].Rings)
		require.Equal(t, []string{"ring-canary"}, list[0].Tags)
		require.Empty(t, list[1].Rings)
		require.Equal(t, []string{"latest", "ring-broad", "ring-early"}, list[1].Tags)
		require.Len(t, list, 4)

		c, err := garbage.Collect(t.Context(), w.loc, garbage.Options{Keep: 1, OCI: w.opts.OCI, Now: func() time.Time { return w.now.Add(100 * 24 * time.Hour) }})
		require.NoError(t, err)
		require.NoError(t, c.Delete(t.Context()))
		require.Equal(t, running("v5", "v1", "v1", "v1"), w.texts())
		outcomes, _ := w.to("")
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])
	})
}

func (w *world) move(ring, above string) *Published {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	p, err := Move(w.t.Context(), w.loc, []*keys.Key{w.key}, MoveOptions{Environment: "dev", ClusterType: "drone", Ring: ring, Above: above},
		PublishOptions{OCI: w.opts.OCI, Now: func() time.Time { return w.now }})
	require.NoError(w.t, err)
	return p
}

func TestARingsReleaseIsMadeAnewForClustersThatWereMovedToIt(t *testing.T) {
	inBothWithRings(t, func(t *testing.T, w *world) {
		w.to("")
		w.says("v2")
		w.to("early")
		w.says("v3")
		w.to("")
		accepted := w.verified("drone", "ring-canary")
		require.Equal(t, releases.OutcomePublished, outcomesOf(w.move("early", ""))["drone"])
		early := w.verified("drone", "ring-early")
		require.Positive(t, published.OrderOf(early).Compare(published.OrderOf(accepted)))
		require.Equal(t, []string{"early"}, early.Release.Rings)
		require.Equal(t, accepted.Descriptor, w.verified("drone", "ring-canary").Descriptor, "it is not for the canary, so that this one stays")
		require.Equal(t, running("v3", "v2", "v1", "v1"), w.texts())
		require.Equal(t, releases.OutcomeUnchanged, outcomesOf(w.move("early", ""))["drone"])

		w.move("broad", bundle.ReleaseName(accepted.Release.Number, accepted.Descriptor.Digest))
		require.Equal(t, running("v3", "v2", "v1", "v1"), w.texts())
		require.Positive(t, w.place("ring-broad").Compare(published.OrderOf(accepted)))
		require.Equal(t, w.place("latest"), w.place("ring-broad"))
		require.Positive(t, w.place("ring-canary").Compare(w.place("latest")), "what is for all must not be above the canary's own")
		require.Positive(t, w.place("ring-early").Compare(w.place("latest")))
		require.Equal(t, releases.OutcomeUnchanged, outcomesOf(w.move("broad", fmt.Sprint(accepted.Release.Number)))["drone"])
		again := w.move("", accepted.Release.Tag())
		require.Equal(t, releases.OutcomeUnchanged, again.ClusterTypes[0].Result)
		require.Equal(t, releases.OutcomeUnchanged, again.Record.Result)
		outcomes, _ := w.to("")
		require.Equal(t, releases.OutcomeUnchanged, outcomes["drone"])

		_, err := Move(t.Context(), w.loc, []*keys.Key{w.key}, MoveOptions{Environment: "dev", ClusterType: "drone", Ring: "broader"}, w.opts)
		require.ErrorContains(t, err, `unknown ring "broader": cluster type drone has broad, canary, early`)
		_, err = Move(t.Context(), w.loc, []*keys.Key{w.key}, MoveOptions{Environment: "dev", ClusterType: "nobody", Ring: "broad"}, w.opts)
		require.ErrorContains(t, err, "cluster type nobody has no rings in environment dev: those that have are drone, large, small")
	})
}
