// Package memo keeps results by the digests of the contents that they came from, for the next run, so that only changed
// content is read again.
//
// [Open] returns the [Memo] of one set of contents, such as the files of a cluster type. Entries that
// a run does not use are dropped. A Memo only saves time: a damaged or foreign entry counts as missing.
package memo

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// ID is the digest of what something was derived from.
type ID [sha256.Size]byte

// Cache keeps entries for the next run. They may vanish at any time and may come from another process.
type Cache interface {
	// Get returns the last data put under key, nil if there is none: complete, as it was put. The caller does not change it.
	Get(key string) []byte
	// Put stores data under key. The caller does not change data afterwards. Put may fail silently.
	Put(key string, data []byte)
}

// Memo is one entry of a Cache. It is for one goroutine.
type Memo struct {
	cache Cache // nil for none
	key   string
	known map[ID][]byte // from the last run
	used  map[ID][]byte // in this one
	fresh bool          // used has something that known lacks
}

// Open returns the memo under key. The cache may be nil: then nothing is kept beyond this run.
func Open(cache Cache, key string) *Memo {
	m := &Memo{cache: cache, key: "memo-" + key, used: map[ID][]byte{}}
	if cache != nil {
		m.known = decode(cache.Get(m.key))
		m.used = make(map[ID][]byte, len(m.known))
	}
	return m
}

// Of returns what derive returns for id: from an earlier call or run, if there was one.
func (m *Memo) Of(id ID, derive func() []byte) []byte {
	data, ok := m.used[id]
	if ok {
		return data
	}
	if data, ok = m.known[id]; !ok {
		data, m.fresh = derive(), true
	}
	m.used[id] = data
	return data
}

// Keep keeps data for id, in place of what was there.
func (m *Memo) Keep(id ID, data []byte) {
	m.used[id] = data
	m.fresh = m.fresh || !bytes.Equal(data, m.known[id])
}

// Find returns what the last run had for id. It does not count as used.
func (m *Memo) Find(id ID) (data []byte, ok bool) {
	data, ok = m.known[id]
	return data, ok
}

// Close keeps the results that were used, for the next run.
func (m *Memo) Close() {
	if m.cache != nil && (m.fresh || len(m.used) < len(m.known)) {
		m.cache.Put(m.key, encode(m.used))
	}
}

// encode writes each ID, and its data with its length.
func encode(all map[ID][]byte) []byte {
	size := 0
	for _, data := range all {
		size += len(ID{}) + binary.MaxVarintLen64 + len(data)
	}
	data := make([]byte, 0, size)
	for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b ID) int { return bytes.Compare(a[:], b[:]) }) {
		data = append(data, id[:]...)
		data = binary.AppendUvarint(data, uint64(len(all[id])))
		data = append(data, all[id]...)
	}
	return data
}

// decode reads what encode wrote, up to the first mistake.
func decode(data []byte) map[ID][]byte {
	all := map[ID][]byte{}
	for len(data) > sha256.Size {
		id := ID(data[:sha256.Size])
		n, size := binary.Uvarint(data[sha256.Size:])
		if data = data[sha256.Size:]; size <= 0 || n > uint64(len(data)-size) {
			return all
		}
		data = data[size:]
		all[id], data = data[:n:n], data[n:]
	}
	return all
}

// AppendTexts appends texts to data, each with its length, for Texts to read.
func AppendTexts[T string | []byte](data []byte, texts ...T) []byte {
	for _, s := range texts {
		data = append(binary.AppendUvarint(data, uint64(len(s))), s...)
	}
	return data
}

// Texts returns the texts that AppendTexts has written; ok is false for anything else. As bytes they are parts of data.
func Texts[T string | []byte](data []byte) (texts []T, ok bool) {
	for len(data) > 0 {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > uint64(len(data)-size) {
			return nil, false
		}
		data = data[size:]
		texts, data = append(texts, T(data[:n:n])), data[n:]
	}
	return texts, true
}
