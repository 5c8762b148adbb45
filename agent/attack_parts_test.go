package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
)

// depot is a publisher of two streams, whose releases need images, and an agent of the first one that runs. The agent has
// release 5, without images.
type depot struct {
	*siege
	images *imageSite
	other  bundle.Stream
}

// newDepot begins a test with an agent that stores all streams of its platform, and has roots to trust.
func newDepot(t *testing.T) *depot {
	t.Helper()
	t.Parallel()
	return depotFor(t)
}

func depotFor(t testing.TB) *depot {
	t.Helper()
	d := &depot{}
	d.siege = besieged(t, withRoots, func(s *siege) {
		d.images = s.withImages()
		s.opts.Intake.Others, s.opts.Intake.Platforms = true, graph.Platforms{"linux/amd64"}
		d.other = bundle.Stream{Platform: s.stream.Platform, Environment: "dev", ClusterType: "large"}
	})
	d.offerTrust(d.first, d.next())
	return d
}

// goods are what a package is made of.
type goods struct {
	refs     []packagetest.Ref
	offered  digest.Digest // the release for the agent
	contents func(*airgap.Contents)
}

// goods are release n of both streams, with the trust documents and the record of the environment. Each release needs an image
// of its own; the two images share a layer.
func (d *depot) goods(n int64) goods { return d.goodsOf(n, d.stream, d.other) }

func (d *depot) goodsOf(n int64, streams ...bundle.Stream) goods {
	d.t.Helper()
	var g goods
	g.add(d.trust, bundle.TrustRepository, bundle.TrustTag(1), bundle.TrustTag(2))
	types := map[string]digest.Digest{}
	images := map[string]ocispec.Descriptor{}
	for _, s := range streams {
		name := "image-" + s.ClusterType
		images[name] = d.images.index(name, d.image(name, "amd64", fmt.Sprint("base ", n), fmt.Sprint(name, n)), d.image(name, "arm64", fmt.Sprint("arm ", n)))
		manifest := d.releaseFor(s, n, map[string]ocispec.Descriptor{name + ":1": images[name]})
		types[s.ClusterType] = manifest.Digest
		if s == d.stream {
			g.offered = manifest.Digest
		}
		g.add(d.repository(s), s.Repository(), bundle.LatestTag, fmt.Sprintf("s%d-%d", d.epoch, n), bundle.SignatureTag(manifest.Digest))
	}
	environment := bundle.EnvironmentRepository(d.stream.Environment)
	g.add(d.at(environment), environment, bundle.LatestTag, bundle.SignatureTag(d.record(n, types)))
	for _, name := range slices.Sorted(maps.Keys(images)) {
		g.image(d.images, name, images[name])
	}
	return g
}

// image pushes an image that shares nothing with those of other releases.
func (d *depot) image(name, architecture string, layers ...string) ocispec.Descriptor {
	d.t.Helper()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	m.Config = d.images.push(name, ocispec.MediaTypeImageConfig, fmt.Appendf(nil, `{"os":"linux","architecture":%q,"comment":%q}`, architecture, layers))
	for _, l := range layers {
		m.Layers = append(m.Layers, d.images.push(name, ocispec.MediaTypeImageLayerGzip, layer(l, 1000)))
	}
	data, err := json.Marshal(m)
	require.NoError(d.t, err)
	manifest := d.images.push(name, m.MediaType, data)
	manifest.Platform = &ocispec.Platform{OS: "linux", Architecture: architecture}
	return manifest
}

func (g *goods) add(repo oci.Target, repository string, tags ...string) {
	for _, tag := range tags {
		root, err := repo.Resolve(context.Background(), tag)
		if err != nil {
			panic(err)
		}
		g.refs = append(g.refs, packagetest.Ref{Name: repository + "/" + tag, From: repo, Root: root})
	}
}

