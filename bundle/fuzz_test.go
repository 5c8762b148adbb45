package bundle

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"
)

// fixedKey is the same in every run, so that what a fuzz test has found once is found again.
func fixedKey(t testing.TB, n byte) (signature.Signer, crypto.PublicKey) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	return signer, key.Public()
}

func fixedPerson(t testing.TB, n byte) person {
	signer, pub := fixedKey(t, n)
	key, err := NewTrustKey("", pub)
	require.NoError(t, err)
	return person{signer, key, pub}
}

// goodManifest is the manifest of a bundle, as a publisher writes it.
func goodManifest(t testing.TB) (manifest, document []byte) {
	document, err := sampleRelease(Content{DiffID: digest.FromString("tree"), Size: 1, Files: 1}).Marshal()
	require.NoError(t, err)
	tree := NewBlob(MediaTypeTree, []byte("tree"))
	manifest, err = json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: MediaTypeBundle,
		Config: NewBlob(MediaTypeRelease, document).Descriptor, Layers: []ocispec.Descriptor{tree.Descriptor},
	})
	require.NoError(t, err)
	return manifest, document
}

// hostile is a source that gives arbitrary and endless answers, and counts the bytes that are read.
type hostile struct {
	tags map[string]ocispec.Descriptor
	data map[digest.Digest][]byte
	rest []byte // the answer to everything else
	read int64
}

func (h *hostile) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	for tag, d := range h.tags {
		if strings.HasPrefix(reference, tag) {
			return d, nil
		}
	}
	return ocispec.Descriptor{}, errdef.ErrNotFound
}

func (h *hostile) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := h.data[d.Digest]
	if !ok {
		data = h.rest
	}
	return &endless{h, data}, nil
}

// endless yields data and then, where more than that is asked for, anything.
type endless struct {
	from *hostile
	data []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.data) == 0 {
		e.from.read += int64(len(p))
		if e.from.read%2 == 0 {
			return len(p), nil
		}
		return 0, io.EOF
	}
	n := copy(p, e.data)
	e.data, e.from.read = e.data[n:], e.from.read+int64(n)
	return n, nil
}

func (*endless) Close() error { return nil }

// maxVerifyBytes is what a hostile source can have a reader take before it gives up: signature manifest,
// signatures, manifest and release document, and a buffer of bytes too many for each.
const maxVerifyBytes = (maxSignatures + 3) * 2 * MaxManifestBytes

// FuzzVerify has a registry answer with any manifest, signature manifest, claim and release document. One
// manifest alone is signed, and so one alone may be accepted.
func FuzzVerify(f *testing.F) {
	signer, pub := fixedKey(f, 1)
	manifest, document := goodManifest(f)
	good := digest.FromBytes(manifest)
	signed, err := SignManifest(good, "r", signer)
	require.NoError(f, err)
	bare := bytes.ReplaceAll(signed.Manifest.Data, []byte(`"data":`), []byte(`"date":`))
	f.Add(manifest, signed.Manifest.Data, signed.Blobs[0].Data, document, string(good), int64(len(manifest)))
	f.Add(manifest, bare, signed.Blobs[0].Data, document, string(good), int64(len(manifest)))
	f.Add(append([]byte(" "), manifest...), bare, signed.Blobs[0].Data, document, string(good), int64(len(manifest)))
	f.Add(manifest, bare, signed.Blobs[0].Data, document, "", int64(-1))
	f.Add(manifest, bare, signed.Blobs[0].Data, document, "sha256:../../../etc", int64(1)<<62)
	f.Fuzz(func(t *testing.T, manifest, signatures, claim, document []byte, id string, size int64) {
		src := &hostile{
			tags: map[string]ocispec.Descriptor{"": NewBlob(ocispec.MediaTypeImageManifest, signatures).Descriptor},
			data: map[digest.Digest][]byte{digest.Digest(id): manifest, digest.FromBytes(signatures): signatures, digest.FromBytes(claim): claim},
			rest: document,
		}
		offered := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(id), Size: size}

		v, err := Verify(t.Context(), src, offered, Pinned(Keys{pub}))

		require.LessOrEqual(t, src.read, int64(maxVerifyBytes))
		if err != nil {
			return
		}
		require.Equal(t, good, v.Descriptor.Digest, "nothing else was signed")
		require.Equal(t, "drone", v.Release.ClusterType)
		require.NoError(t, v.Tree.Digest.Validate())
	})
}

