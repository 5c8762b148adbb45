package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	orasremote "oras.land/oras-go/v2/registry/remote"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// site is a layout with an endpoint over it.
type site struct {
	*testing.T
	dir    string
	layout *oci.Layout
	names  []oci.Retained
	server *httptest.Server
	h      *Handler
}

func newSite(t *testing.T) *site {
	dir := t.TempDir()
	s := &site{T: t, dir: dir, layout: oci.NewLayout(dir), h: NewHandler(dir, "plant", nil, nil)}
	s.server = httptest.NewServer(s.h)
	t.Cleanup(s.server.Close)
	return s
}

func (s *site) push(blobs ...bundle.Blob) {
	s.T.Helper()
	repo, err := s.layout.Repository("blobs")
	require.NoError(s, err)
	for _, b := range blobs {
		if there, err := repo.Exists(s.Context(), b.Descriptor); err == nil && there {
			continue
		}
		require.NoError(s, repo.Push(s.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}
}

func (s *site) name(repository, tag string, manifest bundle.Blob) {
	s.T.Helper()
	s.names = append(s.names, oci.Retained{Repository: repository, Tag: tag, Manifest: manifest.Descriptor, All: true})
	require.NoError(s, s.layout.SetRefs(s.names, nil))
}

func (s *site) path(b bundle.Blob) string {
	return filepath.Join(s.dir, "blobs", "sha256", b.Descriptor.Digest.Encoded())
}

// artifact pushes a manifest with layers, and returns it.
func (s *site) artifact(subject *bundle.Blob, layers ...bundle.Blob) bundle.Blob {
	s.T.Helper()
	config := bundle.NewBlob("application/vnd.test.config", []byte("{}"))
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config.Descriptor}
	m.SchemaVersion = 2
	for _, l := range layers {
		m.Layers = append(m.Layers, l.Descriptor)
	}
	if subject != nil {
		m.Subject, m.ArtifactType = &subject.Descriptor, "application/vnd.test.about"
	}
	data, err := json.Marshal(m)
	require.NoError(s, err)
	manifest := bundle.NewBlob(m.MediaType, data)
	s.push(config, manifest)
	s.push(layers...)
	return manifest
}

func (s *site) do(method, path string, header ...string) (*http.Response, string) {
	s.T.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, nil)
	require.NoError(s, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.server.Client().Do(req)
	require.NoError(s, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp, string(body)
}

func layerOf(text string) bundle.Blob {
	return bundle.NewBlob(ocispec.MediaTypeImageLayerGzip, []byte(text))
}

func TestManifestsAndBlobsAreReadByTagAndDigest(t *testing.T) {
	s := newSite(t)
	layer := layerOf("the layer of a bundle")
	m := s.artifact(nil, layer)
	s.name("bundles/dev/drone", "latest", m)

	resp, body := s.do("GET", "/v2/")
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "{}", body)
	require.Equal(t, "registry/2.0", resp.Header.Get("Docker-Distribution-API-Version"))

	for _, reference := range []string{"latest", m.Descriptor.Digest.String()} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body = s.do(method, "/v2/plant/bundles/dev/drone/manifests/"+reference)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, m.Descriptor.Digest.String(), resp.Header.Get("Docker-Content-Digest"))
			require.Equal(t, `"`+m.Descriptor.Digest.String()+`"`, resp.Header.Get("ETag"))
			require.Equal(t, ocispec.MediaTypeImageManifest, resp.Header.Get("Content-Type"))
			require.Equal(t, m.Descriptor.Size, resp.ContentLength)
			if method == "GET" {
				require.Equal(t, string(m.Data), body)
			} else {
				require.Empty(t, body)
			}
		}
	}
	blob := "/v2/plant/bundles/dev/drone/blobs/" + layer.Descriptor.Digest.String()
	resp, body = s.do("GET", blob)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, string(layer.Data), body)
	require.Equal(t, layer.Descriptor.Digest.String(), resp.Header.Get("Docker-Content-Digest"))
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest", "If-None-Match", `"`+m.Descriptor.Digest.String()+`"`)
	require.Equal(t, 304, resp.StatusCode)
}

