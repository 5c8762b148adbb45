package airgap

import (
	"bytes"
	"crypto/rand"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// A package that was cut off anywhere is continued after its last whole blob, and has the same bytes then.
func TestAnUnfinishedPackageIsContinued(t *testing.T) {
	contents := map[digest.Digest][]byte{}
	var blobs []ocispec.Descriptor
	for _, size := range []int{0, 1, 511, 512, 513, 3000} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		d := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.FromBytes(data), Size: int64(size)}
		contents[d.Digest], blobs = data, append(blobs, d)
	}
	manifests := []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageManifest, Digest: blobs[1].Digest, Size: 1}}
	add := func(w *Writer, list []ocispec.Descriptor) {
		for _, d := range list {
			require.NoError(t, w.Blob(d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(contents[d.Digest])), nil }))
		}
		require.NoError(t, w.Close())
	}
	var file bytes.Buffer
	w := NewWriter(&file)
	require.NoError(t, w.Index(manifests))
	add(w, blobs)
	size, err := Size(manifests, blobs)
	require.NoError(t, err)
	require.EqualValues(t, file.Len(), size)

	for cut := 0; cut <= file.Len(); cut += 97 {
		part := file.Bytes()[:cut]
		whole, end, err := Kept(bytes.NewReader(part), manifests, blobs)
		require.NoError(t, err)
		require.LessOrEqual(t, end, int64(cut))
		if end == 0 {
			require.Zero(t, whole)
			continue
		}
		rest := bytes.NewBuffer(bytes.Clone(part[:end]))
		add(Continue(rest, blobs[:whole]), blobs)
		require.Equal(t, file.Bytes(), rest.Bytes(), "cut at %d", cut)
	}
	changed := bytes.Clone(file.Bytes())
	at := bytes.Index(changed, contents[blobs[5].Digest])
	changed[at] ^= 1
	whole, end, err := Kept(bytes.NewReader(changed), manifests, blobs)
	require.NoError(t, err)
	require.Equal(t, 5, whole, "a changed blob is written anew")
	require.Positive(t, end)
	whole, end, err = Kept(bytes.NewReader(file.Bytes()), manifests[:0], blobs)
	require.NoError(t, err)
	require.Zero(t, whole)
	require.Zero(t, end, "another package")
}

// A blob of 8 GiB or more has a longer header.
func TestTheSizeOfAPackageWithALargeBlob(t *testing.T) {
	d := ocispec.Descriptor{Digest: digest.FromString(""), Size: 9 << 30}
	small, err := Size(nil, nil)
	require.NoError(t, err)
	large, err := Size(nil, []ocispec.Descriptor{d})
	require.NoError(t, err)
	require.Greater(t, large-small, d.Size+tarBlock)
}
