package directory_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// large serves an artifact of one file of n bytes, which lies nowhere.
func large(t testing.TB, n int64) bundle.FetchedArtifact {
	block := sized(1 << 20)
	write := func(w io.Writer) {
		for left := n; left > 0; left -= int64(len(block)) {
			if _, err := io.WriteString(w, block[:min(left, int64(len(block)))]); err != nil {
				return
			}
		}
	}
	sum := digest.Canonical.Digester()
	write(sum.Hash())
	manifest, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Layers: []ocispec.Descriptor{
		{MediaType: "application/octet-stream", Digest: sum.Digest(), Size: n, Annotations: map[string]string{ocispec.AnnotationTitle: "model"}},
	}})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(manifest)))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(n))
		write(w)
	}))
	t.Cleanup(server.Close)
	return bundle.FetchedArtifact{Reference: "oci://" + server.Listener.Addr().String() + "/models/large:1", Digest: digest.FromBytes(manifest)}
}

// bring has a process of its own bring the artifact to root, and returns the most memory it had, in bytes.
func bring(t testing.TB, root string, artifact bundle.FetchedArtifact, text string) int64 {
	dir := filepath.Dir(root)
	c := child{Root: root, Ledger: filepath.Join(dir, "ledger"), Status: filepath.Join(dir, "status"), Assignment: with(assignment(t, "drone", map[string]string{"a": text}), artifact)}
	require.NoError(t, c.start(t).Wait())
	status, err := os.ReadFile(c.Status)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var peak int64
	_, err = fmt.Sscan(rest, &peak) // in KiB
	require.NoError(t, err)
	return peak << 10
}

func TestALargeFileIsNeverInMemory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	const size = 128 << 20
	artifact := large(t, size)
	peak := bring(t, root, artifact, "1")
	require.Less(t, peak, int64(size/2))
	first := inode(t, filepath.Join(root, "drone/model"))
	require.Equal(t, int64(size), first.Size())
	bring(t, root, artifact, "2")
	require.True(t, os.SameFile(first, inode(t, filepath.Join(root, "drone/model"))))
}

// BenchmarkModel brings a model of 2 GiB, once, and then another configuration beside it. It needs 2 GiB of
// disk in the temporary folder.
func BenchmarkModel(b *testing.B) {
	const size = 2 << 30
	artifact := large(b, size)
	for b.Loop() {
		root := filepath.Join(b.TempDir(), "root")
		began := time.Now()
		peak := bring(b, root, artifact, "1")
		fmt.Printf("figure directory-model-2gib-ms %d ms\n", time.Since(began).Milliseconds())
		fmt.Printf("figure directory-model-2gib-rss-bytes %d bytes\n", peak)
		began = time.Now()
		bring(b, root, artifact, "2")
		fmt.Printf("figure directory-model-2gib-config-ms %d ms\n", time.Since(began).Milliseconds())
		require.NoError(b, os.RemoveAll(root))
	}
}