func TestRangesThatLieGetTheTruth(t *testing.T) {
	s := newSite(t)
	layer := layerOf("0123456789")
	s.name("bundles/dev/drone", "latest", s.artifact(nil, layer))
	path := "/v2/plant/bundles/dev/drone/blobs/" + layer.Descriptor.Digest.String()
	for _, c := range []struct {
		name, header string
		status       int
		body         string
	}{
		{"the middle", "bytes=2-4", 206, "234"},
		{"from a place on", "bytes=7-", 206, "789"},
		{"the end", "bytes=-3", 206, "789"},
		{"more than there is", "bytes=8-99999999999", 206, "89"},
		{"beyond the end", "bytes=10-", 416, ""},
		{"backwards", "bytes=5-2", 416, ""},
		{"below nothing", "bytes=--5", 416, ""},
		{"a number that overflows", "bytes=99999999999999999999-", 416, ""},
		{"another unit", "lines=1-2", 416, ""},
		{"several at once are ignored", "bytes=0-1,3-4", 200, "0123456789"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := s.do("GET", path, "Range", c.header)
			require.Equal(t, c.status, resp.StatusCode, body)
			if c.status != 416 {
				require.Equal(t, c.body, body)
			}
		})
	}
	resp, body := s.do("GET", path, "Range", "bytes=2-4", "If-Range", `"another"`)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "0123456789", body)
}

