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
	if all, known := h.place.facts.Memory.assignmentsOf(found.Tree.Digest); known {
		return found.Release, all, nil
	}
	repo, err := h.place.Store.Repository(found.Release.Stream().Repository())
	if err != nil {
		return fail(err)
	}
	files, err := bundle.TreeFiles(ctx, repo, found.Tree, bundle.AssignmentsPath)
	if err != nil {
		return fail(err)
	}
	all, err := bundle.ParseAssignments(files[bundle.AssignmentsPath])
	if err != nil {
		return fail(err)
	}
	h.place.facts.Memory.keepAssignments(found.Tree.Digest, all)
	return found.Release, all, nil
}
