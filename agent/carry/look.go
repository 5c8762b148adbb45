package carry

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Change is what a Look has found to be different.
type Change struct {
	// Named is true if the index has to name other content.
	Named bool
	// Dropped is true if there is content that nothing needs any more.
	Dropped bool
}

// view is what a Look has found.
type view struct {
	artifacts map[key]*standing
	// order has the keys in the order in which they are brought.
	order []key
	// assignments has the keys of each assignment of the running release.
	assignments map[string][]key
	// room is the number of bytes that may still be brought.
	room   int64
	budget int64 // for all of it; negative if unknown
	stored int64
	// closed says when the transfer window opens; empty while it is open.
	closed string
}

// standing is the state of one artifact.
type standing struct {
	Wanted
	// graph has its manifests and blobs; nil before its manifests are in the store.
	graph *graph.Graph
	// lacks has the sizes of the missing blobs, and missing is their sum, in bytes. Before the manifests are in the store,
	// missing is the publisher's figure, zero if there is none.
	lacks   map[digest.Digest]int64
	missing int64
	whole   bool
	// fits is false if there is no room for it.
	fits bool
	// last is the last failure, if there is one.
	last failure
}

// Look compares the store with lists, the most important first. It decides which artifacts to transfer, and drops lists
// from the end if the store is too small. It never drops the first wanted lists: those of the running release and of the
// next one. It saves its decision for Named. The error is a *state.LocalError.
func (c *Carrier) Look(lists []List, wanted int) (Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadReferrers(); err != nil {
		return Change{}, err
	}
	c.stale = false
	before := c.view
	next, kept := c.survey(lists, wanted)
	next.note(c.failures)
	next.closed = c.windowClosed()
	c.view = next
	if c.job != nil {
		c.job.got.Store(0) // the view has it
	}
	maps.DeleteFunc(c.graphs, func(d digest.Digest, _ graph.Graph) bool { return !next.has(d) })
	for k := range c.failures {
		if next.artifacts[k] == nil {
			delete(c.failures, k)
		}
	}
	var change Change
	err := c.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		old, err := load(tx)
		if err != nil {
			return false, err
		}
		c.referrers = c.referrersOf(kept)
		r := record{kept, next.status(), c.referrers}
		if sameJSON(old, r) {
			return false, nil
		}
		sameLists := sameJSON(old.Lists, r.Lists)
		change = Change{Named: !sameLists, Dropped: !sameLists}
		if len(kept) == 0 {
			return true, state.Drop(tx, state.Meta, keyRecord)
		}
		return true, state.Save(tx, state.Meta, keyRecord, r)
	})
	change.Named = change.Named || !next.namesAs(before)
	return change, err
}

