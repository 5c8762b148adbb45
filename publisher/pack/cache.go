package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// Bundle is what Tree makes.
type Bundle struct {
	Tree      *bundle.Packed
	Artifacts bundle.Artifacts
	// Needs are those of the rendered assignments.
	Needs Needs
}

// Once is Tree with the packer's cache. Tree reads and compresses every file, which takes ten times as long
// as everything else when little has changed. The cache's key covers everything that is packed; the cache itself
// guarantees that the same program has packed it.
func (k *Packer) Once(assignments []scheduler.Assignment, held []Held, more ...bundle.File) (Bundle, error) {
	if k.cache == nil {
		return tree(&k.find, assignments, held, more)
	}
	key := "bundle-" + packKey(assignments, held, more...)
	if known, ok := decodePacked(k.cache.Get(key)); ok {
		if known.Needs, ok = needsBefore(k.cache, known.Needs.ID); ok {
			return known, nil
		}
	}
	made, err := tree(&k.find, assignments, held, more)
	if err == nil {
		made.Needs.keep(k.cache)
		k.cache.Put(key, encodePacked(made))
		k.cache.Put(layerKey(made.Tree.Content), []byte(key))
	}
	return made, err
}

// layerKey is where the key of a tree is kept that was packed before.
func layerKey(c bundle.Content) string { return "packed-" + c.DiffID.String() }

// Before returns the layer of a tree, if cache, which may be nil, has it.
func Before(cache scheduler.Cache, c bundle.Content) (layer []byte, ok bool) {
	if cache == nil {
		return nil, false
	}
	known, ok := decodePacked(cache.Get(string(cache.Get(layerKey(c)))))
	if !ok || known.Tree.Content != c {
		return nil, false
	}
	return known.Tree.Gzip, true
}

// packKey is a digest of assignments, whatever their fields, but for the places of ConfigMaps, which are
// not packed, and of the files beside them.
func packKey(assignments []scheduler.Assignment, held []Held, more ...bundle.File) string {
	sum := sha256.New()
	write := json.NewEncoder(sum)
	files := func(path string, executable bool, data []byte) {
		_ = write.Encode([]any{path, executable, len(data)})
		_, _ = sum.Write(data)
	}
	for _, a := range assignments {
		own := a.Files
		sources := make([]string, len(a.Config))
		for i, c := range a.Config {
			sources[i] = c.Name
		}
		a.Files, a.Config, a.Origin = nil, nil, scheduler.Place{} // a commit elsewhere in the repository changes nothing
		_ = write.Encode([]any{a, sources, len(own)})             // fails for no value of these types
		for _, f := range own {
			files(f.Path, false, f.Data)
		}
	}
	_, _ = io.WriteString(sum, "held\n")
	for _, h := range held {
		_ = write.Encode([]any{h.Line, h.Artifacts, h.Sources, len(h.Files)})
		for _, f := range h.Files {
			files(f.Path, f.Executable, f.Data)
		}
	}
	for _, f := range more {
		files(f.Path, f.Executable, f.Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// packedHead is the metadata in front of the layer.
type packedHead struct {
	Content   bundle.Content
	Artifacts bundle.Artifacts
	Needs     digest.Digest
}

// encodePacked writes the head as JSON, a line break and the layer.
func encodePacked(p Bundle) []byte {
	head, err := json.Marshal(packedHead{p.Tree.Content, p.Artifacts, p.Needs.ID})
	if err != nil {
		return nil
	}
	return slices.Concat(head, []byte("\n"), p.Tree.Gzip)
}

// decodePacked is false for what encodePacked did not write.
func decodePacked(data []byte) (Bundle, bool) {
	text, layer, ok := bytes.Cut(data, []byte("\n"))
	var head packedHead
	if !ok || json.Unmarshal(text, &head) != nil {
		return Bundle{}, false
	}
	return Bundle{&bundle.Packed{Gzip: layer, Content: head.Content}, head.Artifacts, Needs{ID: head.Needs}}, true
}