func (g *goods) image(s *imageSite, name string, root ocispec.Descriptor) {
	repo, err := oci.Location{Host: s.host}.Repository(name, oci.Options{HTTPClient: &http.Client{Timeout: time.Minute}})
	if err != nil {
		panic(err)
	}
	for _, ref := range []string{"/1", "@" + root.Digest.String()} {
		g.refs = append(g.refs, packagetest.Ref{Name: s.host + "/" + name + ref, From: repo, Root: root, Platform: "linux/amd64"})
	}
}

// pack returns the package of g.
func (d *depot) pack(g goods) *packagetest.Package {
	d.t.Helper()
	p, err := packagetest.Make(context.Background(), g.refs, func(c *airgap.Contents) {
		if g.contents != nil {
			g.contents(c)
		}
	})
	require.NoError(d.t, err)
	return p
}

// releaseFor publishes release n of a stream, whose one assignment carries images.
func (d *depot) releaseFor(s bundle.Stream, n int64, images map[string]ocispec.Descriptor) ocispec.Descriptor {
	d.t.Helper()
	var list []bundle.Artifact
	for ref, image := range images {
		repository, _, _ := strings.Cut(ref, ":")
		list = append(list, bundle.Artifact{
			Type: bundle.ArtifactImage, Name: d.images.host + "/" + repository, Reference: d.images.host + "/" + ref, Digest: image.Digest.String(), UsedBy: []string{"shop-main"},
		})
	}
	lines, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts(list))
	require.NoError(d.t, err)
	release := d.draft(n, map[string]string{"shop-main/config.yaml": fmt.Sprint("a: ", n), bundle.ArtifactsPath: string(lines)})
	release.Release.ClusterType, release.Release.Artifacts, release.repo = s.ClusterType, sum, d.repository(s)
	release.ChangeList = func(as []bundle.Assignment) {
		for i := range as {
			as[i].Carry = bundle.CarryImages
		}
	}
	manifest := d.publish(release)
	require.NoError(d.t, release.repo.Tag(context.Background(), manifest, release.Release.Tag()))
	return manifest
}