func TestOnlyWhatTheIndexNamesIsServed(t *testing.T) {
	s := newSite(t)
	one, two, loose := layerOf("one"), layerOf("two"), layerOf("loose")
	mine, carried, unnamed := s.artifact(nil, one), s.artifact(nil, two), s.artifact(nil, loose)
	s.name("bundles/dev/drone", "latest", mine)
	s.name("ghcr.io/app/web", "", carried)
	s.name("docker.io/library/nginx", "1", carried)
	s.name("registry.plant:5000/app/web", "1", carried)
	s.name("localhost:5000/web", "1", carried)
	digestOf := func(b bundle.Blob) string { return b.Descriptor.Digest.String() }
	for _, c := range []struct {
		name, path string
		status     int
		code       string
	}{
		{"a release", "/v2/plant/bundles/dev/drone/manifests/latest", 200, ""},
		{"a carried image by its host", "/v2/ghcr.io/app/web/manifests/" + digestOf(carried), 200, ""},
		{"a carried image as a mirror", "/v2/app/web/manifests/" + digestOf(carried) + "?ns=ghcr.io", 200, ""},
		{"an image of Docker Hub by its other name", "/v2/library/nginx/manifests/1?ns=registry-1.docker.io", 200, ""},
		{"an image of a registry with a port", "/v2/registry.plant_5000/app/web/manifests/1", 200, ""},
		{"a layer of such an image", "/v2/registry.plant_5000/app/web/blobs/" + digestOf(two), 200, ""},
		{"the same by a colon", "/v2/registry.plant:5000/app/web/manifests/1", 200, ""},
		{"the same as a mirror", "/v2/app/web/manifests/1?ns=registry.plant:5000", 200, ""},
		{"a host without a domain", "/v2/localhost_5000/web/manifests/1", 200, ""},
		{"a port that is none", "/v2/registry.plant_500000/app/web/manifests/1", 400, "NAME_INVALID"},
		{"a layer of it", "/v2/app/web/blobs/" + digestOf(two) + "?ns=ghcr.io", 200, ""},
		{"a manifest as a blob", "/v2/app/web/blobs/" + digestOf(carried) + "?ns=ghcr.io", 200, ""},
		{"no tag", "/v2/app/web/manifests/latest?ns=ghcr.io", 404, "MANIFEST_UNKNOWN"},
		{"a manifest of another repository", "/v2/plant/bundles/dev/drone/manifests/" + digestOf(carried), 404, "MANIFEST_UNKNOWN"},
		{"a blob of another repository", "/v2/plant/bundles/dev/drone/blobs/" + digestOf(two), 404, "BLOB_UNKNOWN"},
		{"a manifest that nothing names", "/v2/plant/bundles/dev/drone/manifests/" + digestOf(unnamed), 404, "MANIFEST_UNKNOWN"},
		{"a blob that nothing names", "/v2/plant/bundles/dev/drone/blobs/" + digestOf(loose), 404, "BLOB_UNKNOWN"},
		{"another platform", "/v2/office/bundles/dev/drone/manifests/latest", 404, "NAME_UNKNOWN"},
		{"no platform", "/v2/bundles/dev/drone/manifests/latest", 404, "NAME_UNKNOWN"},
		{"a release as a mirror", "/v2/bundles/dev/drone/manifests/latest?ns=plant", 404, "NAME_UNKNOWN"},
		{"a release by a namespace that is empty", "/v2/bundles/dev/drone/manifests/latest?ns=", 404, "NAME_UNKNOWN"},
		{"a carried image below the platform", "/v2/plant/ghcr.io/app/web/manifests/" + digestOf(carried), 404, "NAME_UNKNOWN"},
		{"a namespace with a path", "/v2/web/manifests/" + digestOf(carried) + "?ns=ghcr.io/app", 404, "NAME_UNKNOWN"},
		{"steps out of the repository", "/v2/plant/bundles/dev/../dev/drone/manifests/latest", 400, "NAME_INVALID"},
		{"steps out of the root", "/v2/../../etc/manifests/latest", 400, "NAME_INVALID"},
		{"an encoded slash", "/v2/plant/bundles%2Fdev/drone/manifests/latest", 404, "UNSUPPORTED"},
		{"encoded dots", "/v2/plant/%2e%2e/drone/manifests/latest", 404, "UNSUPPORTED"},
		{"an empty part", "/v2/plant//bundles/dev/drone/manifests/latest", 400, "NAME_INVALID"},
		{"a digest that is a path", "/v2/plant/bundles/dev/drone/blobs/sha256:..", 400, "DIGEST_INVALID"},
		{"a digest of an unknown kind", "/v2/plant/bundles/dev/drone/blobs/md5:0123", 400, "DIGEST_INVALID"},
		{"no digest", "/v2/plant/bundles/dev/drone/blobs/latest", 400, "DIGEST_INVALID"},
		{"capitals", "/v2/plant/Bundles/manifests/latest", 400, "NAME_INVALID"},
		{"the catalog", "/v2/_catalog", 404, "UNSUPPORTED"},
		{"another API", "/v3/", 404, "UNSUPPORTED"},
		{"an upload", "/v2/plant/bundles/dev/drone/blobs/uploads/", 404, ""},
		{"a path without end", "/v2/" + strings.Repeat("a", 5000) + "/manifests/latest", 404, "UNSUPPORTED"},
		{"a query without end", "/v2/?" + strings.Repeat("a", 5000), 414, "UNSUPPORTED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := s.do("GET", c.path)
			require.Equal(t, c.status, resp.StatusCode, body)
			if c.code != "" {
				require.Equal(t, c.code, codeOf(t, body))
			}
		})
	}
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE"} {
		resp, body := s.do(method, "/v2/plant/bundles/dev/drone/manifests/latest")
		require.Equal(t, 405, resp.StatusCode)
		require.Equal(t, "UNSUPPORTED", codeOf(t, body))
		require.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
	}
	require.Equal(t, int64(4), s.h.counters.Requests()[405])
}

func codeOf(t *testing.T, body string) string {
	var e struct {
		Errors []struct{ Code, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &e), body)
	require.Len(t, e.Errors, 1)
	require.NotEmpty(t, e.Errors[0].Message)
	return e.Errors[0].Code
}

