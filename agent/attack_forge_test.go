package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// What attackers work with: keys, signatures, manifests and trees that no publisher makes, and a registry
// that answers as they like.

func newTestKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// push puts a blob or manifest into the registry.
func (s *siege) push(b bundle.Blob) bundle.Blob {
	s.t.Helper()
	s.pushTo(s.repo, b)
	return b
}

func (s *siege) pushTo(repo oci.Target, b bundle.Blob) {
	s.t.Helper()
	ok, err := repo.Exists(context.Background(), b.Descriptor)
	require.NoError(s.t, err)
	if !ok {
		require.NoError(s.t, repo.Push(context.Background(), b.Descriptor, bytes.NewReader(b.Data)))
	}
}

// sign signs claimed with all keys, and puts that where the signature of manifest is looked for.
func (s *siege) sign(claimed, manifest digest.Digest, keys ...crypto.Signer) {
	s.t.Helper()
	s.signatureManifest(manifest, ocispec.Manifest{Layers: s.signatures(claimed, keys...)})
}

// signatures are those of keys over a claim.
func (s *siege) signatures(claimed digest.Digest, keys ...crypto.Signer) []ocispec.Descriptor {
	s.t.Helper()
	var signers []signature.Signer
	for _, k := range keys {
		signer, err := signature.LoadSigner(k, crypto.SHA256)
		require.NoError(s.t, err)
		signers = append(signers, signer)
	}
	signed, err := bundle.SignManifest(claimed, "registry.example/edge", signers...)
	require.NoError(s.t, err)
	var m ocispec.Manifest
	require.NoError(s.t, json.Unmarshal(signed.Manifest.Data, &m))
	return m.Layers
}

// signatureManifest puts m where the signature of manifest is looked for.
func (s *siege) signatureManifest(manifest digest.Digest, m ocispec.Manifest) {
	s.t.Helper()
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	m.Config = s.push(bundle.NewBlob(ocispec.MediaTypeImageConfig, []byte("{}"))).Descriptor
	for _, l := range m.Layers { // the registry wants to have what a manifest lists
		s.push(bundle.NewBlob(l.MediaType, l.Data))
	}
	s.tag(m, bundle.SignatureTag(manifest))
}

// tag pushes a manifest and tags it.
func (s *siege) tag(m ocispec.Manifest, tag string) digest.Digest { return s.tagIn(s.repo, m, tag) }

func (s *siege) tagIn(repo oci.Target, m ocispec.Manifest, tag string) digest.Digest {
	s.t.Helper()
	data, err := json.Marshal(m)
	require.NoError(s.t, err)
	b := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	s.pushTo(repo, b)
	require.NoError(s.t, repo.Tag(context.Background(), b.Descriptor, tag))
	return b.Descriptor.Digest
}

// offer publishes release n as latest, with evil content, after change.
func (s *siege) offer(n int64, change func(*draft)) digest.Digest {
	s.t.Helper()
	d := s.draft(n, evil)
	if change != nil {
		change(&d)
	}
	return s.publish(d).Digest
}

// offerLayer publishes release n, signed as it should be, with layer as its tree. The signed document says
// of it what content says.
func (s *siege) offerLayer(n int64, layer []byte, content bundle.Content) digest.Digest {
	s.t.Helper()
	b := s.push(bundle.NewBlob(bundle.MediaTypeTree, layer))
	return s.offer(n, func(d *draft) {
		d.ChangeRelease = func(r *bundle.Release) { r.Content = content }
		d.ChangeManifest = func(m *ocispec.Manifest) { m.Layers[0] = b.Descriptor }
	})
}

// answer has the registry answer GETs and HEADs of paths that end in suffix as f does.
func (s *siege) answer(suffix string, f http.HandlerFunc) {
	s.answers(map[string]http.HandlerFunc{suffix: f})
}

// member is an entry of a hostile tar.
type member struct {
	header tar.Header
	data   string
}

func file(name, data string) member {
	return member{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, data}
}

// tarOf returns a tar of members, and what a document would say of it.
func (s *siege) tarOf(members ...member) ([]byte, bundle.Content) {
	s.t.Helper()
	var raw bytes.Buffer
	w, files := tar.NewWriter(&raw), 0
	for _, m := range members {
		m.header.Size = int64(len(m.data))
		if m.header.Typeflag == tar.TypeReg {
			files++
		}
		require.NoError(s.t, w.WriteHeader(&m.header))
		_, err := w.Write([]byte(m.data))
		require.NoError(s.t, err)
	}
	require.NoError(s.t, w.Close())
	return raw.Bytes(), bundle.Content{DiffID: digest.FromBytes(raw.Bytes()), Size: int64(raw.Len()), Files: files}
}

// listOf is the list of one assignment with the given name, whose folder holds config.yaml with data.
func listOf(name, data string) string {
	list, err := bundle.MarshalAssignments([]bundle.Assignment{{
		Name: name, Workload: "shop", Target: "main", Adapter: "directory",
		Content: bundle.ContentDigest([]bundle.File{{Path: "config.yaml", Data: []byte(data)}}),
	}})
	if err != nil {
		panic(err)
	}
	return string(list)
}

// manifestOf reads a manifest from the registry.
func (s *siege) manifestOf(d digest.Digest) (m ocispec.Manifest) {
	s.t.Helper()
	desc, err := s.repo.Resolve(context.Background(), d.String())
	require.NoError(s.t, err)
	data, err := bundle.ReadBlob(context.Background(), s.repo, desc, bundle.MaxManifestBytes)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(data, &m))
	return m
}

// answers has the registry answer GETs and HEADs of paths that end in one of the keys as its function does.
func (s *siege) answers(by map[string]http.HandlerFunc) {
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		for suffix, f := range by {
			if strings.HasSuffix(r.URL.Path, suffix) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				f(w, r)
				return true
			}
		}
		return false
	}
	s.registry.hook.Store(&hook)
}
