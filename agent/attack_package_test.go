package agent

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
)

// What becomes of a package, beside being refused for a reason.
const (
	unreadable bundle.Reason = "Broken" // it is no package
	harmless   bundle.Reason = "taken"  // what is signed is taken, and nothing else is looked at
)

// changed packs release 6 of the agent's stream and has change alter the package.
func packed(change func(d *depot, p *packagetest.Package)) func(*depot) []byte {
	return func(d *depot) []byte {
		p := d.pack(d.goodsOf(6, d.stream))
		change(d, p)
		return p.Bytes()
	}
}

// listing packs release 6 with another list of contents.
func listing(change func(d *depot, c *airgap.Contents)) func(*depot) []byte {
	return func(d *depot) []byte {
		g := d.goodsOf(6, d.stream)
		g.contents = func(c *airgap.Contents) { change(d, c) }
		return d.pack(g).Bytes()
	}
}

// renamed packs the releases of g with other names in the index.
func renamed(d *depot, g goods, from, to string) []byte {
	for i := range g.refs {
		g.refs[i].Name = strings.Replace(g.refs[i].Name, from, to, 1)
	}
	return d.pack(g).Bytes()
}

// layerOf returns the digest of the last layer of the image of the agent's stream.
func (d *depot) layerOf(p *packagetest.Package) digest.Digest {
	name := p.Part(d.images.host + "/image-drone/1 layer 2")
	return digest.NewDigestFromEncoded(digest.SHA256, name[strings.LastIndexByte(name, '/')+1:])
}