func TestNothingIsServedBeforeItIsWhole(t *testing.T) {
	s := newSite(t)
	layer, saved := layerOf("the layer"), bundle.NewBlob(delta.MediaType, []byte("a delta"))
	m := s.artifact(nil, layer, saved)
	s.name("bundles/dev/drone", "latest", m)
	status := func(path string) int {
		resp, _ := s.do("GET", "/v2/plant/bundles/dev/drone/"+path)
		return resp.StatusCode
	}
	_, tags := s.do("GET", "/v2/plant/bundles/dev/drone/tags/list")
	require.JSONEq(t, `{"name":"plant/bundles/dev/drone","tags":["latest"]}`, tags)

	require.NoError(t, os.Remove(s.path(saved)))
	require.Equal(t, 200, status("manifests/latest"), "a reader needs no delta")
	require.Equal(t, 404, status("blobs/"+saved.Descriptor.Digest.String()))

	require.NoError(t, os.Remove(s.path(layer)))
	require.Equal(t, 404, status("manifests/latest"))
	require.Equal(t, 404, status("manifests/"+m.Descriptor.Digest.String()))
	_, tags = s.do("GET", "/v2/plant/bundles/dev/drone/tags/list")
	require.JSONEq(t, `{"name":"plant/bundles/dev/drone","tags":[]}`, tags)
	s.push(layer)
	require.Equal(t, 200, status("manifests/latest"))

	require.NoError(t, os.Remove(s.path(m)))
	require.Equal(t, 404, status("manifests/latest"))
	require.Equal(t, 404, status("blobs/"+m.Descriptor.Digest.String()))
	s.push(m)
	require.Equal(t, 200, status("manifests/latest"))
}

func TestADamagedBlobIsNotServed(t *testing.T) {
	s := newSite(t)
	layer := layerOf(strings.Repeat("the layer ", 1000))
	m := s.artifact(nil, layer)
	s.name("bundles/dev/drone", "latest", m)
	path := "/v2/plant/bundles/dev/drone/blobs/" + layer.Descriptor.Digest.String()
	damage := func(b bundle.Blob, at int) {
		data := bytes.Clone(b.Data)
		data[at] ^= 1
		require.NoError(t, os.Remove(s.path(b)))
		require.NoError(t, os.WriteFile(s.path(b), data, 0o600))
	}
	resp, _ := s.do("GET", path)
	require.Equal(t, 200, resp.StatusCode)

	damage(layer, 5000)
	resp, body := s.do("GET", path, "Range", "bytes=0-9")
	require.Equal(t, 404, resp.StatusCode, "not even the part that is as it was")
	require.Equal(t, "BLOB_UNKNOWN", codeOf(t, body))
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest")
	require.Equal(t, 404, resp.StatusCode)
	require.Equal(t, []digest.Digest{layer.Descriptor.Digest}, s.h.blobs.takeDamaged())
	require.Empty(t, s.h.blobs.takeDamaged())

	require.NoError(t, os.Remove(s.path(layer)))
	s.push(layer) // as the agent fetches it again
	resp, body = s.do("GET", path)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, string(layer.Data), body)

	damage(m, 10)
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest")
	require.Equal(t, 404, resp.StatusCode)
	require.Equal(t, []digest.Digest{m.Descriptor.Digest}, s.h.blobs.takeDamaged())
}

func TestALinkOutOfTheStoreLeadsNowhere(t *testing.T) {
	s := newSite(t)
	layer := layerOf("secret")
	s.name("bundles/dev/drone", "latest", s.artifact(nil, layer))
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, layer.Data, 0o600))
	require.NoError(t, os.Remove(s.path(layer)))
	require.NoError(t, os.Symlink(outside, s.path(layer)))
	resp, _ := s.do("GET", "/v2/plant/bundles/dev/drone/blobs/"+layer.Descriptor.Digest.String())
	require.Equal(t, 404, resp.StatusCode)
}