// record publishes the record of the environment.
func (d *depot) record(n int64, types map[string]digest.Digest) digest.Digest {
	d.t.Helper()
	document, err := bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: d.stream.Platform, Environment: d.stream.Environment, Epoch: d.epoch, Sequence: n, IssuedAt: epoch, ClusterTypes: types,
	}.Marshal()
	require.NoError(d.t, err)
	config, layer := bundle.NewBlob(bundle.MediaTypeEnvironment, document), bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeEnvironment,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	require.NoError(d.t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	repo := d.at(bundle.EnvironmentRepository(d.stream.Environment))
	for _, b := range []bundle.Blob{config, layer, manifest} {
		if there, err := repo.Exists(context.Background(), b.Descriptor); err != nil || !there {
			require.NoError(d.t, repo.Push(context.Background(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	require.NoError(d.t, repo.Tag(context.Background(), manifest.Descriptor, bundle.LatestTag))
	require.NoError(d.t, agenttest.Sign(context.Background(), repo, manifest.Descriptor, d.key))
	return manifest.Descriptor.Digest
}

// holding is what must be as it was after a package that was refused.
type holding struct {
	Memory  memory
	Running digest.Digest
	// Index is that of the store: what the endpoint serves.
	Index string
	Host  string
}

func (d *depot) holding() holding {
	d.t.Helper()
	h := holding{Memory: d.memory(), Running: d.status().Release.Running.Digest}
	index, err := os.ReadFile(filepath.Join(d.dir, state.StoreDir, ocispec.ImageIndexFile))
	require.NoError(d.t, err)
	var host strings.Builder
	require.NoError(d.t, filepath.WalkDir(d.host, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			data, bad := os.ReadFile(path)
			fmt.Fprintln(&host, path, string(data))
			err = bad
		}
		return err
	}))
	h.Index, h.Host = string(index), host.String()
	return h
}

// imports imports a file, its parts, or a folder, through the running agent.
func (d *depot) imports(paths ...string) ImportResult {
	d.t.Helper()
	r, err := d.client.Import(context.Background(), ImportRequest{Paths: paths})
	require.NoError(d.t, err)
	return r
}

// own returns what became of the agent's own stream.
func (r ImportResult) own() (own intake.Stream) {
	for _, s := range r.Streams {
		if s.Own {
			own = s
		}
	}
	return own
}

// says returns everything that a person is told of an import.
func (r ImportResult) says() string {
	text := r.Error
	for _, s := range r.Streams {
		text += "\n" + fmt.Sprint(s.Name(), " ", s.Outcome, " ", s.Reason, " ", s.Message)
	}
	return text + "\n" + r.Status.Reason + " " + r.Status.Message
}

// requireNothing checks that a package changed nothing and that the import says why.
func (d *depot) requireNothing(before holding, r ImportResult) {
	d.t.Helper()
	require.NotEqual(d.t, Done, r.Verdict, r.says())
	require.False(d.t, r.own().Outcome.Good(), r.says())
	if r.Error == "" {
		require.NotEmpty(d.t, r.own().Message, r.says())
	}
	for _, text := range []string{r.Error, r.own().Message, r.Status.Message} {
		require.LessOrEqual(d.t, len(text), bundle.MaxMessageBytes)
		require.NotContains(d.t, text, "\x1b")
	}
	require.Equal(d.t, before, d.holding(), r.says())
}

// damages are what may become of each part of a package.
var damages = []struct {
	name string
	// do returns the medium's bytes. The other package is one that somebody else has published.
	do func(p, other *packagetest.Package, part packagetest.Part) []byte
}{
	{"a bit flipped", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		flipBit(p.Get(part.Name))
		return p.Bytes()
	}},
	{"a bit flipped, and what names it put right", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		changed := bytes.Clone(p.Get(part.Name))
		flipBit(changed)
		p.Replace(part.Name, changed)
		return p.Bytes()
	}},
	{"cut short", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		e := &p.Entries[p.At(part.Name)]
		e.Data = e.Data[:len(e.Data)/2]
		return p.Bytes()
	}},
	{"longer", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		e := &p.Entries[p.At(part.Name)]
		e.Data = append(e.Data, e.Data...)
		return p.Bytes()
	}},
	{"sectors of zeros", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		clear(p.Get(part.Name))
		return p.Bytes()
	}},
	{"left out", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		at := p.At(part.Name)
		p.Entries = append(p.Entries[:at], p.Entries[at+1:]...)
		return p.Bytes()
	}},
	{"the end of the file", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		whole := p.Bytes()
		p.Entries = p.Entries[:p.At(part.Name)]
		at := len(p.Bytes()) - 1024 // without the end of the tar
		return whole[:at+512+1]     // with the header of the part, and a byte of it
	}},
	{"there twice, the second time another", func(p, _ *packagetest.Package, part packagetest.Part) []byte {
		changed := bytes.Clone(p.Get(part.Name))
		flipBit(changed)
		p.Entries = append(p.Entries, packagetest.File(part.Name, changed))
		return p.Bytes()
	}},
	{"that of another publisher", func(p, other *packagetest.Package, part packagetest.Part) []byte {
		p.Entries[p.At(part.Name)].Data = bytes.Clone(other.Get(other.Part(part.Role)))
		return p.Bytes()
	}},
	{"that of another publisher, and what names it put right", func(p, other *packagetest.Package, part packagetest.Part) []byte {
		p.Replace(part.Name, bytes.Clone(other.Get(other.Part(part.Role))))
		return p.Bytes()
	}},
}

// flipBit flips a bit in the middle.
func flipBit(data []byte) {
	if len(data) > 0 {
		data[len(data)/2] ^= 1
	}
}