// FuzzVerifySigned plays the owner of a trusted key: any manifest, and any release document
// in it, may be signed. It may be accepted or refused; an accepted result must be usable.
func FuzzVerifySigned(f *testing.F) {
	signer, pub := fixedKey(f, 1)
	manifest, document := goodManifest(f)
	f.Add(manifest, document)
	f.Add(bytes.ReplaceAll(manifest, []byte(digest.FromString("tree")), []byte("sha256:../../../etc")), document)
	f.Add(bytes.ReplaceAll(manifest, []byte(digest.FromString("tree")), nil), document)
	f.Fuzz(func(t *testing.T, manifest, document []byte) {
		offered := NewBlob(ocispec.MediaTypeImageManifest, manifest).Descriptor
		signed, err := SignManifest(offered.Digest, "r", signer)
		require.NoError(t, err)
		src := &hostile{
			tags: map[string]ocispec.Descriptor{"": signed.Manifest.Descriptor},
			data: map[digest.Digest][]byte{offered.Digest: manifest, signed.Manifest.Descriptor.Digest: signed.Manifest.Data},
			rest: document,
		}
		v, err := Verify(t.Context(), src, offered, Pinned(Keys{pub}))
		if err != nil {
			require.False(t, errors.Is(err, errdef.ErrNotFound), "it is there")
			return
		}
		for _, layer := range v.Manifest.Layers {
			require.NoError(t, layer.Digest.Validate())
		}
		require.NoError(t, v.Release.Content.DiffID.Validate())
		require.GreaterOrEqual(t, v.Tree.Size, int64(0))
	})
}

// FuzzClaim has a registry serve any payload and any signature under the tag of a manifest's signature.
func FuzzClaim(f *testing.F) {
	signer, pub := fixedKey(f, 1)
	good := digest.FromString("signed")
	signed, err := SignManifest(good, "r", signer)
	require.NoError(f, err)
	var m ocispec.Manifest
	require.NoError(f, json.Unmarshal(signed.Manifest.Data, &m))
	f.Add(signed.Blobs[0].Data, m.Layers[0].Annotations[annotationSignature], string(good))
	f.Add([]byte(`{"critical":{}}`), "", string(digest.FromString("other")))
	f.Fuzz(func(t *testing.T, claim []byte, sig, id string) {
		layer := NewBlob(MediaTypeSimpleSigning, claim).Descriptor
		layer.Annotations = map[string]string{annotationSignature: sig}
		src := &hostile{data: map[digest.Digest][]byte{layer.Digest: claim}}
		_, err := VerifyLayers(t.Context(), src, []ocispec.Descriptor{layer}, digest.Digest(id), Pinned(Keys{pub}))
		if err == nil {
			require.Equal(t, string(good), id, "nothing else was signed")
		}
	})
}

