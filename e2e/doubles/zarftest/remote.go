package zarftest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// Carry puts a package into an OCI layout, as "zarf package publish" writes it into a registry and an agent brings it to its
// store, and returns the name of the registry by which it can be had: there is no such registry.
func (p Program) Carry(t *testing.T, layout string, files map[string]string, key, password string) (ref string) {
	t.Helper()
	content, err := readFiles(p.make(t, files, key, password))
	require.NoError(t, err)
	put := func(mediaType string, data []byte) ocispec.Descriptor {
		b := bundle.NewBlob(mediaType, data)
		dir := filepath.Join(layout, "blobs", "sha256")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, b.Descriptor.Digest.Encoded()), data, 0o600))
		return b.Descriptor
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: put("application/vnd.zarf.config.v1+json", []byte("{}")),
	}
	for name, data := range content {
		layer := put("application/vnd.zarf.layer.v1.blob", data)
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: name}
		m.Layers = append(m.Layers, layer)
	}
	slices.SortFunc(m.Layers, func(a, b ocispec.Descriptor) int { return strings.Compare(a.Digest.String(), b.Digest.String()) })
	root := put(m.MediaType, mustJSON(m))
	return "oci://gone.registry.example/packages/shop:1@" + root.Digest.String()
}

// readFiles reads what files.pack has written.
func readFiles(data []byte) (files, error) {
	f := files{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err == nil {
			f[path.Clean(h.Name)], err = io.ReadAll(r)
		}
		if err != nil {
			return nil, err
		}
	}
}

// remote is a package in a registry that is reached over HTTPS, with the credentials of Docker's configuration.
type remote struct {
	host, repository, pinned, auth string
}

// parseRemote returns nil for a source that does not name a registry of this machine.
func parseRemote(source string) *remote {
	name, pinned, ok := strings.Cut(strings.TrimPrefix(source, "oci://"), "@")
	host, repository, _ := strings.Cut(name, "/")
	if !ok || !strings.HasPrefix(source, "oci://127.0.0.1:") {
		return nil
	}
	r := &remote{host: host, repository: repository, pinned: pinned}
	var config struct {
		Auths map[string]struct {
			Auth string `json:"auth"`
		} `json:"auths"`
	}
	if data, err := os.ReadFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json")); err == nil && json.Unmarshal(data, &config) == nil {
		r.auth = config.Auths[host].Auth
	}
	return r
}

func (r *remote) get(kind string, d digest.Digest) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+r.host+"/v2/"+r.repository+"/"+kind+"/"+d.String(), nil)
	if err != nil {
		return nil, err
	}
	if r.auth != "" {
		req.Header.Set("Authorization", "Basic "+r.auth)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK || digest.FromBytes(data) != d {
		return nil, fmt.Errorf("%s: %s: mismatched digest %s", req.URL.Path, answer.Status, digest.FromBytes(data))
	}
	return data, nil
}

// pull returns the package's files, or only those that define it.
func (r *remote) pull(cache string, partial bool) (files, error) {
	data, err := r.get("manifests", digest.Digest(r.pinned))
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	f := files{}
	for _, layer := range m.Layers {
		title := layer.Annotations[ocispec.AnnotationTitle]
		if partial && strings.Contains(title, "/") {
			continue
		}
		if data, err := os.ReadFile(filepath.Join(cache, "images", "blobs", "sha256", layer.Digest.Encoded())); err == nil && digest.FromBytes(data) == layer.Digest {
			f[title] = data
			continue
		}
		if f[title], err = r.get("blobs", layer.Digest); err != nil {
			return nil, err
		}
	}
	return f, nil
}
