package lineage_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
)

// world has an environment of one cluster type, "drone", with the rings canary and stable.
type world struct {
	releases map[digest.Digest]*bundle.Release
	env      *lineage.Environment
}

func newWorld() *world {
	w := &world{releases: map[digest.Digest]*bundle.Release{}}
	w.env = lineage.New(bundle.Stream{Platform: "coffee", Environment: "prod"}, func(d digest.Digest) *bundle.Release { return w.releases[d] })
	return w
}

// release adds a release of a name, made from a commit, with some content.
func (w *world) release(name, commit, content string, sequence int64) digest.Digest {
	r := &bundle.Release{
		Platform: "coffee", Environment: "prod", ClusterType: "drone", Sequence: sequence, BaseCommit: commit,
		IssuedAt: time.Unix(sequence, 0).UTC(),
	}
	r.Content.DiffID = digest.FromString(content)
	d := digest.FromString(name)
	w.releases[d] = r
	return d
}

func (w *world) record(commit string, canary, stable digest.Digest, incomplete ...string) {
	w.env.Add(&bundle.EnvironmentRecord{
		Platform: "coffee", Environment: "prod", BaseCommit: commit, Incomplete: incomplete,
		ClusterTypes: map[string]digest.Digest{"drone": stable},
		Rings:        map[string]map[string]digest.Digest{"drone": {"canary": canary, "stable": stable}},
	})
}

func (w *world) find(commit string) *lineage.Commit {
	c, _ := w.env.Find(func(other string) bool { return other == commit })
	return c
}

func TestAReleaseHasACommit(t *testing.T) {
	w := newWorld()
	one := w.release("1", "a", "x", 1)
	w.record("a", one, one)
	two := w.release("2", "b", "y", 2)
	w.record("b", two, one) // stable keeps what it has
	w.record("c", two, one) // c changes nothing for drones
	three := w.release("3", "d", "z", 4)
	w.record("d", three, one, "drone") // held
	back := w.release("4", "a", "x", 5)
	w.record("a", back, back)

	has := func(commit string) (all []string) {
		for name, d := range map[string]digest.Digest{"1": one, "2": two, "3": three, "4": back} {
			if w.find(commit).Has("drone", d) {
				all = append(all, name)
			}
		}
		return all
	}
	require.ElementsMatch(t, []string{"1", "2", "4"}, has("a"), "what came later has it, what is not complete does not")
	require.ElementsMatch(t, []string{"2"}, has("b"), "neither the ring that waits nor the return")
	require.ElementsMatch(t, []string{"2"}, has("c"), "by its content")
	require.Empty(t, has("d"), "it is not complete")
	require.Nil(t, w.find("e"))
	require.False(t, w.find("a").Has("large", one), "a release of another type")
	require.True(t, w.find("b").IsPast())
	require.False(t, w.find("a").IsPast())
	require.Equal(t, w.env.Newest(), w.find("a").Last())
}

func TestTheReleaseOfAWiderRingIsNotTakenForOneThatIsMissing(t *testing.T) {
	w := newWorld()
	one := w.release("1", "a", "x", 1)
	w.record("a", one, one)
	w.record("b", digest.FromString("gone"), one)
	require.False(t, w.find("b").Has("drone", one))
	two := w.release("2", "c", "y", 2)
	w.record("c", two, digest.FromString("gone"))
	require.True(t, w.find("c").Has("drone", two), "it was made from the commit")
}

func TestTheVerdictOnACluster(t *testing.T) {
	w := newWorld()
	one := w.release("1", "a", "x", 1)
	w.record("a", one, one)
	two := w.release("2", "b", "y", 2)
	w.record("b", two, two)
	unpublished := digest.FromString("unpublished")
	for _, c := range []struct {
		name              string
		state             bundle.State
		observed, desired digest.Digest
		want              lineage.Verdict
	}{
		{"runs it", bundle.Compliant, two, two, lineage.Compliant},
		{"runs it, and is getting another", bundle.Compliant, two, unpublished, lineage.Compliant},
		{"runs it and drifted", bundle.Drifted, two, two, lineage.Progressing},
		{"is getting it", bundle.Progressing, one, two, lineage.Progressing},
		{"is compliant with another, and is getting it", bundle.Compliant, one, two, lineage.Progressing},
		{"failed with it", bundle.Failed, two, two, lineage.Failed},
		{"refused it", bundle.Rejected, one, two, lineage.Failed},
		{"failed with another", bundle.Failed, one, one, lineage.Waiting},
		{"runs another", bundle.Compliant, one, one, lineage.Waiting},
		{"runs what was never published", bundle.Compliant, unpublished, unpublished, lineage.Waiting},
		{"runs nothing", bundle.Pending, "", "", lineage.Waiting},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := w.find("b")
			require.Equal(t, c.want, lineage.VerdictOf(c.state, b.Has("drone", c.observed), b.Has("drone", c.desired)))
		})
	}
	require.Nil(t, w.find("c"), "it was not published")
}