// Whoever carries a medium can damage, cut, forge or exchange each part of a package. Whatever becomes of a part that the
// release needs, the import says so and changes nothing; and the package as it was exported is taken afterwards. Damage to
// what this agent does not read is no reason to leave the release: then exactly what was signed is taken.
func TestAttackOnEveryPartOfAPackage(t *testing.T) {
	d := newDepot(t)
	honest := d.key
	d.key = agenttest.NewKey().(*ecdsa.PrivateKey)
	other := d.pack(d.goodsOf(7, d.stream))
	d.key = honest
	// A trust document that was read once is read no more: so the next one comes first. A release of which the tree alone is
	// damaged is accepted, as with a registry: so the tree comes last.
	pairs, step := 0, sweeptest.Every(7)
	for _, pass := range []struct {
		of     string
		counts bool
	}{{"trust v2 ", true}, {"", true}, {"dev/drone layer", true}, {"trust v2 ", false}, {"", false}, {"dev/drone layer", false}} {
		counts := pass.counts
		parts := d.pack(d.goodsOf(6, d.stream)).Parts()
		for i, part := range parts {
			role := strings.ReplaceAll(part.Role, d.images.host+"/", "")
			for _, damage := range damages {
				if counts == needless(role, damage.name) || pass.of != early(role) {
					continue
				}
				if pairs++; pairs%step != 0 {
					continue
				}
				goods := d.goodsOf(6, d.stream)
				if !counts {
					goods = d.goodsOf(d.memory().Highest.Sequence+1, d.stream)
				}
				good := d.pack(goods)
				medium := damage.do(good.Clone(), other, good.Parts()[i])
				if bytes.Equal(medium, good.Bytes()) {
					continue // other publishers have the same
				}
				t.Run(role+"/"+damage.name, func(t *testing.T) {
					defer func(was testing.TB) { d.t = was }(d.t)
					d.t = t
					before := d.holding()
					d.cutOff(true)
					defer d.cutOff(false)
					r := d.imports(d.file(medium))
					if role == "dev/drone layer" { // what is signed takes its place in the order, and is not served before it is whole
						before.Memory, before.Index = d.memory(), d.holding().Index
					}
					if counts || !r.own().Outcome.Good() {
						d.requireNothing(before, r)
						return
					}
					d.imports(d.file(medium)) // settles what the pass has left to do
					require.Equal(t, goods.offered, r.Status.Release.Running.Digest)
					for _, item := range r.Status.Items {
						if item.State == bundle.Compliant {
							d.requireHost(fmt.Sprint("a: ", r.Status.Release.Running.Sequence))
						}
					}
				})
			}
		}
		if pass.of != "dev/drone layer" {
			continue
		}
		goods := d.goodsOf(d.memory().Highest.Sequence+1, d.stream)
		data := d.pack(goods).Bytes()
		d.cutOff(true)
		r := d.imports(d.file(data))
		require.Equal(t, intake.Taken, r.own().Outcome, r.says())
		require.Equal(t, goods.offered, r.Status.Release.Running.Digest)
		d.requireHost(fmt.Sprint("a: ", r.Status.Release.Running.Sequence))
		d.cutOff(false)
	}
}

// needless reports whether a damage is to something that the agent need not read: an import ends when it has everything; release
// documents and signatures are also within their manifests; trust documents that are known, the list's own config and the
// record of the environment are not read. An image that is put right after a change is another image, which the release does
// not list: its own one is missing.
func needless(role, damage string) bool {
	return strings.HasPrefix(damage, "there twice") || strings.HasPrefix(role, "trust v1 ") || strings.HasPrefix(role, "dev record ") ||
		strings.HasPrefix(role, "image-") && strings.HasSuffix(damage, "put right") ||
		slices.Contains([]string{"contents config", "trust v2 document", "dev/drone document", "dev/drone signature payload"}, role) && !strings.HasPrefix(damage, "the end") ||
		slices.Contains([]string{"contents manifest", "contents document", "dev/drone signature config"}, role) && strings.HasSuffix(damage, "put right")
}

// early returns which parts a part is tested with.
func early(role string) string {
	for _, of := range []string{"trust v2 ", "dev/drone layer"} {
		if strings.HasPrefix(role, of) {
			return of
		}
	}
	return ""
}

// cutOff takes the registries away, or gives them back.
func (d *depot) cutOff(away bool) {
	d.registry.away.Store(away)
	d.images.images.away.Store(away)
}
