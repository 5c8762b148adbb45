package airgap_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
)

// FuzzReader reads anything as a package, from front to back. Chance seldom gets through a tar's checksums and the digests of
// the list of contents. Therefore index and list are also varied by themselves, each in a package that is right otherwise.
func FuzzReader(f *testing.F) {
	list := `{"schema":1,"platform":"coffee","releases":[],"artifacts":[],"blobs":4,"bytes":9}`
	f.Add([]byte("hello"), []byte(nil), []byte(nil))
	f.Add([]byte(nil), []byte(`{"manifests":[]}`), []byte(nil))
	f.Add([]byte(nil), []byte(`{"manifests":[{"digest":"sha256:../x","size":-1,"annotations":{"org.opencontainers.image.ref.name":"site"}}]}`), []byte(nil))
	f.Add([]byte(nil), []byte(`{"manifests":[{"digest":"sha256:`+strings.Repeat("0", 64)+`","size":4611686018427387904,"annotations":{"org.opencontainers.image.ref.name":"site"}}]}`), []byte(nil))
	f.Add([]byte(nil), []byte(nil), []byte(list))
	f.Add([]byte(nil), []byte(nil), []byte(`{"schema":1,"blobs":-1}`))
	f.Add(listed(f, []byte(list)).Bytes(), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, file, index, list []byte) {
		switch {
		case len(index) > 0:
			p := listed(t, []byte("{}"))
			p.Entries[1].Data = index
			file = p.Bytes()
		case len(list) > 0:
			file = listed(t, list).Bytes()
		}
		inOrder, ok := readOnce(t, file, func() (*airgap.Reader, error) { return airgap.NewReader(io.MultiReader(bytes.NewReader(file))) })
		anyOrder, fine := readOnce(t, file, func() (*airgap.Reader, error) { return airgap.NewReaderAt(bytes.NewReader(file), int64(len(file))) })
		if ok && fine {
			require.Equal(t, inOrder, anyOrder, "a pipe and a file hold the same")
		}
	})
}

// readOnce reads a package to its end, and returns the sizes of its blobs; false if it is none.
func readOnce(t *testing.T, file []byte, open func() (*airgap.Reader, error)) (map[digest.Digest]int64, bool) {
	r, err := open()
	if err != nil {
		return nil, false
	}
	if c := r.Contents(); c != nil {
		data, err := c.Marshal()
		require.NoError(t, err)
		again, err := airgap.ParseContents(data)
		require.NoError(t, err)
		require.Equal(t, c, &again)
	}
	seen := map[digest.Digest]int64{}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return seen, true
		}
		if err != nil {
			require.ErrorIs(t, err, airgap.ErrFormat)
			return nil, false
		}
		require.NotContains(t, seen, e.Digest, "a blob comes once")
		seen[e.Digest] = e.Size
		n, err := io.Copy(io.Discard, e.Content)
		require.LessOrEqual(t, n, int64(len(file)), "no more than there is")
		if err == nil {
			require.Equal(t, e.Size, n)
		}
	}
}

// listed is a package with these bytes as its list of contents, and one more blob.
func listed(t testing.TB, list []byte) *packagetest.Package {
	t.Helper()
	manifest, blobs, err := packagetest.ContentsBlobs(list)
	require.NoError(t, err)
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	require.NoError(t, w.Index([]ocispec.Descriptor{manifest}))
	for _, data := range append(blobs, []byte("blob")) {
		require.NoError(t, w.Blob(bundle.NewBlob("", data).Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }))
	}
	require.NoError(t, w.Close())
	p, err := packagetest.Parse(out.Bytes())
	require.NoError(t, err)
	return p
}

// FuzzContents reads anything as a list of contents.
func FuzzContents(f *testing.F) {
	zero := "sha256:" + strings.Repeat("0", 64)
	f.Add([]byte(`{"schema":1,"platform":"coffee","releases":[{"environment":"dev","clusterType":"shop","number":1,"tag":"s0-1","digest":"` + zero + `"}],` +
		`"artifacts":[{"type":"image","repository":"ghcr.io/x","digest":"` + zero + `","bytes":5,"usedBy":["dev/shop"]}],"leftOut":[{"digest":"` + zero + `","size":1}]}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`{"schema":1,"bytes":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := airgap.ParseContents(data)
		if err != nil {
			require.ErrorIs(t, err, airgap.ErrFormat)
			return
		}
		printed, err := c.Marshal()
		require.NoError(t, err)
		again, err := airgap.ParseContents(printed)
		require.NoError(t, err)
		reprinted, err := again.Marshal()
		require.NoError(t, err)
		require.Equal(t, printed, reprinted)
	})
}

// A tar has kinds of entries that no package has. None of them is looked at, and none is written anywhere.
func TestAReaderPassesOverWhatIsNoFile(t *testing.T) {
	p := listed(t, []byte(`{"schema":1}`))
	more := []packagetest.Entry{
		{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json2", Linkname: "/etc/passwd"}},
		{Header: tar.Header{Typeflag: tar.TypeLink, Name: "blobs/sha256/x", Linkname: "/etc/passwd"}},
		{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "blobs/sha256/pipe"}},
		{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "blobs/sha256/device", Devmajor: 8}},
		packagetest.File("../../escape", []byte("evil")),
		packagetest.File("/etc/cron.d/evil", []byte("evil")),
		packagetest.File("blobs/sha256/../../x", []byte("evil")),
		packagetest.File("blobs/sha512/"+strings.Repeat("0", 10), []byte("evil")),
	}
	p.Entries = append(p.Entries[:5:5], append(more, p.Entries[5:]...)...)
	r, err := airgap.NewReader(bytes.NewReader(p.Bytes()))
	require.NoError(t, err)
	var names []digest.Digest
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		names = append(names, e.Digest)
	}
	require.Len(t, names, 4)
	require.Equal(t, digest.FromString("blob"), names[3])
}

// A sparse file of a few bytes stands for any number of zeros: nobody reads them.
func TestSparseFilesAreNoBlobs(t *testing.T) {
	sparse, err := os.ReadFile("testdata/sparse.tar") // blobs/sha256/000…: 8 TiB of zeros
	require.NoError(t, err)
	head := listed(t, []byte(`{"schema":1}`)).Bytes()
	file := append(head[:len(head)-1024:len(head)-1024], sparse...)
	for _, open := range []func() (*airgap.Reader, error){
		func() (*airgap.Reader, error) { return airgap.NewReader(io.MultiReader(bytes.NewReader(file))) },
		func() (*airgap.Reader, error) { return airgap.NewReaderAt(bytes.NewReader(file), int64(len(file))) },
	} {
		seen, ok := readOnce(t, file, open)
		require.True(t, ok)
		require.Len(t, seen, 4)
		require.NotContains(t, seen, digest.NewDigestFromEncoded(digest.SHA256, strings.Repeat("0", 64)))
	}
}