func TestTagsComeInPages(t *testing.T) {
	s := newSite(t)
	m := s.artifact(nil, layerOf("one"))
	for _, tag := range []string{"c", "a", "d", "b"} {
		s.name("ghcr.io/app/web", tag, m)
	}
	var all []string
	next := "/v2/app/web/tags/list?n=3&ns=ghcr.io"
	for next != "" {
		resp, body := s.do("GET", next)
		require.Equal(t, 200, resp.StatusCode, body)
		var page struct {
			Name string
			Tags []string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		require.Equal(t, "app/web", page.Name)
		all = append(all, page.Tags...)
		next, _, _ = strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, all)
	for path, status := range map[string]int{"?n=x&ns=ghcr.io": 400, "?last=..&ns=ghcr.io": 400, "?n=0&ns=ghcr.io": 200, "?n=99999999&ns=ghcr.io": 200} {
		resp, _ := s.do("GET", "/v2/app/web/tags/list"+path)
		require.Equal(t, status, resp.StatusCode, path)
	}
}

func TestReferrersAreFoundBySubjectAndType(t *testing.T) {
	s := newSite(t)
	m := s.artifact(nil, layerOf("one"))
	about := s.artifact(&m, layerOf("about one"))
	s.name("ghcr.io/app/web", "1", m)
	s.name("ghcr.io/app/web", "", about)
	path := "/v2/ghcr.io/app/web/referrers/" + m.Descriptor.Digest.String()
	for query, n := range map[string]int{"": 1, "?artifactType=application/vnd.test.about": 1, "?artifactType=application/vnd.other": 0} {
		resp, body := s.do("GET", path+query)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, ocispec.MediaTypeImageIndex, resp.Header.Get("Content-Type"))
		require.Equal(t, query != "", resp.Header.Get("OCI-Filters-Applied") == "artifactType")
		var index ocispec.Index
		require.NoError(t, json.Unmarshal([]byte(body), &index))
		require.Len(t, index.Manifests, n)
		if n > 0 {
			require.Equal(t, about.Descriptor.Digest, index.Manifests[0].Digest)
			require.Equal(t, "application/vnd.test.about", index.Manifests[0].ArtifactType)
		}
	}
	_, body := s.do("GET", "/v2/ghcr.io/app/web/referrers/"+about.Descriptor.Digest.String())
	require.Contains(t, body, `"manifests":[]`)
}

func TestAnIndexServesThePlatformsThatAreHere(t *testing.T) {
	s := newSite(t)
	layer := layerOf("amd64")
	child := s.artifact(nil, layer)
	other := bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2}`))
	data, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{child.Descriptor, other.Descriptor}})
	require.NoError(t, err)
	top := bundle.NewBlob(ocispec.MediaTypeImageIndex, data)
	s.push(top)
	s.name("ghcr.io/app/web", "1", top)
	for path, status := range map[string]int{
		"manifests/1": 200, "manifests/" + child.Descriptor.Digest.String(): 200, "blobs/" + layer.Descriptor.Digest.String(): 200,
		"manifests/" + other.Descriptor.Digest.String(): 404,
	} {
		resp, _ := s.do("GET", "/v2/ghcr.io/app/web/"+path)
		require.Equal(t, status, resp.StatusCode, path)
	}
	s.push(other) // it may come later, and the index of the store does not change for it
	resp, _ := s.do("GET", "/v2/ghcr.io/app/web/manifests/"+other.Descriptor.Digest.String())
	require.Equal(t, 200, resp.StatusCode)
}

func TestWhatIsNoLongerNamedIsGone(t *testing.T) {
	s := newSite(t)
	m := s.artifact(nil, layerOf("one"))
	s.name("bundles/dev/drone", "latest", m)
	resp, _ := s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest")
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, s.layout.SetRefs(nil, nil))
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/"+m.Descriptor.Digest.String())
	require.Equal(t, 404, resp.StatusCode)
	require.NoError(t, os.Remove(filepath.Join(s.dir, ocispec.ImageIndexFile)))
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest")
	require.Equal(t, 404, resp.StatusCode)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, ocispec.ImageIndexFile), []byte(`{"man`), 0o600))
	resp, _ = s.do("GET", "/v2/plant/bundles/dev/drone/manifests/latest")
	require.Equal(t, 500, resp.StatusCode)
}

