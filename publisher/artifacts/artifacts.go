// Package artifacts finds what rendered manifests need from elsewhere: images, charts, repositories, Zarf packages.
//
// [Of] lists the needs of assignments and asks nobody. [Pin] asks the places that are named, and writes the commits and
// digests that they have now into the manifests of cluster types that want it; all other bytes stay. A [Linter] tells what
// has no digest yet. Nothing is fetched into a bundle here.
package artifacts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// Of lists the artifacts that assignments need beside the bundle: those that their files and their targets' manifests
// name, with the digest if the files have one or Pin has resolved it, and those in the manifests that Pin has fetched. It
// makes no request, so that the same input gives the same list. It skips files that are no YAML.
func Of(assignments []scheduler.Assignment) []bundle.Artifact { return new(Finder).Of(assignments) }

// Finder lists artifacts as [Of] does, and parses only files that its cache lacks: parsing takes most of the time.
// The zero value is ready, and may be used by several goroutines.
type Finder struct {
	// Cache, if not nil, has what earlier runs have found. Scope, such as the environment, tells apart cluster types of the
	// same name.
	Cache scheduler.Cache
	Scope string
}

// Of is the function Of for the assignments of one cluster type.
func (f *Finder) Of(assignments []scheduler.Assignment) []bundle.Artifact {
	list, _ := f.Find(assignments)
	return list
}

// Find is Of, and reports of each assignment whether it also follows a source that is in no list: a Bucket, an ApplicationSet, or
// a source of Flux that is no object of the assignment.
func (f *Finder) Find(assignments []scheduler.Assignment) ([]bundle.Artifact, []bool) {
	if len(assignments) == 0 {
		return nil, nil
	}
	found, inputs := make([]needs, len(assignments)), make([]memo.ID, len(assignments))
	kept := memo.Open(f.Cache, "needs "+f.Scope+"/"+assignments[0].ClusterType)
	defer kept.Close()
	inParallel(len(assignments), func(i int) {
		inputs[i] = inputOf(&assignments[i])
		if data, known := kept.Find(inputs[i]); !known || json.Unmarshal(data, &found[i]) != nil {
			found[i] = needed(&assignments[i])
		}
	})
	lists, unlisted := make([][]bundle.Artifact, len(assignments)), make([]bool, len(assignments))
	for i := range assignments {
		kept.Of(inputs[i], func() []byte {
			data, _ := json.Marshal(found[i]) // of texts and numbers
			return data
		})
		a := &assignments[i]
		lists[i], unlisted[i] = append(namedBy(a, found[i].Listed), inside(a)...), found[i].Unlisted
	}
	return bundle.MergeArtifacts(slices.Concat(lists...)), unlisted
}

// needs are what the files of an assignment need, without what depends on its name and on its pins.
type needs struct {
	Listed   []bundle.Artifact `json:"listed,omitempty"`
	Unlisted bool              `json:"unlisted,omitempty"` // something is needed that no artifact can name
}

// inParallel calls do with the numbers below n.
func inParallel(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for start := 0; start < n; start += assignmentsAtOnce {
		group.Go(func() error {
			for i := start; i < min(start+assignmentsAtOnce, n); i++ {
				do(i)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// assignmentsAtOnce is how many are looked at in one go.
const assignmentsAtOnce = 256

// named lists what a's files and its target's manifests name.
func named(a *scheduler.Assignment) []bundle.Artifact { return namedBy(a, needed(a).Listed) }

func needed(a *scheduler.Assignment) needs {
	s, _ := scanWith(a, parseValues) // what cannot be read is for the one who applies it to say
	all := needs{Unlisted: s.unlisted}
	for _, n := range toPin(a, s.needs) {
		if n.Kind != "" && n.URL != "" && !isInCharts(a, n) {
			all.Listed = append(all.Listed, n.Artifact())
		}
	}
	return all
}

// isInCharts reports whether a need is a chart that the bundle contains.
func isInCharts(a *scheduler.Assignment, n need) bool {
	if n.Kind != bundle.ArtifactChart && n.Kind != bundle.ArtifactOCI {
		return false
	}
	name := sources.Source{Kind: n.Kind, URL: n.URL}.Name()
	return slices.ContainsFunc(a.Sources, func(s scheduler.ContentSource) bool {
		return s.Chart != "" && s.Name == name && (n.Chart == "" || n.Chart == s.Chart)
	})
}

func namedBy(a *scheduler.Assignment, needed []bundle.Artifact) []bundle.Artifact {
	for i := range needed {
		needed[i].UsedBy = []string{a.Name}
		needed[i] = pinnedArtifact(needed[i], a.Pinned)
	}
	return needed
}

// inputOf is a digest of what needsOf reads of an assignment.
func inputOf(a *scheduler.Assignment) memo.ID {
	var input []byte
	add := func(text string) { input = append(binary.AppendUvarint(input, uint64(len(text))), text...) }
	add(a.Adapter)
	add(a.Delivery)
	for _, s := range a.Sources {
		add(s.Name)
		add(s.Chart)
	}
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

// inputOfAll is a digest of what Of reads.
func inputOfAll(assignments []scheduler.Assignment) memo.ID {
	var input []byte
	for i := range assignments {
		a := &assignments[i]
		own := inputOf(a)
		input = append(memo.AppendTexts(input, a.Name), own[:]...)
		for _, p := range slices.Concat(a.Pinned, a.Inside) {
			input = memo.AppendTexts(input, p.Type, p.Name, p.Reference, p.Digest)
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
		found := pinnedArtifact(n.Artifact(), a.Pinned)
		switch {
		case n.Kind != bundle.ArtifactOCI:
		case n.unpinnable != "":
			return nil, fmt.Errorf("%s: %s: %s", a.Name, n.place, n.unpinnable)
		case found.Unresolved:
			return nil, fmt.Errorf("%s: %s: %s has no digest, and the adapter directory fetches by digest only", a.Name, n.place, n.Reference())
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
		rendered := ct.Assignments[i]
		rendered.Files = RenderedFiles(&rendered)
		for _, a := range named(&rendered) {
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
