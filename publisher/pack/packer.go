package pack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/scheduler"
)

// Packer packs cluster types while others are still being rendered, so that the files of one type at a
// time are in memory and not those of all. Its Take is for [scheduler.Options].Each of a render, and the Packer itself for
// publishing the result of that.
type Packer struct {
	cache scheduler.Cache
	find  artifacts.Finder

	mu     sync.Mutex
	packed map[string]Bundle // by cluster type
}

// NewPacker returns a Packer for an environment that reuses bundles in cache, which may be nil.
func NewPacker(cache scheduler.Cache, environment string) *Packer {
	return &Packer{cache: cache, find: artifacts.Finder{Cache: cache, Scope: environment}, packed: map[string]Bundle{}}
}

// Take packs a cluster type and drops its files from memory. It leaves a cluster type as it is if its content is not final:
// with failures, which may be held, with references to be pinned, or with manifests to be embedded. The same goes for one that cannot be packed: Publish
// reports the error. A nil k packs nothing. Take may be called by several goroutines.
func (k *Packer) Take(ct *scheduler.ClusterTypeResult) error {
	if k == nil || len(ct.Failures) > 0 || artifacts.IsPinned(*ct) || slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded) || !ct.Sites.IsFinal() {
		return nil
	}
	var sites []bundle.File
	if ct.Sites != nil && len(ct.Assignments) > 0 {
		var err error
		if sites, err = SiteFiles(ct.Sites.Document, ct.Sites.Rows); err != nil {
			return nil // Publish finds it again
		}
	}
	b, err := k.Once(ct.Assignments, nil, sites...)
	if err != nil {
		return nil // Publish finds it again
	}
	for i := range ct.Assignments {
		ct.Assignments[i].Files = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.packed[ct.Name] = b
	return nil
}

// Of returns the bundle of a cluster type; ok is false if Take did not pack it, and for a nil k.
func (k *Packer) Of(clusterType string) (_ Bundle, ok bool) {
	if k == nil {
		return Bundle{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.packed[clusterType]
	return known, ok
}

// Restore returns the assignments of a cluster type with the files that Take has dropped, read from its bundle; as they
// are if Take did not pack it, and for a nil k. Empty files are not in bundles, and so are not restored.
func (k *Packer) Restore(clusterType string, assignments []scheduler.Assignment) ([]scheduler.Assignment, error) {
	known, ok := k.Of(clusterType)
	if !ok {
		return assignments, nil
	}
	files := map[string][]scheduler.File{}
	unpack := bundle.Unpacker{Take: func(f bundle.File) error {
		assignment, below, _ := strings.Cut(f.Path, "/")
		files[assignment] = append(files[assignment], scheduler.File{Path: below, Data: f.Data})
		return nil
	}}
	if err := unpack.Gzip(bytes.NewReader(known.Tree.Gzip), known.Tree.Content); err != nil {
		return nil, fmt.Errorf("%s: read the bundle: %w", clusterType, err)
	}
	restored := slices.Clone(assignments)
	for i := range restored {
		restored[i].Files = files[restored[i].Name]
	}
	return restored, nil
}