func TestOtherClientsReadIt(t *testing.T) {
	s := newSite(t)
	layer := layerOf("the layer")
	m := s.artifact(nil, layer)
	s.name("bundles/dev/drone", "latest", m)
	host := strings.TrimPrefix(s.server.URL, "http://")

	repo, err := orasremote.NewRepository(host + "/plant/bundles/dev/drone")
	require.NoError(t, err)
	repo.PlainHTTP = true
	got, err := oras.Copy(t.Context(), repo, "latest", memory.New(), "", oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, m.Descriptor.Digest, got.Digest)
	var tags []string
	require.NoError(t, repo.Tags(t.Context(), "", func(page []string) error { tags = append(tags, page...); return nil }))
	require.Equal(t, []string{"latest"}, tags)

	// As docker, skopeo and containerd write the name of an image of a registry with a port.
	s.name("registry.plant:5000/app/web", "1", m)
	ref, err := name.ParseReference(host+"/registry.plant_5000/app/web:1", name.Insecure)
	require.NoError(t, err)
	_, err = remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)

	ref, err = name.ParseReference(host+"/plant/bundles/dev/drone:latest", name.Insecure)
	require.NoError(t, err)
	image, err := remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	body, err := layers[0].Compressed()
	require.NoError(t, err)
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, string(layer.Data), string(data))
}

func TestABodyIsNotWaitedFor(t *testing.T) {
	s := newSite(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/v2/", strings.NewReader("a body"))
	require.NoError(t, err)
	resp, err := s.server.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.True(t, resp.Close)
}

func FuzzParse(f *testing.F) {
	f.Add("/v2/plant/bundles/dev/drone/manifests/latest", "")
	f.Add("/v2/app/web/blobs/sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "ghcr.io")
	f.Add("/v2/localhost:5000/../x/tags/list", "")
	f.Add("/v2/a/referrers/sha256:00", "..")
	f.Fuzz(func(t *testing.T, path, ns string) {
		u := &url.URL{Path: path, RawQuery: url.Values{"ns": {ns}}.Encode()}
		r, bad := parse(u, "plant")
		if bad != nil || r.kind == kindBase {
			return
		}
		for _, part := range strings.Split(r.repository, "/") {
			if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\\%\x00") {
				t.Fatalf("%q with ns %q is repository %q", path, ns, r.repository)
			}
		}
		if r.tag == "" && r.kind != kindTags && r.digest.Validate() != nil {
			t.Fatalf("%q has the digest %q", path, r.digest)
		}
		if host, _, _ := strings.Cut(r.repository, "/"); !isHost(host) && !strings.HasPrefix(path, "/v2/plant/") {
			t.Fatalf("%q leads to the agent's own %q", path, r.repository)
		}
	})
}

// The figures of docs/benchmarks.md: the bytes that one client gets in a second over loopback, against a plain copy of the
// same file from one socket to another.
func BenchmarkServeBlob(b *testing.B) {
	dir := b.TempDir()
	layout := oci.NewLayout(dir)
	repo, err := layout.Repository("blobs")
	require.NoError(b, err)
	layer := layerOf(strings.Repeat("0123456789abcdef", 16<<20/16*4))
	config := bundle.NewBlob("application/vnd.test.config", []byte("{}"))
	data, err := json.Marshal(ocispec.Manifest{Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}})
	require.NoError(b, err)
	m := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	for _, blob := range []bundle.Blob{layer, config, m} {
		require.NoError(b, repo.Push(b.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	}
	require.NoError(b, layout.SetRefs([]oci.Retained{{Repository: "ghcr.io/app/web", Manifest: m.Descriptor, All: true}}, nil))
	served := serveThroughput(b, dir, layer)
	file := fileThroughput(b, filepath.Join(dir, "blobs", "sha256", layer.Descriptor.Digest.Encoded()), layer.Descriptor.Size)
	b.ReportMetric(served/file, "ratio")
	fmt.Printf("figure serve-blob-bytes-per-s %.0f per-s\n", served)
	fmt.Printf("figure serve-blob-throughput-vs-file %.2f ratio\n", served/file)
}

// throughput is the bytes in a second of the fastest of several copies.
func throughput(b *testing.B, size int64, read func() io.ReadCloser) float64 {
	best := 0.0
	for range 5 {
		body := read()
		begun := time.Now()
		n, err := io.Copy(io.Discard, struct{ io.Reader }{body})
		took := time.Since(begun)
		require.NoError(b, err)
		require.NoError(b, body.Close())
		require.Equal(b, size, n)
		best = max(best, float64(n)/took.Seconds())
	}
	return best
}
