// Package artifacts finds what rendered manifests need from elsewhere: images, charts, repositories, Zarf packages.
//
// [Of] lists the needs of assignments and asks nobody. [Pin] asks the places that are named, and writes the commits and
// digests that they have now into the manifests of cluster types that want it; all other bytes stay. [Lint] tells what
// has no digest yet. Nothing is fetched into a bundle here.
package artifacts

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// Of lists the artifacts that assignments need beside the bundle: those that their files and their targets' manifests
// name, with the digest if the files have one or Pin has resolved it, and those in the manifests that Pin has fetched. It
// makes no request, so that the same input gives the same list. It skips files that are no YAML.
func Of(assignments []scheduler.Assignment) []bundle.Artifact {
	lists := make([][]bundle.Artifact, len(assignments))
	var group errgroup.Group // parsing takes the time
	group.SetLimit(runtime.GOMAXPROCS(0))
	for start := 0; start < len(assignments); start += assignmentsAtOnce {
		group.Go(func() error {
			for i := start; i < min(start+assignmentsAtOnce, len(assignments)); i++ {
				lists[i] = append(named(&assignments[i]), inside(&assignments[i])...)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
	return bundle.MergeArtifacts(slices.Concat(lists...))
}

// assignmentsAtOnce is how many are looked at in one go.
const assignmentsAtOnce = 256

// named lists what a's files and its target's manifests name.
func named(a *scheduler.Assignment) []bundle.Artifact {
	var list []bundle.Artifact
	needs, _ := needsOf(a) // what cannot be read is for the one who applies it to say
	for _, n := range needs {
		if n.kind != "" && n.url != "" {
			artifact := n.artifact()
			artifact.UsedBy = []string{a.Name}
			list = append(list, pinnedArtifact(artifact, a.Pinned))
		}
	}
	return list
}

// Fetched lists what the adapter directory brings from registries for a. What has no digest is an error:
// rendering has found most of it before, and fails such an assignment alone.
func Fetched(a *scheduler.Assignment) ([]bundle.FetchedArtifact, error) {
	if a.Adapter != scheduler.DirectoryAdapter {
		return nil, nil
	}
	s := new(scanner)
	s.manifests(a)
	var list []bundle.FetchedArtifact
	for _, n := range s.needs {
		found := pinnedArtifact(n.artifact(), a.Pinned)
		switch {
		case n.kind != bundle.ArtifactOCI:
		case n.unpinnable != "":
			return nil, fmt.Errorf("%s: %s: %s", a.Name, n.place, n.unpinnable)
		case found.Unresolved:
			return nil, fmt.Errorf("%s: %s: %s has no digest, and the adapter directory fetches by digest only", a.Name, n.place, n.reference())
		default:
			list = append(list, bundle.FetchedArtifact{Reference: found.Reference, Digest: digest.Digest(found.Digest)})
		}
	}
	return list, nil
}

// inside lists the artifacts in the manifests that a's sources hold.
func inside(a *scheduler.Assignment) []bundle.Artifact {
	var list []bundle.Artifact
	for _, p := range a.Inside {
		list = append(list, bundle.Artifact{
			Type: bundle.ArtifactType(p.Type), Name: p.Name, Reference: p.Reference, Digest: p.Digest, Unresolved: p.Digest == "", UsedBy: []string{a.Name},
		})
	}
	return list
}

// CheckPinned returns an error if a cluster type asks for pinning and has a reference that Pin has not resolved.
func CheckPinned(ct scheduler.ClusterTypeResult) error {
	if !IsPinned(ct) {
		return nil
	}
	for i := range ct.Assignments {
		for _, a := range named(&ct.Assignments[i]) {
			if a.Unresolved {
				return fmt.Errorf("annotation %s: %s, which %s names, is not resolved", scheduler.PinAnnotation, a.Reference, ct.Assignments[i].Name)
			}
		}
	}
	return nil
}

// pinnedArtifact adds what Pin found out about a.
func pinnedArtifact(a bundle.Artifact, known []scheduler.Pinned) bundle.Artifact {
	i := slices.IndexFunc(known, func(p scheduler.Pinned) bool {
		return p.Type == string(a.Type) && p.Reference == a.Reference && (a.Digest == "" || p.Digest == a.Digest)
	})
	if i >= 0 {
		a.Digest, a.Size, a.Unresolved = known[i].Digest, known[i].Size, false
	}
	return a
}
