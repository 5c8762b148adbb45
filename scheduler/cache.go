package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
)

// Cache keeps rendered assignments for the next time. Entries may vanish at any time and may come from another process. An
// entry that Get returns must be complete, as it was put.
type Cache interface {
	// Get returns the last data put under key, nil if there is none. The caller does not change it.
	Get(key string) []byte
	// Put stores data under key. The caller does not change data afterwards. Put may fail silently.
	Put(key string, data []byte)
}

// An assignment is found again by its identity: a digest of everything that it reads. For each cluster
// type there is an index, which is replaced whenever an assignment of it changes, and packs, which hold
// the bytes of files and never change: an index refers to earlier packs for assignments that stayed the same. So the
// cost of a write depends on the change, and every entry is valid, however old the index.

// cacheFormat changes with the output of rendering for the same input, and with the format of the cache. The Cache itself
// separates the entries of different builds of the program.
const cacheFormat = "2"

const (
	// maxPacks bounds the packs of one cluster type; above, they are rewritten as one.
	maxPacks = 8
	// maxInline bounds the bytes of files that an index holds itself. Opening another file costs as much as reading
	// so many bytes more.
	maxInline = 64 << 10
)

// identity is a digest of the input of an assignment.
type identity [sha256.Size]byte

// typeCache is the part of the cache for one cluster type. A nil typeCache is empty and stores
// nothing.
type typeCache struct {
	cache Cache
	key   string
	was   *index
	packs []pack // those of was
	known map[identity]*keptAssignment

	kept    []*keptAssignment // for the next index
	fresh   []byte            // the bytes of those that are new
	changed bool
}

// pack is a part of the files of a cluster type, read on demand.
type pack struct {
	key  string
	data []byte
	read bool
}

// keptAssignment is an assignment in an index.
type keptAssignment struct {
	id         identity
	pack       int // of typeCache.packs, or one of those below
	offset     int
	assignment Assignment
	files      []int  // how long the byte slices in assignment are, in order
	written    []byte // the bytes it was read from; nil for a new one
}

// The places of bytes that are in no pack.
const (
	inIndex = -1
	inFresh = -2
)

// openTypeCache reads the index of a cluster type. Scope tells apart platforms with cluster types of the same name.
func openTypeCache(cache Cache, scope, clusterType string) *typeCache {
	if cache == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(cacheFormat + "\x00" + assignmentShape() + "\x00" + scope + "\x00" + clusterType))
	c := &typeCache{cache: cache, key: "index-" + hex.EncodeToString(sum[:]), known: map[identity]*keptAssignment{}}
	was, ok := decodeIndex(cache.Get(c.key))
	if !ok {
		was = &index{}
	}
	c.was = was
	for _, key := range was.packs {
		c.packs = append(c.packs, pack{key: key})
	}
	for _, k := range was.kept {
		c.known[k.id] = k
	}
	return c
}

// find returns a rendered assignment, or nil if the cache lacks it.
func (c *typeCache) find(id identity) *Assignment {
	if c == nil {
		return nil
	}
	k := c.known[id]
	if k == nil || !fillBytes(&k.assignment, k.files, c.bytesOf(k)) {
		return nil
	}
	c.kept = append(c.kept, k)
	return &k.assignment
}

// bytesOf returns the bytes that belong to k, and those after it.
func (c *typeCache) bytesOf(k *keptAssignment) []byte {
	from := c.was.inline
	switch {
	case k.pack == inFresh:
		from = c.fresh
	case k.pack >= 0 && k.pack < len(c.packs):
		p := &c.packs[k.pack]
		if !p.read {
			p.data, p.read = c.cache.Get(p.key), true
		}
		from = p.data
	}
	if k.offset < 0 || k.offset > len(from) {
		return nil
	}
	return from[k.offset:]
}

// add stores a new assignment.
func (c *typeCache) add(id identity, a Assignment) {
	if c == nil {
		return
	}
	k := &keptAssignment{id: id, pack: inFresh, offset: len(c.fresh), assignment: a}
	c.fresh, k.files = appendBytes(c.fresh, a)
	c.kept, c.changed = append(c.kept, k), true
}

// close writes the changes to the cache.
func (c *typeCache) close() {
	if c == nil || !c.changed && len(c.kept) == len(c.known) {
		return
	}
	used := make([]bool, len(c.packs))
	for _, k := range c.kept {
		if k.pack >= 0 {
			used[k.pack] = true
		}
	}
	next := index{kept: c.kept, texts: c.was.texts, fresh: c.was.fresh}
	numbers := make([]int, len(c.packs))
	for i := range used {
		if used[i] {
			numbers[i], next.packs = len(next.packs), append(next.packs, c.packs[i].key)
		}
	}
	moves := func(k *keptAssignment) bool { return k.pack < 0 }
	if len(next.packs) >= maxPacks {
		next.packs, moves = nil, func(*keptAssignment) bool { return true }
	}
	var moved []*keptAssignment
	for _, k := range c.kept {
		if moves(k) {
			moved = append(moved, k)
		} else {
			k.pack = numbers[k.pack]
		}
	}
	c.move(moved, &next)
	c.cache.Put(c.key, next.encode())
}

// move puts the bytes of assignments together in a new pack of next or, if they are few, in next itself.
func (c *typeCache) move(moved []*keptAssignment, next *index) {
	data, offsets := make([]byte, 0, len(c.fresh)+len(c.was.inline)), make([]int, len(moved))
	for i, k := range moved {
		size := 0
		for _, n := range k.files {
			size += n
		}
		offsets[i], data = len(data), append(data, c.bytesOf(k)[:size]...)
	}
	to := inIndex
	if len(data) > maxInline {
		sum := sha256.Sum256(data)
		key := "pack-" + hex.EncodeToString(sum[:])
		c.cache.Put(key, data)
		to, next.packs = len(next.packs), append(next.packs, key)
	} else {
		next.inline = data
	}
	for i, k := range moved {
		k.pack, k.offset = to, offsets[i]
	}
}
