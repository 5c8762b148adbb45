package airgap_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// fullPackage returns a package with one of each kind of content, in the order of a package, and the number of blobs in its
// head.
func fullPackage(t *testing.T) (data []byte, blobs []bundle.Blob, head int) {
	t.Helper()
	asJSON := func(mediaType string, v any) bundle.Blob {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return bundle.NewBlob(mediaType, data)
	}
	text := func(s string) bundle.Blob { return bundle.NewBlob("application/x", []byte(s)) }
	manifest := func(artifactType string, config bundle.Blob, layers ...bundle.Blob) bundle.Blob {
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Config: config.Descriptor}
		for _, l := range layers {
			m.Layers = append(m.Layers, l.Descriptor)
		}
		return asJSON(m.MediaType, m)
	}
	index := func(of ...bundle.Blob) bundle.Blob {
		i := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
		for _, m := range of {
			i.Manifests = append(i.Manifests, m.Descriptor)
		}
		return asJSON(i.MediaType, i)
	}
	list, err := airgap.Contents{Platform: "coffee"}.Marshal()
	require.NoError(t, err)
	contents, empty := bundle.NewBlob(airgap.MediaTypeContents, list), bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	site := manifest(airgap.MediaTypeContents, empty, contents)
	trustDoc, trustConfig := text("trust 1"), text("trust config")
	trust1 := manifest("trust", trustConfig, trustDoc)
	trust2Doc := text("trust 2")
	trust2 := manifest("trust", trustConfig, trust2Doc)
	release, tree := text("release"), text("tree")
	drone := manifest("bundle", release, tree)
	signConfig, signature := text("sign config"), text("signature")
	sig := manifest("", signConfig, signature)
	record, recordLayer := text("record"), text("record layer")
	environment := manifest("environment", record, recordLayer)
	config, layer := text("config"), text("layer")
	image := manifest("", config, layer)
	other := manifest("", text("config of another platform"), text("layer of another platform"))
	images := index(image, other)

	named := func(b bundle.Blob, name string) ocispec.Descriptor {
		d := b.Descriptor
		d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
		return d
	}
	blobs = []bundle.Blob{
		site, empty, contents, trust1, trustConfig, trustDoc, trust2, trust2Doc, drone, release, sig, signConfig, signature,
		environment, record, images, image, // the head
		tree, recordLayer, config, layer,
	}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	require.NoError(t, w.Index([]ocispec.Descriptor{
		named(images, "images.example/app/1.0"), named(images, "images.example/app@"+images.Descriptor.Digest.String()),
		named(sig, "bundles/dev/drone/"+bundle.SignatureTag(drone.Descriptor.Digest)), named(drone, "bundles/dev/drone/latest"), named(drone, "bundles/dev/drone/s0-1"),
		named(environment, "environments/dev/latest"), named(trust2, "trust/v2"), named(trust1, "trust/v1"), named(site, airgap.ContentsName),
	}))
	for _, b := range blobs {
		require.NoError(t, w.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	}
	require.NoError(t, w.Close())
	return out.Bytes(), blobs, 17
}

// reordered writes the files of a tar anew, in another order and with other names, and with one more blob.
func reordered(t *testing.T, data []byte, order func([]string), rename func(string) string, more bundle.Blob) []byte {
	t.Helper()
	files, names := map[string][]byte{}, []string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		names, files[h.Name] = append(names, h.Name), content
	}
	extra := "blobs/sha256/" + more.Descriptor.Digest.Encoded()
	names, files[extra] = append(names, extra), more.Data
	order(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: rename(name), Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := w.Write(files[name])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func digestsOf(t *testing.T, r *airgap.Reader) (all []digest.Digest) {
	t.Helper()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(all)%3 > 0 { // what is not read is passed over
			content, err := io.ReadAll(e.Content)
			require.NoError(t, err)
			require.EqualValues(t, e.Size, len(content))
			require.Equal(t, e.Digest, digest.FromBytes(content))
		}
		all = append(all, e.Digest)
	}
}

func TestEveryOrderIsReadInTheOrderOfAPackage(t *testing.T) {
	data, blobs, head := fullPackage(t)
	var want []digest.Digest
	for _, b := range blobs {
		want = append(want, b.Descriptor.Digest)
	}
	r, err := airgap.NewReader(bytes.NewBuffer(data))
	require.NoError(t, err)
	require.Equal(t, want, digestsOf(t, r))
	more := bundle.NewBlob("application/x", []byte("something that nothing names"))
	for name, order := range map[string]func([]string){
		"as it was written": func([]string) {}, "by name": slices.Sort[[]string], "backwards": slices.Reverse[[]string],
		"the index first": func(names []string) { slices.Reverse(names[2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			file := reordered(t, data, order, func(s string) string { return "./" + s }, more)
			r, err := airgap.NewReaderAt(bytes.NewReader(file), int64(len(file)))
			require.NoError(t, err)
			require.Equal(t, "coffee", r.Contents().Platform)
			got := digestsOf(t, r)
			require.Equal(t, want[:head], got[:head])
			require.ElementsMatch(t, append(slices.Clone(want), more.Descriptor.Digest), got)
			require.Equal(t, want, got[:len(want)])
		})
	}
}

// counting counts the bytes that are read.
type counting struct {
	*bytes.Reader
	n int64
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.Reader.ReadAt(b, at)
	c.n += int64(n)
	return n, err
}

// TestOnlyTheHeadIsReadForARefusal reads the head of a package in another order, whose blobs are large.
func TestOnlyTheHeadIsReadForARefusal(t *testing.T) {
	data, _, head := fullPackage(t)
	large := bundle.NewBlob("application/x", make([]byte, 4<<20))
	file := reordered(t, data, slices.Sort[[]string], func(s string) string { return s }, large)
	c := &counting{Reader: bytes.NewReader(file)}
	r, err := airgap.NewReaderAt(c, int64(len(file)))
	require.NoError(t, err)
	for range head {
		e, err := r.Next()
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, e.Content)
		require.NoError(t, err)
	}
	require.Less(t, c.n, int64(256<<10))
}

// FuzzOrder reads a damaged package in both ways. Neither fails otherwise than by an error, and no blob comes twice.
func FuzzOrder(f *testing.F) {
	f.Add(uint32(1600), byte(1), false)
	f.Add(uint32(600), byte(0x20), true)
	f.Fuzz(func(t *testing.T, at uint32, flip byte, sorted bool) {
		data, _, _ := fullPackage(t)
		if sorted {
			data = reordered(t, data, slices.Sort[[]string], func(s string) string { return "./" + s }, bundle.NewBlob("", nil))
		}
		data[int(at)%len(data)] ^= flip
		r, err := airgap.NewReaderAt(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		seen := map[digest.Digest]bool{}
		for {
			e, err := r.Next()
			if err != nil {
				return
			}
			require.False(t, seen[e.Digest])
			seen[e.Digest] = true
			_, _ = io.Copy(io.Discard, e.Content)
		}
	})
}