// has reports whether an artifact has that digest.
func (v view) has(d digest.Digest) bool {
	for k := range v.artifacts {
		if k.digest == d {
			return true
		}
	}
	return false
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// namesAs reports whether the same artifacts are whole as before.
func (v view) namesAs(before view) bool {
	whole := func(v view) (n int) {
		for _, s := range v.artifacts {
			if s.whole {
				n++
			}
		}
		return n
	}
	for k, s := range v.artifacts {
		if old := before.artifacts[k]; s.whole && (old == nil || !old.whole) {
			return false
		}
	}
	return whole(v) == whole(before)
}

// survey compares the disk with the lists. It returns the result, and the lists that stay.
func (c *Carrier) survey(lists []List, wanted int) (view, []List) {
	v := view{artifacts: map[key]*standing{}, assignments: map[string][]key{}, budget: -1}
	c.choosePlatforms(lists)
	here := c.disk()
	for i, l := range lists {
		for _, w := range l.Artifacts {
			s := v.artifacts[w.key()]
			if s == nil {
				s = c.standing(w, here)
				v.artifacts[w.key()] = s
				if i < wanted {
					v.order = append(v.order, w.key())
				}
			}
			if l.Running {
				s.Tag = w.Tag
				for _, name := range w.UsedBy {
					v.assignments[name] = append(v.assignments[name], w.key())
				}
			}
		}
	}
	lists = c.makeRoom(&v, lists, wanted, here)
	return v, lists
}

// choosePlatforms sets the platforms for which artifacts are brought: those of the configuration, else of the releases, else of this
// machine.
func (c *Carrier) choosePlatforms(lists []List) {
	all := slices.Clone(c.opts.Platforms)
	if len(all) == 0 {
		for _, l := range lists {
			all = append(all, l.Platforms...)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		all = graph.ThisMachine()
	}
	if !slices.Equal(all, c.platforms) {
		c.platforms = all
		clear(c.graphs)
	}
}

// disk remembers which blobs are on the disk.
type disk func(ocispec.Descriptor) bool

func (c *Carrier) disk() disk {
	known := map[digest.Digest]bool{}
	return func(d ocispec.Descriptor) bool {
		is, ok := known[d.Digest]
		if !ok {
			is, _ = c.blobs.Exists(context.Background(), d)
			known[d.Digest] = is
		}
		return is
	}
}

// standing looks for one artifact on the disk.
func (c *Carrier) standing(w Wanted, here disk) *standing {
	s := &standing{Wanted: w, missing: w.Size, fits: true}
	g, ok := c.graph(w.Digest)
	if !ok {
		return s
	}
	g = c.withReferrers(w.Digest, g)
	s.graph, s.missing, s.lacks = &g, 0, map[digest.Digest]int64{}
	for _, d := range g.All() {
		if !here(d) {
			s.lacks[d.Digest], s.missing = d.Size, s.missing+d.Size
		}
	}
	s.whole = len(s.lacks) == 0
	return s
}

// graph returns what an artifact consists of, if all of its manifests are on the disk.
func (c *Carrier) graph(root digest.Digest) (graph.Graph, bool) {
	if g, ok := c.graphs[root]; ok {
		return g, true
	}
	if root.Validate() != nil {
		return graph.Graph{}, false
	}
	desc, err := c.blobs.Resolve(context.Background(), root.String())
	if err != nil {
		return graph.Graph{}, false
	}
	g, err := c.walk(desc, c.platforms)
	if err != nil {
		return graph.Graph{}, false
	}
	c.graphs[root] = g
	return g, true
}

// walk reads the manifests of an artifact from the disk.
func (c *Carrier) walk(root ocispec.Descriptor, platforms graph.Platforms) (graph.Graph, error) {
	ctx := context.Background() // of the disk
	return graph.Walk(root, platforms, func(d ocispec.Descriptor) ([]byte, error) {
		return bundle.ReadBlob(ctx, c.blobs, d, graph.MaxManifestBytes)
	})
}

// makeRoom decides which of the wanted artifacts are brought, and returns the lists that stay.
func (c *Carrier) makeRoom(v *view, lists []List, wanted int, here disk) []List {
	free, size, known := c.opts.Space(c.db.Dir())
	for {
		var missing int64
		v.stored, missing = v.weigh(lists, wanted, here)
		switch {
		case c.opts.Budget > 0:
			v.budget, v.room = c.opts.Budget, c.opts.Budget-v.stored
		case known:
			v.room = free - max(size/10, 1<<30)
			v.budget = v.room + v.stored
		default:
			v.room = missing
		}
		if missing <= v.room || len(lists) <= wanted {
			break
		}
		lists = lists[:len(lists)-1]
		if c.opts.Budget == 0 { // deleting the dropped artifacts frees their bytes
			stored, _ := v.weigh(lists, wanted, here)
			free += v.stored - stored
		}
	}
	v.admit()
	kept := map[key]bool{}
	for _, l := range lists {
		for _, w := range l.Artifacts {
			kept[w.key()] = true
		}
	}
	for k := range v.artifacts {
		if !kept[k] {
			delete(v.artifacts, k)
		}
	}
	return lists
}

// weigh returns the bytes of lists that are on the disk, and those of the wanted ones that are not. Blobs that artifacts
// share count once.
func (v *view) weigh(lists []List, wanted int, here disk) (stored, missing int64) {
	seen := map[digest.Digest]bool{}
	for i, l := range lists {
		for _, w := range l.Artifacts {
			s := v.artifacts[w.key()]
			if s.graph == nil {
				if !seen[w.Digest] && i < wanted {
					missing += s.missing
				}
				seen[w.Digest] = true
				continue
			}
			for _, d := range s.graph.All() {
				switch {
				case seen[d.Digest]:
				case here(d):
					stored += d.Size
				case i < wanted:
					missing += d.Size
				}
				seen[d.Digest] = true
			}
		}
	}
	return stored, missing
}

// admit marks the wanted artifacts for which there is no room, as many of the first as possible having it.
func (v *view) admit() {
	room, counted := v.room, map[digest.Digest]bool{}
	for _, k := range v.order {
		s := v.artifacts[k]
		need := s.missing
		if s.graph != nil {
			need = 0
			for d, n := range s.lacks {
				if !counted[d] {
					need += n
				}
			}
		}
		if s.fits = need == 0 || need <= room; !s.fits {
			continue
		}
		room -= need
		for d := range s.lacks {
			counted[d] = true
		}
	}
}

// note adds the failures of transfers.
func (v *view) note(failures map[key]failure) {
	for k, s := range v.artifacts {
		s.last = failures[k]
	}
}

// Named lists, for package content, the manifests of carried artifacts that the store keeps. The index names the whole
// ones: by digest, and by their tag in the running release, unless that release has the tag twice.
func (c *Carrier) Named(tx *bbolt.Tx) ([]content.Named, error) {
	r, err := load(tx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.referrers == nil {
		c.referrers = r.Referrers
	}
	here := c.disk()
	var all []content.Named
	seen := map[key]bool{}
	for _, l := range r.Lists {
		for _, w := range l.Artifacts {
			if w.Digest.Validate() != nil || seen[w.key()] {
				continue
			}
			seen[w.key()] = true
			s := c.standing(w, here)
			all = append(all, c.namedReferrers(w, s.whole)...)
			if !s.whole {
				all = append(all, content.Named{Manifest: ocispec.Descriptor{Digest: w.Digest}})
				continue
			}
			all = append(all, content.Named{Repository: w.Repository, Manifest: s.graph.Manifests[0]})
			if l.Running && w.Tag != "" && oci.CheckTag(w.Tag) == nil && l.means(w) {
				all = append(all, content.Named{Repository: w.Repository, Tag: w.Tag, Manifest: s.graph.Manifests[0]})
			}
		}
	}
	return all, nil
}

// means reports whether the tag of w stands for w alone.
func (l List) means(w Wanted) bool {
	return !slices.ContainsFunc(l.Artifacts, func(o Wanted) bool {
		return o.Repository == w.Repository && o.Tag == w.Tag && o.Digest != w.Digest
	})
}
