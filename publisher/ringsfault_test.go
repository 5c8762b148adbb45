package publisher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// newWiredRingWorld is an environment of one cluster type with rings, in which the canary is ahead and the release of all
// others is about to be renewed: the next publication makes three releases' worth of decisions.
func newWiredRingWorld(t *testing.T) (*world, *wire) {
	w, line := newWiredWorld(t)
	w.publishesToRings("v1")
	w.to("")
	w.now = w.now.Add(70 * 24 * time.Hour)
	w.publishesToRings("v2")
	w.to("") // the canary is new, and the others are renewed
	w.now = w.now.Add(70 * 24 * time.Hour)
	return w, line
}

func (w *world) publishesToRings(text string) {
	w.publishes(text)
	w.result.Rings = ringsOfTest
}

// ringFollowers are an agent of the canary and one without a ring: neither ever goes back.
type ringFollowers struct {
	*world
	highest map[string]bundle.Order
}

func (f *ringFollowers) poll(at string) {
	repo := f.repository("bundles/dev/drone")
	for _, ring := range []string{"canary", ""} {
		desc, err := repo.Resolve(f.t.Context(), bundle.MovingTag(ring))
		require.NoError(f.t, err, at)
		v, err := bundle.Verify(f.t.Context(), repo, desc, trustIn(f.key))
		require.NoError(f.t, err, at)
		_, err = bundle.ReadBlob(f.t.Context(), repo, v.Tree, 1<<20)
		require.NoError(f.t, err, at)
		expect := bundle.Expect{Stream: v.Release.Stream(), Ring: ring, Highest: f.highest[ring], Now: f.now.Add(-60 * 24 * time.Hour)}
		require.NoError(f.t, expect.Check(v.Release, v.Descriptor.Digest), "%s: ring %q", at, ring)
		f.highest[ring] = published.OrderOf(v)
	}
}

// Each other request of a publication that renews what all others have, and brings the canary something new, is the
// last one of its publisher. No ring goes back or gets a release of another ring, and the next publication completes it.
func TestAPublicationToRingsWhoseAnyRequestFailsEndsWithEachRingsOwn(t *testing.T) {
	t.Parallel()
	for n, f := range faults[:2] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for k, met := 1+n, true; met; k += 4 {
				at := fmt.Sprint("request ", k)
				w, line := newWiredRingWorld(t)
				agents := &ringFollowers{&world{t: t, key: w.key, now: w.now}, map[string]bundle.Order{}}
				agents.onWire(line.handler)
				agents.poll(at)
				w.publishesToRings("v3")
				met, _, _ = publishWith(w, line, f, k)
				agents.poll(at)
				require.Contains(t, []map[string]string{running("v2", "v1", "v1", "v1"), running("v3", "v1", "v1", "v1")}, w.texts(), at)
				w.now = w.now.Add(time.Minute)
				w.mustPublish()
				agents.poll(at)
				require.Equal(t, running("v3", "v1", "v1", "v1"), w.texts(), at)
				require.Positive(t, w.place("ring-canary").Compare(w.place("latest")), at)
				r := w.environmentRecord()
				require.Equal(t, w.verified("drone", "latest").Descriptor.Digest, r.ClusterTypes["drone"], at)
				require.Equal(t, w.verified("drone", "ring-canary").Descriptor.Digest, r.Rings["drone"]["canary"], at)
				require.Less(t, k, 200)
			}
		})
	}
}

// Two publishers at once, one to the canary and one to all, each stop at some of their requests. All ends on what one of
// them wanted for all rings, or with the canary's own above it.
func TestTwoPublishersToRingsInterleavedEndWithEachRingsOwn(t *testing.T) {
	t.Parallel()
	for i, aEnded := 1, false; !aEnded; i += 5 {
		for j, bEnded := 1+i%3, false; !bEnded; j += 7 {
			at := fmt.Sprintf("A before request %d, B before %d", i, j)
			w, line := newWiredRingWorld(t)
			agents := &ringFollowers{&world{t: t, key: w.key, now: w.now}, map[string]bundle.Order{}}
			agents.onWire(line.handler)
			agents.poll(at)
			w.publishesToRings("v3")
			b, bLine := w.beside(line.handler, "v4")
			b.result.Rings, b.opts.Rings = ringsOfTest, []string{"broad"}
			turnA, aStopped := start(w, line, i)
			turnB, bStopped := start(b, bLine, j)
			require.NoError(t, turnA.end(true), at)
			agents.poll(at)
			require.NoError(t, turnB.end(true), at)
			agents.poll(at)
			require.Contains(t, []map[string]string{running("v3", "v4", "v4", "v4"), running("v4", "v4", "v4", "v4")}, w.texts(), at)
			b.mustPublish()
			require.Equal(t, running("v4", "v4", "v4", "v4"), w.texts(), at)
			aEnded, bEnded = !aStopped, !bStopped
		}
	}
}
