package facts

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Assignments returns a release of a cluster type that a record names, and its assignments. It is an error if the release is not there.
func (h *History) Assignments(ctx context.Context, clusterType string, d digest.Digest) (bundle.Release, []bundle.Assignment, error) {
	fail := func(err error) (bundle.Release, []bundle.Assignment, error) {
		return bundle.Release{}, nil, fmt.Errorf("assignments of cluster type %s in environment %s: %w", clusterType, h.Environment, err)
	}
	if err := h.load(ctx, []typed{{clusterType, d}}); err != nil {
		return fail(err)
	}
	h.mu.Lock()
	found := h.known[d]
	h.mu.Unlock()
	if found == nil {
		return fail(fmt.Errorf("release %s is not there: publish again", d))
	}
	tree, err := h.tree(ctx, clusterType, d)
	if err != nil {
		return fail(err)
	}
	return found.Release, tree.All, nil
}

// tree reads the assignments of a release that was loaded.
func (h *History) tree(ctx context.Context, clusterType string, d digest.Digest) (bundle.Moving, error) {
	h.mu.Lock()
	tree := h.known[d].Tree
	h.mu.Unlock()
	memory := h.place.facts.Memory
	if found, known := memory.movingOf(tree.Digest); known {
		return found, nil
	}
	repo, err := h.place.Store.Repository(bundle.Stream{Environment: h.Environment, ClusterType: clusterType}.Repository())
	if err != nil {
		return bundle.Moving{}, err
	}
	found, err := bundle.MovingOf(ctx, repo, tree)
	if err == nil {
		memory.keepMoving(tree.Digest, found)
	}
	return found, err
}
