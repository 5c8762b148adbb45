// Package packagetest takes site packages apart for tests, damages them part by part, and writes them again.
//
// Begin with Parse. Parts names each blob by its role, such as "prod/shop layer", so that a test can speak of what it
// damages. Nothing here verifies anything.
package packagetest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
)

// Package is a site package in memory: the entries of its tar, in their order.
type Package struct {
	Entries []Entry
}

// Entry is an entry of a tar.
type Entry struct {
	tar.Header
	Data []byte
}

// File returns an entry as "wherry airgap export" writes it.
func File(name string, data []byte) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: time.Unix(0, 0)}, data}
}

// Blob returns the entry of a blob.
func Blob(data []byte) Entry { return File(BlobName(digest.FromBytes(data)), data) }

// BlobName returns the name of a blob's entry.
func BlobName(d digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

// Parse reads the package that data is.
func Parse(data []byte) (*Package, error) {
	p, r := &Package{}, tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		p.Entries = append(p.Entries, Entry{*h, content})
	}
}

// Bytes returns the package as a tar. Those of a package that was parsed and not changed are what was parsed. It panics
// for an entry that cannot be written.
func (p *Package) Bytes() []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range p.Entries {
		h := e.Header
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(e.Data))
		}
		err := w.WriteHeader(&h)
		if err == nil && h.Typeflag == tar.TypeReg {
			_, err = w.Write(e.Data)
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", h.Name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// Clone returns a copy that shares no memory with p.
func (p *Package) Clone() *Package {
	c := &Package{Entries: slices.Clone(p.Entries)}
	for i := range c.Entries {
		c.Entries[i].Data = bytes.Clone(c.Entries[i].Data)
	}
	return c
}

// At returns the number of an entry, or -1.
func (p *Package) At(name string) int {
	return slices.IndexFunc(p.Entries, func(e Entry) bool { return e.Name == name })
}

// Get returns the content of an entry, or nil.
func (p *Package) Get(name string) []byte {
	if i := p.At(name); i >= 0 {
		return p.Entries[i].Data
	}
	return nil
}

// Index returns the index.
func (p *Package) Index() (index ocispec.Index) {
	if err := json.Unmarshal(p.Get(ocispec.ImageIndexFile), &index); err != nil {
		panic(err)
	}
	return index
}

// ChangeIndex has change alter the index.
func (p *Package) ChangeIndex(change func(*ocispec.Index)) {
	index := p.Index()
	change(&index)
	data, err := json.Marshal(index)
	if err != nil {
		panic(err)
	}
	p.Entries[p.At(ocispec.ImageIndexFile)].Data = data
}

// Part is an entry with its role.
type Part struct {
	Role string // such as "index" or "prod/shop layer"
	Name string // of the entry
}

// Parts returns the parts in the order of their entries. A blob with several roles has the first one.
//
// The roles are "oci-layout", "index", "contents", "trust v1", "prod/shop" for a stream, "prod record" for the record of an
// environment and the reference of an artifact, each followed by "manifest", "document", "signature manifest",
// "signature config", "signature payload", "layer", "delta", "config", "index of images" or, for manifests below one, "image
// manifest"; with a number from the second one of a kind on.
func (p *Package) Parts() []Part {
	w := walk{p, map[string]string{ocispec.ImageLayoutFile: "oci-layout", ocispec.ImageIndexFile: "index"}, map[string]bool{}}
	for _, d := range p.Index().Manifests {
		w.named(d)
	}
	var parts []Part
	for _, e := range p.Entries {
		if role := w.roles[e.Name]; role != "" {
			parts = append(parts, Part{role, e.Name})
		}
	}
	return parts
}

// Part returns the name of the entry with a role. It panics if there is none.
func (p *Package) Part(role string) string {
	parts := p.Parts()
	for _, part := range parts {
		if part.Role == role {
			return part.Name
		}
	}
	panic(fmt.Sprintf("no part %q among %q", role, parts))
}

type walk struct {
	*Package
	roles map[string]string // by entry
	taken map[string]bool
}

func (w walk) note(d ocispec.Descriptor, role string) {
	name := BlobName(d.Digest)
	if w.roles[name] != "" {
		return
	}
	for n, base := 2, role; w.taken[role]; n++ {
		role = base + " " + strconv.Itoa(n)
	}
	w.roles[name], w.taken[role] = role, true
}

// named notes what a manifest of the index and those below it consist of.
func (w walk) named(d ocispec.Descriptor) {
	name := d.Annotations[ocispec.AnnotationRefName]
	switch folder, rest, _ := strings.Cut(name, "/"); {
	case name == airgap.ContentsName:
		w.manifest(d, "contents", "manifest", "config", "document")
	case folder == bundle.TrustRepository:
		w.manifest(d, "trust "+rest, "manifest", "document", "layer")
	case folder == "bundles" || folder == "environments":
		cut := strings.LastIndexByte(rest, '/')
		of := rest[:cut]
		if folder == "environments" {
			of += " record"
		}
		if strings.HasSuffix(rest, ".sig") {
			w.manifest(d, of, "signature manifest", "signature config", "signature payload")
		} else {
			w.manifest(d, of, "manifest", "document", "layer")
		}
	default:
		w.manifest(d, name, "manifest", "config", "layer")
	}
}

func (w walk) manifest(d ocispec.Descriptor, of, manifest, config, layer string) {
	var m struct {
		Config    *ocispec.Descriptor
		Layers    []ocispec.Descriptor
		Manifests []ocispec.Descriptor
	}
	if data := w.Get(BlobName(d.Digest)); data == nil || json.Unmarshal(data, &m) != nil {
		return
	}
	if m.Manifests != nil {
		manifest = "index of images"
	}
	w.note(d, of+" "+manifest)
	if m.Config != nil {
		w.note(*m.Config, of+" "+config)
	}
	for _, l := range m.Layers {
		role := layer
		if l.MediaType == delta.MediaType {
			role = "delta"
		}
		w.note(l, of+" "+role)
	}
	for _, child := range m.Manifests {
		w.manifest(child, of, "image manifest", config, layer)
	}
}

// Replace gives a blob another content and therefore another digest, and has everything that names it name the new one, up
// to the index: only signatures tell the difference.
func (p *Package) Replace(name string, data []byte) {
	at := p.At(name)
	if at < 0 {
		panic("no entry " + name)
	}
	old, size := p.Entries[at].Name, len(p.Entries[at].Data)
	p.Entries[at] = Blob(data)
	if !strings.HasPrefix(old, ocispec.ImageBlobsDir+"/") {
		p.Entries[at] = File(old, data)
		return
	}
	was, is := digest.NewDigestFromEncoded(digest.SHA256, old[strings.LastIndexByte(old, '/')+1:]), digest.FromBytes(data)
	if was == is {
		return
	}
	p.rename(was, is, size, len(data))
}

// rename has manifests and the index name another digest and size.
func (p *Package) rename(was, is digest.Digest, oldSize, newSize int) {
	for _, e := range slices.Clone(p.Entries) {
		if !bytes.Contains(e.Data, []byte(was)) && !bytes.Contains(e.Data, []byte(was.Encoded()+".sig")) {
			continue
		}
		var document any
		decoder := json.NewDecoder(bytes.NewReader(e.Data))
		decoder.UseNumber()
		if decoder.Decode(&document) != nil {
			continue // a layer that happens to have it
		}
		data, err := json.Marshal(redirect(document, was, is, oldSize, newSize))
		if err != nil {
			panic(err)
		}
		p.Replace(e.Name, data)
	}
}

// redirect returns v with the digest is in place of was, in descriptors and in the tags of signatures.
func redirect(v any, was, is digest.Digest, oldSize, newSize int) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = redirect(v[i], was, is, oldSize, newSize)
		}
	case map[string]any:
		if v["digest"] == string(was) {
			v["digest"] = string(is)
			if fmt.Sprint(v["size"]) == strconv.Itoa(oldSize) {
				v["size"] = newSize
			}
			delete(v, "data")
		}
		for k := range v {
			v[k] = redirect(v[k], was, is, oldSize, newSize)
		}
	case string:
		return strings.ReplaceAll(strings.ReplaceAll(v, string(was), string(is)), bundle.SignatureTag(was), bundle.SignatureTag(is))
	}
	return v
}