// Whoever carries a medium can also make packages of their own, from what is signed and from what is not.
func TestAttackWithAPackage(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(d *depot) []byte
		want bundle.Reason
		late bool // it takes its place in the order, and nothing else
	}{
		{name: "a package of an older release", want: bundle.OlderRelease, make: func(d *depot) []byte { return d.pack(d.goodsOf(4, d.stream)).Bytes() }},
		{name: "another cluster type under our names", want: bundle.WrongClusterType, make: func(d *depot) []byte {
			return renamed(d, d.goodsOf(6, d.other), "bundles/dev/large", "bundles/dev/drone")
		}},
		{name: "another platform under our names", want: bundle.WrongPlatform, make: func(d *depot) []byte {
			ours := d.stream
			defer func() { d.stream = ours }()
			d.stream.Platform = "test"
			return d.pack(d.goodsOf(6, d.stream)).Bytes()
		}},
		{name: "a package without signatures", want: bundle.Unsigned, make: packed(func(_ *depot, p *packagetest.Package) {
			p.ChangeIndex(func(i *ocispec.Index) {
				i.Manifests = slices.DeleteFunc(i.Manifests, func(m ocispec.Descriptor) bool {
					return strings.HasSuffix(m.Annotations[ocispec.AnnotationRefName], ".sig")
				})
			})
		})},
		{name: "a list with fewer blobs", want: harmless, make: listing(func(_ *depot, c *airgap.Contents) { c.Blobs, c.Bytes = 1, 1 })},
		{name: "a list with more blobs", want: harmless, make: listing(func(_ *depot, c *airgap.Contents) { c.Blobs += 1000 })},
		{name: "a list without releases and artifacts", want: harmless, make: listing(func(_ *depot, c *airgap.Contents) { c.Releases, c.Artifacts = nil, nil })},
		{name: "a list with wrong users of blobs", want: harmless, make: listing(func(_ *depot, c *airgap.Contents) {
			for i := range c.Artifacts {
				c.Artifacts[i].UsedBy = []string{"dev/large"}
			}
		})},
		{name: "another platform's list of contents", want: bundle.WrongPlatform, make: listing(func(_ *depot, c *airgap.Contents) { c.Platform = "test" })},
		{name: "a list that leaves out what the site lacks", want: "LacksBase", make: func(d *depot) []byte {
			g := d.goodsOf(6, d.stream)
			layer := d.layerOf(d.pack(g))
			g.contents = func(c *airgap.Contents) { c.LeftOut = []airgap.ContentsBlob{{Digest: layer, Size: 1000}} }
			p := d.pack(g)
			at := p.At(packagetest.BlobName(layer))
			p.Entries = slices.Delete(p.Entries, at, at+1)
			return p.Bytes()
		}},
		{name: "a list that calls present blobs left out", want: "LacksBase", make: func(d *depot) []byte {
			g := d.goodsOf(6, d.stream)
			layer := d.layerOf(d.pack(g))
			g.contents = func(c *airgap.Contents) { c.LeftOut = []airgap.ContentsBlob{{Digest: layer, Size: 1000}} }
			return d.pack(g).Bytes()
		}},
		{name: "a list that hides what is left out", want: "PackageIncomplete", make: packed(func(d *depot, p *packagetest.Package) {
			at := p.At(packagetest.BlobName(d.layerOf(p)))
			p.Entries = slices.Delete(p.Entries, at, at+1)
		})},
		{name: "a list with impossible sizes", want: harmless, make: listing(func(_ *depot, c *airgap.Contents) {
			c.Bytes = 1 << 62
			for i := range c.Artifacts {
				c.Artifacts[i].Bytes = 1 << 62
			}
		})},
		{name: "a too large list of contents", want: unreadable, make: func(d *depot) []byte {
			p := d.pack(d.goodsOf(6, d.stream))
			p.Replace(p.Part("contents document"), append(p.Get(p.Part("contents document")), bytes.Repeat([]byte(" "), airgap.MaxContentsBytes)...))
			return p.Bytes()
		}},
		{name: "an unlisted image", want: harmless, make: func(d *depot) []byte {
			g := d.goodsOf(6, d.stream)
			g.image(d.images, "evil", d.image("evil", "amd64", "evil"))
			return d.pack(g).Bytes()
		}},
		{name: "an image under another name", want: harmless, make: func(d *depot) []byte {
			g := d.goodsOf(6, d.stream)
			for _, r := range slices.Clone(g.refs) {
				if strings.Contains(r.Name, "/image-drone") {
					r.Name = strings.Replace(r.Name, "/image-drone", "/evil", 1)
					g.refs = append(g.refs, r)
				}
			}
			return d.pack(g).Bytes()
		}},
		{name: "another image under a listed name", want: harmless, make: func(d *depot) []byte {
			g := d.goodsOf(6, d.stream)
			evil := d.image("evil", "amd64", "evil")
			var others goods
			others.image(d.images, "evil", evil)
			for i, r := range g.refs {
				if strings.Contains(r.Name, "/image-drone") {
					g.refs[i].From, g.refs[i].Root = others.refs[0].From, evil
				}
			}
			return d.pack(g).Bytes()
		}},
		{name: "an index of 20,001 manifests", want: unreadable, make: packed(func(_ *depot, p *packagetest.Package) {
			p.ChangeIndex(func(i *ocispec.Index) {
				i.Manifests = append(i.Manifests, slices.Repeat([]ocispec.Descriptor{{Digest: digest.FromString("x")}}, 20_001-len(i.Manifests))...)
			})
		})},
		{name: "a too large index", want: unreadable, make: packed(func(_ *depot, p *packagetest.Package) {
			p.ChangeIndex(func(i *ocispec.Index) { i.Annotations = map[string]string{"x": strings.Repeat("x", 4<<20)} })
		})},
		{name: "an index with an impossible size", want: bundle.TooLarge, make: packed(func(_ *depot, p *packagetest.Package) {
			p.ChangeIndex(func(i *ocispec.Index) {
				for j, m := range i.Manifests {
					if strings.HasPrefix(m.Annotations[ocispec.AnnotationRefName], "bundles/") {
						i.Manifests[j].Size = 1 << 60
					}
				}
			})
		})},
		{name: "too many entries", want: unreadable, make: packed(func(_ *depot, p *packagetest.Package) {
			var more []packagetest.Entry
			for n := range 200_001 {
				more = append(more, packagetest.File(fmt.Sprint("x", n), nil))
			}
			p.Entries = slices.Insert(p.Entries, 7, more...)
		})},
		{name: "too long names in the package", want: harmless, make: packed(func(_ *depot, p *packagetest.Package) {
			p.Entries = slices.Insert(p.Entries, 7, packagetest.File(strings.Repeat("x", 1<<16), nil))
		})},
		{name: "links, devices, pipes and outside paths", want: harmless, make: packed(func(d *depot, p *packagetest.Package) {
			p.Entries = slices.Insert(p.Entries, 7,
				packagetest.Entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "blobs/sha256/link", Linkname: "/etc/passwd"}},
				packagetest.Entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: packagetest.BlobName(digest.FromString("y")), Linkname: "index.json"}},
				packagetest.Entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: "blobs/sha256/device", Devmajor: 1, Devminor: 5}},
				packagetest.Entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "blobs/sha256/pipe"}},
				packagetest.File("../../../escape", []byte("evil")),
				packagetest.File(filepath.Join(d.dir, "agent.db"), []byte("evil")),
				packagetest.File("blobs/sha256/../../evil", []byte("evil")),
			)
		})},
		{name: "a link to the agent's files as a layer", want: "PackageIncomplete", make: packed(func(d *depot, p *packagetest.Package) {
			p.Entries[p.At(packagetest.BlobName(d.layerOf(p)))] = packagetest.Entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: packagetest.BlobName(d.layerOf(p)), Linkname: filepath.Join(d.dir, "agent.db")}}
		})},
		{name: "a gzip bomb as the tree", want: bundle.DigestMismatch, late: true, make: packed(func(d *depot, p *packagetest.Package) {
			p.Entries[p.At(p.Part("dev/drone layer"))].Data = gzipBomb()
		})},
		{name: "a gzip bomb as an image's manifest", want: bundle.DigestMismatch, make: packed(func(d *depot, p *packagetest.Package) {
			p.Entries[p.At(p.Part(d.images.host+"/image-drone/1 image manifest"))].Data = gzipBomb()
		})},
		{name: "a signed image with too many layers", want: bundle.BadContent, make: func(d *depot) []byte {
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: d.images.push("image-drone", ocispec.MediaTypeImageConfig, []byte("{}"))}
			for n := range 5000 {
				m.Layers = append(m.Layers, ocispec.Descriptor{Digest: digest.FromString(fmt.Sprint(n)), Size: 1})
			}
			return d.packImage(m)
		}},
		{name: "a signed index of nested images", want: bundle.BadContent, make: func(d *depot) []byte {
			at := d.image("image-drone", "amd64", "base")
			for range 10 {
				at = d.images.index("image-drone", at)
				at.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
			}
			return d.packRoot(at)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDepot(t)
			data := tc.make(d)
			d.registry.away.Store(true)
			d.images.images.away.Store(true)
			before := d.holding()
			for range 2 {
				r := d.imports(d.siege.file(data))
				if tc.late {
					before.Memory, before.Index = d.memory(), d.holding().Index
				}
				switch tc.want {
				case harmless:
					require.Contains(t, []intake.Outcome{intake.Taken, intake.Here}, r.own().Outcome, r.says())
					if r.Status.Items[0].State == bundle.Compliant { // else its image is missing
						d.requireHost("a: 6")
					} else {
						d.requireHost("a: 1")
					}
					for _, name := range d.images.refs() {
						require.NotContains(t, name, "evil", "only what the release lists is served")
					}
				case unreadable:
					require.NotEmpty(t, r.Error)
					d.requireNothing(before, r)
				default:
					require.Contains(t, r.says(), string(tc.want))
					d.requireNothing(before, r)
				}
			}
			require.NoFileExists(t, filepath.Join(filepath.Dir(d.dir), "escape"))
			d.registry.away.Store(false)
			d.images.images.away.Store(false)
			d.end(9)
		})
	}
}

