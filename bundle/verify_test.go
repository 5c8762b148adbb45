package bundle

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/memory"
)

func newKey(t testing.TB) (signature.Signer, crypto.PublicKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	return signer, key.Public()
}

func sampleRelease(content Content) Release {
	issued := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return Release{
		Schema: ReleaseSchema, Platform: "default", Environment: "dev", ClusterType: "drone", Sequence: 7,
		IssuedAt: issued, ExpiresAt: issued.Add(90 * 24 * time.Hour), Content: content,
	}
}

func push(t testing.TB, store *memory.Store, blobs ...Blob) {
	for _, b := range blobs {
		if exists, _ := store.Exists(t.Context(), b.Descriptor); exists {
			continue
		}
		require.NoError(t, store.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}
}

// publish puts a bundle of release r into store and returns its manifest.
func publish(t testing.TB, store *memory.Store, r Release, change func(*ocispec.Manifest)) ocispec.Descriptor {
	doc, err := r.Marshal()
	require.NoError(t, err)
	packed, err := Pack(sampleFiles())
	require.NoError(t, err)
	config, tree := NewBlob(MediaTypeRelease, doc), NewBlob(MediaTypeTree, packed.Gzip)
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: MediaTypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{tree.Descriptor},
	}
	if change != nil {
		change(&m)
	}
	data, err := json.Marshal(m)
	require.NoError(t, err)
	manifest := NewBlob(ocispec.MediaTypeImageManifest, data)
	push(t, store, config, tree, manifest)
	return manifest.Descriptor
}

func sign(t testing.TB, store *memory.Store, d digest.Digest, tag string, signers ...signature.Signer) {
	signed, err := SignManifest(d, "registry.example/edge/bundles/dev/drone", signers...)
	require.NoError(t, err)
	push(t, store, append(signed.Blobs, signed.Manifest)...)
	require.NoError(t, store.Tag(t.Context(), signed.Manifest.Descriptor, tag))
}

func TestVerifyReturnsWhatTheKeySigned(t *testing.T) {
	signer, pub := newKey(t)
	packed, err := Pack(sampleFiles())
	require.NoError(t, err)
	store, release := memory.New(), sampleRelease(packed.Content)
	manifest := publish(t, store, release, nil)
	sign(t, store, manifest.Digest, SignatureTag(manifest.Digest), signer)

	v, err := Verify(t.Context(), store, manifest, Pinned(Keys{pub}))
	require.NoError(t, err)
	require.Equal(t, release, v.Release)
	id, err := KeyID(pub)
	require.NoError(t, err)
	require.Equal(t, []string{id}, v.KeyIDs)

	layer, err := store.Fetch(t.Context(), v.Tree)
	require.NoError(t, err)
	defer layer.Close()
	require.NoError(t, Unpack(layer, openRoot(t), v.Release.Content))
}

func TestVerifyCountsEachKeyOnceAndPassesOverUnknownOnes(t *testing.T) {
	signerA, pubA := newKey(t)
	signerB, pubB := newKey(t)
	stranger, _ := newKey(t)
	store := memory.New()
	manifest := publish(t, store, sampleRelease(Content{DiffID: digest.FromString("x")}), nil)
	sign(t, store, manifest.Digest, SignatureTag(manifest.Digest), stranger, signerA, signerB, signerA)
	v, err := Verify(t.Context(), store, manifest, Pinned(Keys{pubA, pubB}))
	require.NoError(t, err)
	require.Len(t, v.KeyIDs, 2)
}

