package publisher

import (
	"bytes"
	"errors"
	"slices"

	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/scheduler"
)

// newlyCarried returns the bytes of the artifacts that a cluster brings to its store for pl, and did not for the release
// with the earlier tree, which may be nil. Artifacts of unknown size count as nothing, those of an index for all platforms.
func newlyCarried(pl *plan, earlier *published.Tree) (total int64, err error) {
	carries := slices.ContainsFunc(pl.rendered, func(a scheduler.Assignment) bool { return a.Carry != "" }) ||
		slices.ContainsFunc(pl.held, func(h pack.Held) bool { return h.Line.Carry != "" })
	if pl.tree == nil || !carries {
		return 0, nil
	}
	tree, err := published.ReadLayer(bytes.NewReader(pl.tree.Gzip), pl.tree.Content)
	if err != nil {
		return 0, err
	}
	had := map[string]int64{}
	if earlier != nil {
		had = carriedSizes(earlier)
	}
	for digest, size := range carriedSizes(tree) {
		if _, known := had[digest]; !known {
			total += size
		}
	}
	return total, errors.Join(err, tree.Close())
}

// carriedSizes returns the sizes of what the assignments of a tree have carried, by digest.
func carriedSizes(t *published.Tree) map[string]int64 {
	sizes := map[string]int64{}
	for _, a := range t.Assignments {
		if a.Carry == "" {
			continue
		}
		for _, artifact := range t.ArtifactsOf(a.Name) {
			if a.Carries(artifact) {
				sizes[artifact.Digest] = artifact.Size
			}
		}
	}
	return sizes
}
