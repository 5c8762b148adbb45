package zarf

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
)

var platforms = graph.Platforms{"linux/amd64"}

// store is a layout with an index of one artifact of two layers, and one more blob.
func store(t *testing.T) (dir string, root, manifest ocispec.Descriptor) {
	t.Helper()
	dir = t.TempDir()
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		b := bundle.NewBlob(mediaType, data)
		path := blobPath(dir, b.Descriptor.Digest)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return b.Descriptor
	}
	layer := func(title string) ocispec.Descriptor {
		d := put("application/vnd.zarf.layer.v1.blob", []byte("the content of "+title))
		d.Annotations = map[string]string{ocispec.AnnotationTitle: title}
		return d
	}
	marshal := func(v any) []byte {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return data
	}
	manifest = put(ocispec.MediaTypeImageManifest, marshal(ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, Config: put("application/vnd.zarf.config.v1+json", []byte("{}")),
		Layers: []ocispec.Descriptor{layer("zarf.yaml"), layer("components/menu.tar")},
	}))
	child := manifest
	child.Platform = &ocispec.Platform{OS: "multi", Architecture: "amd64"}
	root = put(ocispec.MediaTypeImageIndex, marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{child}}))
	put("text/plain", []byte("another artifact's"))
	return dir, root, manifest
}

func TestOnlyTheArtifactIsServedAndOnlyToItsReader(t *testing.T) {
	dir, root, manifest := store(t)
	a, err := openStored(dir, root.Digest, platforms)
	require.NoError(t, err)
	require.NoError(t, a.Whole())
	s, err := a.Serve("shop")
	require.NoError(t, err)

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(s.CA()))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	client := &http.Client{Transport: transport}
	ask := func(method, path, password string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.Host()+path, nil)
		require.NoError(t, err)
		if password != "" {
			req.SetBasicAuth(user, password)
		}
		answer, err := client.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer, string(body)
	}
	answer, _ := ask(http.MethodGet, "/v2/", "")
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	require.Contains(t, answer.Header.Get("WWW-Authenticate"), "Basic")
	answer, _ = ask(http.MethodGet, "/v2/", "wrong")
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	answer, _ = ask(http.MethodGet, "/v2/", s.password)
	require.Equal(t, http.StatusOK, answer.StatusCode)

	answer, body := ask(http.MethodGet, "/v2/shop/manifests/"+root.Digest.String(), s.password)
	require.Equal(t, ocispec.MediaTypeImageIndex, answer.Header.Get("Content-Type"))
	require.Equal(t, root.Digest.String(), answer.Header.Get("Docker-Content-Digest"))
	require.Equal(t, root.Digest, digest.FromString(body))
	answer, body = ask(http.MethodHead, "/v2/shop/manifests/"+manifest.Digest.String(), s.password)
	require.Equal(t, manifest.Size, answer.ContentLength)
	require.Empty(t, body)
	_, body = ask(http.MethodGet, "/v2/shop/blobs/"+digest.FromString("the content of zarf.yaml").String(), s.password)
	require.Equal(t, "the content of zarf.yaml", body)

	for _, path := range []string{
		"/v2/shop/blobs/" + digest.FromString("another artifact's").String(), "/v2/other/manifests/" + root.Digest.String(),
		"/v2/shop/manifests/latest", "/v2/shop/blobs/../../../index.json", "/",
	} {
		answer, _ = ask(http.MethodGet, path, s.password)
		require.Equal(t, http.StatusNotFound, answer.StatusCode, path)
	}
	answer, _ = ask(http.MethodPut, "/v2/shop/manifests/"+root.Digest.String(), s.password)
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)

	var docker struct {
		Auths map[string]struct {
			Auth []byte `json:"auth"`
		} `json:"auths"`
	}
	require.NoError(t, json.Unmarshal(s.DockerConfig(), &docker))
	require.Equal(t, "wherry:"+s.password, string(docker.Auths[s.Host()].Auth))
	transport.CloseIdleConnections()
	require.NoError(t, s.Close())
	_, err = client.Get("https://" + s.Host() + "/v2/")
	require.Error(t, err)
}

func TestWhatIsNotWholeIsIncomplete(t *testing.T) {
	dir, root, manifest := store(t)
	part := blobPath(dir, digest.FromString("the content of components/menu.tar"))
	open := func() error {
		a, err := openStored(dir, root.Digest, platforms)
		if err != nil {
			return err
		}
		return a.Whole()
	}
	require.NoError(t, open())
	require.NoError(t, os.Truncate(part, 3))
	require.ErrorIs(t, open(), errIncomplete)
	require.NoError(t, os.Remove(part))
	require.ErrorIs(t, open(), errIncomplete)
	require.NoError(t, os.Mkdir(part, 0o700))
	require.ErrorIs(t, open(), errIncomplete)

	require.NoError(t, os.WriteFile(blobPath(dir, manifest.Digest), []byte("{}"), 0o600))
	require.ErrorIs(t, open(), errIncomplete)
	_, err := openStored(dir, digest.FromString("unknown"), platforms)
	require.ErrorIs(t, err, errIncomplete)
	_, err = openStored(dir, "sha256:../../x", platforms)
	require.ErrorContains(t, err, "is not the digest of an artifact")
	dir, root, _ = store(t)
	_, err = openStored(dir, root.Digest, graph.Platforms{"linux/arm64"})
	require.ErrorContains(t, err, "it is not for linux/arm64")
}

func TestLinksTakeNoRoomAndKeptFilesOutliveTheStore(t *testing.T) {
	dir, root, manifest := store(t)
	a, err := openStored(dir, root.Digest, platforms)
	require.NoError(t, err)
	cache, kept := t.TempDir(), t.TempDir()
	require.NoError(t, a.Link(cache))
	require.NoError(t, a.Link(cache), "a second time")
	large := digest.FromString("the content of components/menu.tar")
	in, err := os.Stat(blobPath(dir, large))
	require.NoError(t, err)
	out, err := os.Stat(blobPath(cache, large))
	require.NoError(t, err)
	require.True(t, os.SameFile(in, out))

	require.NoError(t, a.Keep(kept, "zarf.yaml"))
	require.NoError(t, os.RemoveAll(dir))
	again, err := openStored(kept, root.Digest, platforms)
	require.NoError(t, err)
	require.ErrorIs(t, again.Whole(), errIncomplete)
	require.FileExists(t, blobPath(kept, digest.FromString("the content of zarf.yaml")))
	require.NoFileExists(t, blobPath(kept, large))
	require.FileExists(t, blobPath(kept, manifest.Digest))
}