func TestVerifyWantsAsManyDistinctKeysAsTrustAsksFor(t *testing.T) {
	signerA, pubA := newKey(t)
	signerB, pubB := newKey(t)
	_, pubC := newKey(t)
	stranger, _ := newKey(t)
	trust := Trust{Keys: Keys{pubA, pubB, pubC, pubA}, Threshold: 2}
	for _, tc := range []struct {
		name    string
		signers []signature.Signer
		reason  Reason
	}{
		{"two", []signature.Signer{signerA, signerB}, ""},
		{"one, and a stranger", []signature.Signer{signerA, stranger}, BelowThreshold},
		{"one, twice", []signature.Signer{signerA, signerA}, BelowThreshold},
		{"strangers alone", []signature.Signer{stranger, stranger}, UntrustedKey},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := memory.New()
			m := publish(t, store, sampleRelease(Content{DiffID: digest.FromString("x")}), nil)
			sign(t, store, m.Digest, SignatureTag(m.Digest), tc.signers...)
			_, err := Verify(t.Context(), store, m, trust)
			if tc.reason == "" {
				require.NoError(t, err)
				return
			}
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tc.reason, refusal.Reason)
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	signer, pub := newKey(t)
	stranger, _ := newKey(t)
	good := sampleRelease(Content{DiffID: digest.FromString("x"), Size: 1, Files: 1})
	tests := []struct {
		name   string
		setup  func(t *testing.T, store *memory.Store) ocispec.Descriptor
		reason Reason
	}{
		{"an unsigned bundle", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			return publish(t, s, good, nil)
		}, Unsigned},
		{"a signature manifest without signatures", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, nil)
			sign(t, s, m.Digest, SignatureTag(m.Digest))
			return m
		}, Unsigned},
		{"a bundle signed by a stranger", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, nil)
			sign(t, s, m.Digest, SignatureTag(m.Digest), stranger)
			return m
		}, UntrustedKey},
		{"a signature transplanted from another bundle", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, nil)
			sign(t, s, digest.FromString("another manifest"), SignatureTag(m.Digest), signer)
			return m
		}, DigestMismatch},
		{"an artifact that is not a bundle", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.ArtifactType = MediaTypeEnvironment })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, BadContent},
		{"a bundle without a tree", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.Layers = nil })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, BadContent},
		{"embedded data that the descriptor does not describe", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.Config.Data = bytes.Repeat([]byte("x"), int(m.Config.Size)) })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, DigestMismatch},
		{"a manifest that is too large", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) {
				m.Annotations = map[string]string{"pad": strings.Repeat("x", MaxManifestBytes)}
			})
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, TooLarge},
		{"a release document of another schema", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			r := good
			r.Schema = 2
			m := publish(t, s, r, nil)
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, UnsupportedSchema},
		{"a release document of a schema that never was", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			r := good
			r.Schema = -1
			m := publish(t, s, r, nil)
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, BadContent},
		{"a bundle of a later kind", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.ArtifactType = "application/vnd.wherry.bundle.v12+json" })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, UnsupportedSchema},
		{"a release document of a later kind", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.Config.MediaType = "application/vnd.wherry.release.v2+json" })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, UnsupportedSchema},
		{"a bundle of a kind that is not ours", func(t *testing.T, s *memory.Store) ocispec.Descriptor {
			m := publish(t, s, good, func(m *ocispec.Manifest) { m.ArtifactType = "application/vnd.wherry.bundle.v2+yaml" })
			sign(t, s, m.Digest, SignatureTag(m.Digest), signer)
			return m
		}, BadContent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := memory.New()
			_, err := Verify(t.Context(), store, tt.setup(t, store), Pinned(Keys{pub}))
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.reason, refusal.Reason, refusal.Message)
		})
	}
}

// unreachable is a source whose every answer is an error of the network.
type unreachable struct{}

func (unreachable) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errors.New("connection refused")
}

func (unreachable) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errors.New("connection refused")
}

func TestVerifyTellsAnUnreachableSourceFromARefusal(t *testing.T) {
	_, pub := newKey(t)
	_, err := Verify(t.Context(), unreachable{}, ocispec.Descriptor{Digest: digest.FromString("x")}, Pinned(Keys{pub}))
	var refusal *Refusal
	require.ErrorContains(t, err, "connection refused")
	require.NotErrorAs(t, err, &refusal)
}

func TestVerifyTrustsNobodyWithoutKeys(t *testing.T) {
	signer, _ := newKey(t)
	store := memory.New()
	m := publish(t, store, sampleRelease(Content{DiffID: digest.FromString("x")}), nil)
	sign(t, store, m.Digest, SignatureTag(m.Digest), signer)
	_, err := Verify(t.Context(), store, m, Trust{})
	require.ErrorContains(t, err, string(UntrustedKey))
}

func TestPublicKeysReadBackAsWritten(t *testing.T) {
	_, a := newKey(t)
	b, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	pemA, err := MarshalPublicKey(a)
	require.NoError(t, err)
	pemB, err := MarshalPublicKey(b)
	require.NoError(t, err)
	keys, err := ParsePublicKeys(append(append(pemA, "\n"...), bytes.TrimSpace(pemB)...))
	require.NoError(t, err)
	require.Equal(t, Keys{a, b}, keys)
	for _, bad := range []string{"", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "-----BEGIN PUBLIC KEY-----\n"} {
		_, err := ParsePublicKeys([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

func FuzzVerifyLayers(f *testing.F) {
	signer, pub := newKey(f)
	signed, err := SignManifest(digest.FromString("m"), "r", signer)
	require.NoError(f, err)
	f.Add(signed.Manifest.Data)
	f.Fuzz(func(t *testing.T, manifest []byte) {
		store := memory.New()
		sig := NewBlob(ocispec.MediaTypeImageManifest, manifest)
		if store.Push(t.Context(), sig.Descriptor, bytes.NewReader(manifest)) != nil {
			return // the store refuses an invalid manifest
		}
		require.NoError(t, store.Tag(t.Context(), sig.Descriptor, SignatureTag(digest.FromString("other"))))
		_, err := VerifySignature(t.Context(), store, digest.FromString("other"), Pinned(Keys{pub}))
		require.Error(t, err, "nobody has signed this digest")
	})
}
