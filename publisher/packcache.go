package publisher

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// packTree is bundle.Pack, which spends most of the time of publishing on compressing trees that are as
// they were the last time: those are taken from the cache, which may be nil. The key says everything that
// the tree is made of; that the same compressor made it is the cache's promise.
func packTree(cache scheduler.Cache, files []bundle.File) (*bundle.Packed, error) {
	if cache == nil {
		return bundle.Pack(files)
	}
	key := "tree-" + treeKey(files)
	if known := decodePacked(cache.Get(key)); known != nil {
		return known, nil
	}
	packed, err := bundle.Pack(files)
	if err == nil {
		cache.Put(key, encodePacked(packed))
	}
	return packed, err
}

// treeKey is a digest of files, whatever their order.
func treeKey(files []bundle.File) string {
	files = slices.SortedFunc(slices.Values(files), func(a, b bundle.File) int { return strings.Compare(a.Path, b.Path) })
	sum := sha256.New()
	var head []byte
	for _, f := range files {
		head = binary.AppendUvarint(head[:0], uint64(len(f.Path)))
		head = append(head, f.Path...)
		head = append(head, map[bool]byte{true: 1}[f.Executable])
		head = binary.AppendUvarint(head, uint64(len(f.Data)))
		_, _ = sum.Write(head)
		_, _ = sum.Write(f.Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// encodePacked writes the content as JSON, a line break and the layer.
func encodePacked(p *bundle.Packed) []byte {
	content, err := json.Marshal(p.Content)
	if err != nil {
		return nil
	}
	return slices.Concat(content, []byte("\n"), p.Gzip)
}

// decodePacked returns nil for what is none.
func decodePacked(data []byte) *bundle.Packed {
	content, layer, ok := bytes.Cut(data, []byte("\n"))
	p := &bundle.Packed{Gzip: layer}
	if !ok || json.Unmarshal(content, &p.Content) != nil {
		return nil
	}
	return p
}
