package medium_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// sitePackage returns the bytes of a package with a list of contents and a blob of this text.
func sitePackage(t *testing.T, text string) []byte {
	t.Helper()
	list, err := airgap.Contents{Platform: "coffee"}.Marshal()
	require.NoError(t, err)
	layer, config := bundle.NewBlob(airgap.MediaTypeContents, list), bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: airgap.MediaTypeContents, Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	require.NoError(t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	named := manifest.Descriptor
	named.Annotations = map[string]string{ocispec.AnnotationRefName: airgap.ContentsName}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	require.NoError(t, w.Index([]ocispec.Descriptor{named}))
	for _, b := range []bundle.Blob{manifest, config, layer, bundle.NewBlob("application/x", []byte(text))} {
		require.NoError(t, w.Blob(b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// writePackage writes data as path, in parts of split bytes.
func writePackage(t *testing.T, path string, split int64, data []byte) []string {
	t.Helper()
	o, err := medium.Create(medium.OS{}, path, split)
	require.NoError(t, err)
	_, err = io.Copy(o, bytes.NewReader(data))
	require.NoError(t, err)
	require.NoError(t, o.Commit())
	return o.Files()
}

// read returns the texts of a source's blobs, and their digests.
func read(t *testing.T, s *medium.Source) (texts []string) {
	t.Helper()
	r, err := s.Reader()
	require.NoError(t, err)
	require.Equal(t, "coffee", r.Contents().Platform)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		data, err := io.ReadAll(e.Content)
		require.NoError(t, err)
		require.Equal(t, e.Digest, digest.FromBytes(data))
		texts = append(texts, string(data))
	}
}

func TestAPackageIsOpenedInEveryForm(t *testing.T) {
	data := sitePackage(t, strings.Repeat("content ", 1500))
	dir := t.TempDir()
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	for _, d := range []string{"one", "parts", "a", "b", "layout"} {
		require.NoError(t, os.Mkdir(in(d), 0o755))
	}
	writePackage(t, in("one", "site.tar"), 0, data)
	parts := writePackage(t, in("parts", "site.tar"), 4096, data)
	require.Len(t, parts, 7)
	require.Equal(t, in("parts", "site.tar.parts.json"), parts[5])
	for i, name := range parts { // two media
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(in([]string{"a", "b"}[i%2], strings.ToUpper(filepath.Base(name))), content, 0o444))
	}
	unpack(t, data, in("layout"))
	l, err := archive.Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	require.Len(t, l.Index().Manifests, 1)

	var want []string
	for _, test := range []struct {
		name  string
		names []string
	}{
		{"the file", []string{in("one", "site.tar")}},
		{"its folder", []string{in("one")}},
		{"the folder of the parts", []string{in("parts")}},
		{"the manifest of the parts", parts[5:6]},
		{"one part", parts[2:3]},
		{"all files, as site.tar.* names them", parts},
		{"the name of the whole file", []string{in("parts", "site.tar")}},
		{"all parts without the manifest, in another order", []string{parts[3], parts[0], parts[4], parts[1], parts[2]}},
		{"parts of two media, with names in upper case", []string{in("a", "SITE.TAR.003"), in("b", "SITE.TAR.002")}},
		{"an unpacked layout", []string{in("layout")}},
		{"standard input", []string{"-"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := medium.Open(medium.OS{}, bytes.NewReader(data), test.names...)
			require.NoError(t, err)
			texts := read(t, s)
			if want == nil {
				want = texts
			}
			require.Equal(t, want, texts)
			require.NoError(t, s.Damaged(t.Context()))
			require.NoError(t, s.Close())
		})
	}
}

// unpack does what tar -x does.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	l, err := archive.Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	index, err := json.Marshal(l.Index())
	require.NoError(t, err)
	write := func(name string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o444))
	}
	write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	write("index.json", index)
	all, err := l.Digests()
	require.NoError(t, err)
	for _, d := range all {
		r, err := l.Blob(d)
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		write(archive.BlobPath(d), content)
	}
}