// FuzzTrust offers any envelope as the next version of a trust document.
func FuzzTrust(f *testing.F) {
	a, b, stranger := fixedPerson(f, 1), fixedPerson(f, 2), fixedPerson(f, 3)
	first := sealed(f, sampleTrust(1, roleOf(2, a, b), roleOf(1, b)), a, b)
	chain, err := TrustChain(nil).Append(first)
	require.NoError(f, err)
	next := sealed(f, sampleTrust(2, roleOf(2, a, b), roleOf(1, a)), a, b)
	f.Add(first)
	f.Add(next)
	f.Add(sealed(f, sampleTrust(2, roleOf(1, stranger), roleOf(1, stranger)), stranger))
	f.Add(sealed(f, sampleTrust(2, roleOf(1, a), roleOf(1, a)), a))
	f.Add([]byte(`{"payloadType":"application/vnd.wherry.trust.v1+json","payload":"e30=","signatures":[{"keyid":"x","sig":"eA=="},null]}`))
	want, _, err := OpenTrust(next)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, envelope []byte) {
		d, ids, err := OpenTrust(envelope)
		if err != nil {
			requireRejected(t, err, "")
		} else {
			require.LessOrEqual(t, len(ids), len(d.Root.Keys))
			again, err := d.Marshal()
			require.NoError(t, err, "what was read can be written")
			_, err = ParseTrustDocument(again)
			require.NoError(t, err)
		}
		longer, err := chain.Append(envelope)
		if err != nil {
			requireRejected(t, err, "")
			return
		}
		require.Equal(t, want, longer.Current(), "nothing else was signed by both roots")
	})
}

// FuzzTrustDocument reads any document that is in an envelope.
func FuzzTrustDocument(f *testing.F) {
	a, b := fixedPerson(f, 1), fixedPerson(f, 2)
	data, err := sampleTrust(1, roleOf(2, a, b), roleOf(1, b)).Marshal()
	require.NoError(f, err)
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("PUBLIC KEY"), []byte("CERTIFICATE")))
	f.Add(bytes.ReplaceAll(data, []byte(`"threshold":2`), []byte(`"threshold":0`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseTrustDocument(data)
		if err != nil {
			requireRejected(t, err, "")
			return
		}
		trust := d.Trust()
		require.GreaterOrEqual(t, trust.Threshold, 1)
		require.GreaterOrEqual(t, len(trust.Keys), trust.Threshold)
		require.GreaterOrEqual(t, trust.Epoch, int64(FirstEpoch))
		_, err = d.Marshal()
		require.NoError(t, err, "what was read can be written")
	})
}

func FuzzParseEnvironmentRecord(f *testing.F) {
	data, err := EnvironmentRecord{
		Schema: EnvironmentSchema, Platform: "default", Environment: "dev", Sequence: 7,
		ClusterTypes: map[string]digest.Digest{"drone": digest.FromString("m")}, Incomplete: []string{"large"},
	}.Marshal()
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"schema":1,"platform":"p","environment":"e","sequence":1,"clusterTypes":{"":"sha256:x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseEnvironmentRecord(data)
		if err != nil {
			require.ErrorAs(t, err, new(*Refusal))
			return
		}
		for _, d := range r.ClusterTypes {
			_ = SignatureTag(d) // panics on an invalid digest
		}
		again, err := r.Marshal()
		require.NoError(t, err)
		back, err := ParseEnvironmentRecord(again)
		require.NoError(t, err)
		require.Equal(t, r.Tag(), back.Tag())
	})
}

func FuzzParseAssignments(f *testing.F) {
	list, err := MarshalAssignments([]Assignment{
		{Name: "shop-main", Workload: "shop", Target: "main", Adapter: "directory", Content: digest.FromString("c")},
		{Name: "radar-main", DependsOn: []string{"shop-main"}, Fetched: []FetchedArtifact{{Reference: "oci://h/r:t@sha256:x", Digest: digest.FromString("a")}}},
	})
	require.NoError(f, err)
	f.Add(list)
	f.Add([]byte("{\"name\":\"..\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		as, err := ParseAssignments(data)
		if err != nil {
			require.ErrorAs(t, err, new(*Refusal))
			return
		}
		for _, a := range as {
			require.NoError(t, NewNames(1).Add(a.Name+"/f", false), "a name is that of one folder")
			require.NotContains(t, a.Name, "/")
			_ = a.Desired()
		}
	})
}
