package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Cache keeps what was rendered for the next time. Entries may vanish at any time and may come from
// another process; what Get returns must be what somebody has put under that key, whole.
type Cache interface {
	// Get returns what was last put under key, nil if there is nothing. The caller does not change it.
	Get(key string) []byte
	// Put keeps data, which nobody changes any more, under key. It may fail, which nobody needs to know.
	Put(key string, data []byte)
}

// An assignment is found again by its identity: a digest of everything that it reads. For each cluster
// type there is an index, which is replaced whenever an assignment of it changes, and packs, which hold
// the bytes of files and never change: an index refers to the packs of earlier ones for what stayed. So
// a change writes what it touches, and whatever is found is right, however old the index.

// cacheFormat changes with what rendering makes of the same input and with how it is kept. What else
// belongs to the program's identity is the Cache's concern.
const cacheFormat = "1"

// maxPacks bounds the packs of one cluster type; above, they are rewritten as one.
const maxPacks = 8

// identity is a digest of what an assignment reads.
type identity [sha256.Size]byte

// typeCache is the part of the cache that belongs to one cluster type. A nil one knows nothing and keeps
// nothing.
type typeCache struct {
	cache Cache
	key   string
	was   *index
	packs []pack // those of was
	known map[identity]*keptAssignment

	kept    []*keptAssignment // for the next index
	fresh   []byte            // for the next pack
	changed bool
}

// pack is a part of the files of a cluster type, read when it is needed.
type pack struct {
	key  string
	data []byte
	read bool
}

// keptAssignment is an assignment in an index.
type keptAssignment struct {
	id         identity
	pack       int // of typeCache.packs; -1 is the next one
	offset     int
	assignment Assignment
	files      []int  // how long the byte slices in assignment are, in order
	written    []byte // what it was read from; nil for a new one
}

// openTypeCache reads the index of a cluster type. scope tells apart platforms that have one of that name.
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

// find returns a rendered assignment, nil if it is not there.
func (c *typeCache) find(id identity) *Assignment {
	if c == nil {
		return nil
	}
	k := c.known[id]
	if k == nil {
		return nil
	}
	data, ok := c.files(k)
	if !ok {
		return nil
	}
	if !fillBytes(&k.assignment, k.files, data) {
		return nil
	}
	c.kept = append(c.kept, k)
	return &k.assignment
}

// files returns the bytes that belong to k, and those after it.
func (c *typeCache) files(k *keptAssignment) ([]byte, bool) {
	if k.pack < 0 || k.pack >= len(c.packs) {
		return nil, false
	}
	p := &c.packs[k.pack]
	if !p.read {
		p.data, p.read = c.cache.Get(p.key), true
	}
	if p.data == nil || k.offset > len(p.data) {
		return nil, false
	}
	return p.data[k.offset:], true
}

// add keeps an assignment that was not there.
func (c *typeCache) add(id identity, a Assignment) {
	if c == nil {
		return
	}
	k := &keptAssignment{id: id, pack: -1, offset: len(c.fresh), assignment: a}
	c.fresh, k.files = appendBytes(c.fresh, a)
	c.kept, c.changed = append(c.kept, k), true
}

// close writes what has changed.
func (c *typeCache) close() {
	if c == nil || !c.changed && len(c.kept) == len(c.known) {
		return
	}
	used := make([]int, len(c.packs)) // how many assignments are in each pack
	for _, k := range c.kept {
		if k.pack >= 0 {
			used[k.pack]++
		}
	}
	if len(used)-countOf(used, 0) >= maxPacks {
		c.repack()
		clear(used)
	}
	next := index{kept: c.kept, texts: c.was.texts, fresh: c.was.fresh}
	numbers := make([]int, len(c.packs))
	for i, n := range used {
		if n > 0 {
			numbers[i] = len(next.packs)
			next.packs = append(next.packs, c.packs[i].key)
		}
	}
	for _, k := range c.kept {
		if k.pack < 0 {
			k.pack = len(next.packs)
		} else {
			k.pack = numbers[k.pack]
		}
	}
	if len(c.fresh) > 0 {
		sum := sha256.Sum256(c.fresh)
		key := "pack-" + hex.EncodeToString(sum[:])
		c.cache.Put(key, c.fresh)
		next.packs = append(next.packs, key)
	}
	c.cache.Put(c.key, next.encode())
}

// repack takes over what is kept in earlier packs into the next one.
func (c *typeCache) repack() {
	for _, k := range c.kept {
		if data, ok := c.files(k); ok {
			n := 0
			for _, size := range k.files {
				n += size
			}
			k.pack, k.offset = -1, len(c.fresh)
			c.fresh = append(c.fresh, data[:n]...)
		}
	}
}

func countOf(all []int, n int) int {
	return len(all) - len(slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i == n }))
}