func TestPartsThatDoNotMakeAPackage(t *testing.T) {
	data, other := sitePackage(t, strings.Repeat("content ", 1500)), sitePackage(t, strings.Repeat("another ", 1000))
	for _, test := range []struct {
		name   string
		change func(t *testing.T, dir string)
		names  []string
		says   string
	}{
		{"missing parts", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "site.tar.002")))
			require.NoError(t, os.Remove(filepath.Join(dir, "site.tar.004")))
		}, []string{"site.tar.001"}, "2 of 5 parts of site.tar are missing: site.tar.002, site.tar.004"},
		{"no manifest", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "site.tar.parts.json")))
		}, []string{"site.tar.001"}, "site.tar.parts.json is missing: it names the parts of site.tar, and was written beside them"},
		{"no manifest in a folder", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "site.tar.parts.json")))
		}, []string{""}, "site.tar.parts.json is missing: it names the parts of site.tar, and was written beside them"},
		{"a part that is cut short", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "site.tar.002"), 4000))
		}, []string{""}, "site.tar.002 (4000 bytes in place of 4096) is not as it was exported: copy it again"},
		{"parts of two files", func(t *testing.T, dir string) {
			writePackage(t, filepath.Join(dir, "other.tar"), 4096, other)
		}, []string{"site.tar.001", "other.tar.002"}, "belong to two files"},
		{"two packages in a folder", func(t *testing.T, dir string) {
			writePackage(t, filepath.Join(dir, "other.tar"), 0, other)
		}, []string{""}, "holds several packages: other.tar, site.tar: name one of them"},
		{"a part of another name", func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "site.tar.006"), nil, 0o644))
		}, []string{"site.tar.006"}, "site.tar.006 is no part of site.tar, which has 5"},
		{"two files that are no parts", nil, []string{"a.tar", "b.tar"}, "only the parts of one file can be named together"},
		{"a part and a file", nil, []string{"site.tar.001", "b.tar"}, "is no part of a file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writePackage(t, filepath.Join(dir, "site.tar"), 4096, data)
			if test.change != nil {
				test.change(t, dir)
			}
			var names []string
			for _, name := range test.names {
				names = append(names, filepath.Join(dir, name))
			}
			_, err := medium.Open(medium.OS{}, nil, names...)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestADamagedPartIsNamed(t *testing.T) {
	dir := t.TempDir()
	parts := writePackage(t, filepath.Join(dir, "site.tar"), 4096, sitePackage(t, strings.Repeat("content ", 1500)))
	content, err := os.ReadFile(parts[3])
	require.NoError(t, err)
	content[7] ^= 1
	require.NoError(t, os.WriteFile(parts[3], content, 0o644))
	s, err := medium.Open(medium.OS{}, nil, dir)
	require.NoError(t, err)
	defer s.Close()
	err = s.Damaged(t.Context())
	require.ErrorIs(t, err, airgap.ErrFormat)
	require.ErrorContains(t, err, parts[3]+" is not as it was exported: copy it again")
	require.NotContains(t, err.Error(), parts[2])
}

func TestAFolderWithoutAPackage(t *testing.T) {
	dir := t.TempDir()
	_, err := medium.Open(medium.OS{}, nil, dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	f, err := os.Create(filepath.Join(dir, "reports.tar"))
	require.NoError(t, err)
	require.NoError(t, airgap.WriteReports(f, [][]byte{[]byte("{}")}))
	require.NoError(t, f.Close())
	_, err = medium.Open(medium.OS{}, nil, dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "only reports.tar (reports)")
}

func TestOtherFilesBlockNoPackage(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	look := func() (names, skipped []string) {
		all, others, err := medium.OpenEach(medium.OS{}, nil, dir)
		require.NoError(t, err)
		for _, p := range all {
			require.NotNil(t, p.Head)
			names = append(names, filepath.Base(p.Name()))
			require.NoError(t, p.Close())
		}
		for _, o := range others {
			skipped = append(skipped, fmt.Sprintf("%s: %v", filepath.Base(o.Name), o.Err))
		}
		return names, skipped
	}
	var photos bytes.Buffer
	w := tar.NewWriter(&photos)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "photo.jpg", Size: 3, Mode: 0o600}))
	_, err := w.Write([]byte("jpg"))
	require.NoError(t, errors.Join(err, w.Close()))

	write("photos.tar", photos.Bytes())
	write("reports.tar", nil)
	_, _, err = medium.OpenEach(medium.OS{}, nil, dir)
	require.EqualError(t, err, "no package in "+dir+": photos.tar: unusable file: oci-layout is missing; reports.tar: unusable file: the file holds nothing")

	write("site-2.tar", sitePackage(t, "two"))
	writePackage(t, filepath.Join(dir, "site-3.tar"), 1<<20, sitePackage(t, "three"))
	writePackage(t, filepath.Join(dir, "site-4.tar"), 2048, sitePackage(t, strings.Repeat("four", 1000)))
	require.NoError(t, os.Remove(filepath.Join(dir, "site-4.tar.002")))
	write("site-5.tar", sitePackage(t, strings.Repeat("five", 1000))[:1100])
	names, skipped := look()
	require.Equal(t, []string{"site-2.tar", "site-3.tar"}, names)
	require.Len(t, skipped, 4)
	require.Equal(t, "photos.tar: unusable file: oci-layout is missing", skipped[0])
	require.Equal(t, "reports.tar: unusable file: the file holds nothing", skipped[1])
	require.Regexp(t, `^site-4\.tar\.parts\.json: 1 of [0-9]+ parts of site-4\.tar are missing: site-4\.tar\.002$`, skipped[2])
	require.Contains(t, skipped[3], "site-5.tar: the medium or this copy is damaged: ")

	src, err := medium.Open(medium.OS{}, nil, dir)
	require.Nil(t, src)
	require.ErrorContains(t, err, "holds several packages: site-2.tar, site-3.tar: name one of them")
}
