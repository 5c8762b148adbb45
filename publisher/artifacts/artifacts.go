// Package artifacts finds what rendered manifests need from elsewhere: images, charts, repositories, Zarf packages.
//
// [Of] lists the needs of assignments and asks nobody. [Pin] asks the places that are named, and writes the commits and
// digests that they have now into the manifests of cluster types that want it; all other bytes stay. [Lint] tells what
// has no digest yet. Nothing is fetched into a bundle here.
package artifacts

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// Of lists the artifacts that assignments need beside the bundle: those that their files and their targets' manifests
// name, with the digest if the files have one or Pin has resolved it, and those in the manifests that Pin has fetched. It
// makes no request, so that the same input gives the same list. It skips files that are no YAML.
func Of(assignments []scheduler.Assignment) []bundle.Artifact { return new(Finder).Of(assignments) }

// Finder lists artifacts as [Of] does, and parses equal files once in its life: the same target is rendered for many cluster
// types, and parsing takes most of the time. The zero value is ready, and may be used by several goroutines.
type Finder struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte][]bundle.Artifact // by inputOf
}

// maxKnown bounds what a Finder remembers.
const maxKnown = 1 << 17

// Of is the function Of.
func (f *Finder) Of(assignments []scheduler.Assignment) []bundle.Artifact {
	lists := make([][]bundle.Artifact, len(assignments))
	var group errgroup.Group // parsing takes the time
	group.SetLimit(runtime.GOMAXPROCS(0))
	for start := 0; start < len(assignments); start += assignmentsAtOnce {
		group.Go(func() error {
			for i := start; i < min(start+assignmentsAtOnce, len(assignments)); i++ {
				lists[i] = append(f.named(&assignments[i]), inside(&assignments[i])...)
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
func (f *Finder) named(a *scheduler.Assignment) []bundle.Artifact {
	input := inputOf(a)
	f.mu.Lock()
	found, known := f.known[input]
	f.mu.Unlock()
	if !known {
		needs, _ := needsOf(a) // what cannot be read is for the one who applies it to say
		for _, n := range needs {
			if n.kind != "" && n.url != "" {
				found = append(found, n.artifact())
			}
		}
		f.remember(input, found)
	}
	list := make([]bundle.Artifact, len(found))
	for i, artifact := range found {
		artifact.UsedBy = []string{a.Name}
		list[i] = pinnedArtifact(artifact, a.Pinned)
	}
	return list
}

func (f *Finder) remember(input [sha256.Size]byte, found []bundle.Artifact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = map[[sha256.Size]byte][]bundle.Artifact{}
	}
	if len(f.known) < maxKnown {
		f.known[input] = found
	}
}

// inputOf is a digest of what needsOf reads of an assignment.
func inputOf(a *scheduler.Assignment) [sha256.Size]byte {
	var input []byte
	add := func(text string) { input = append(binary.AppendUvarint(input, uint64(len(text))), text...) }
	add(a.Adapter)
	input = binary.AppendUvarint(input, uint64(len(a.Manifests)))
	for _, key := range slices.Sorted(maps.Keys(a.Manifests)) {
		add(key)
		add(a.Manifests[key])
	}
	for _, f := range a.Files {
		if mayNeed(f) {
			add(f.Path)
			sum := sha256.Sum256(f.Data)
			input = append(input, sum[:]...)
		}
	}
	return sha256.Sum256(input)
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
		for _, a := range new(Finder).named(&ct.Assignments[i]) {
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