// packRoot packs release 6, whose image is root.
func (d *depot) packRoot(root ocispec.Descriptor) []byte {
	d.t.Helper()
	manifest := d.releaseFor(d.stream, 6, map[string]ocispec.Descriptor{"image-drone:1": root})
	var g goods
	g.add(d.trust, bundle.TrustRepository, bundle.TrustTag(1), bundle.TrustTag(2))
	g.add(d.repository(d.stream), d.stream.Repository(), bundle.LatestTag, bundle.SignatureTag(manifest.Digest))
	g.image(d.images, "image-drone", root)
	return d.pack(g).Bytes()
}

// packImage is packRoot with an image of one manifest.
func (d *depot) packImage(m ocispec.Manifest) []byte {
	d.t.Helper()
	data, err := json.Marshal(m)
	require.NoError(d.t, err)
	return d.packRoot(d.images.push("image-drone", m.MediaType, data))
}

// A pipe that somebody has put in the place of a file, and one that never ends, cost little and hold nothing up.
func TestAttackByAPipeThatNeverEnds(t *testing.T) {
	d := newDepot(t)
	before := d.holding()
	pipe := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	r := d.imports(pipe)
	require.Contains(t, r.Error, "regular file")
	d.requireNothing(before, r)

	whole := d.pack(d.goodsOf(6, d.stream))
	endless := func(h tar.Header, behind int) io.Reader {
		h.Size = 1 << 40
		var head bytes.Buffer
		w := tar.NewWriter(&head)
		require.NoError(t, w.WriteHeader(&h))
		p := packagetest.Package{Entries: whole.Entries[:behind]}
		begin := p.Bytes()
		return io.MultiReader(bytes.NewReader(begin[:len(begin)-1024]), &head, &endlessReader{})
	}
	for name, from := range map[string]io.Reader{
		"zeros":            &endlessReader{},
		"an endless index": endless(tar.Header{Typeflag: tar.TypeReg, Name: ocispec.ImageIndexFile}, 1),
		"an endless blob":  endless(tar.Header{Typeflag: tar.TypeReg, Name: packagetest.BlobName(digest.FromString("x"))}, 5),
	} {
		counted := &countedReader{Reader: from}
		r, err := d.client.Import(t.Context(), ImportRequest{Paths: []string{"-"}, Stdin: counted})
		require.NoError(t, err, name)
		d.requireNothing(before, r)
		require.Less(t, counted.n.Load(), int64(64<<20), name)
	}
}

// endlessReader never ends.
type endlessReader struct{}

func (*endlessReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }
