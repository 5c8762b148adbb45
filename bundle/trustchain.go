package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"oras.land/oras-go/v2/errdef"
)

// TrustRepository is the repository of trust documents, below a location's prefix.
const TrustRepository = "trust"

// MaxTrustVersions bounds the chain that a registry or a file can make its readers store: a version a week for 20 years.
const MaxTrustVersions = 1000

// TrustTag returns the tag of one version of the trust document. It never moves.
func TrustTag(version int64) string { return fmt.Sprintf("v%d", version) }

// TrustChain holds the accepted trust documents of a platform, version 1 first. The caller vouches for the first one; each
// later one is signed by the root keys of the one before it. A nil chain is empty.
type TrustChain []TrustLink

// TrustLink is a trust document with its envelope.
type TrustLink struct {
	Document TrustDocument
	Envelope []byte
}

// Current returns the document in force. For an empty chain it is the zero value, which trusts nobody.
func (c TrustChain) Current() TrustDocument {
	if len(c) == 0 {
		return TrustDocument{}
	}
	return c[len(c)-1].Document
}

// Append returns the chain with one more document. It has to be exactly the next version, of the same
// platform and no lower epoch, signed by the thresholds of its own roots and of the roots before it. Append does not
// check expiry, which matters for the last document only: the caller does, with Admits. Its errors
// are of type *Refusal, with the reason TrustDocumentRejected; c stays unchanged.
func (c TrustChain) Append(envelope []byte) (TrustChain, error) {
	env, d, err := openTrust(envelope)
	if err != nil {
		return nil, err
	}
	before, next := c.Current(), int64(len(c))+1
	switch {
	case next > MaxTrustVersions:
		return nil, Refuse(TrustDocumentRejected, "trust document has more than %d versions", MaxTrustVersions)
	case d.Version != next:
		return nil, Refuse(TrustDocumentRejected, "trust document has version %d, the next one here is %d", d.Version, next)
	case len(c) > 0 && d.Platform != before.Platform:
		return nil, Refuse(TrustDocumentRejected, "trust document is for platform %q, the one before is for %q", d.Platform, before.Platform)
	case d.Epoch < before.Epoch:
		return nil, Refuse(TrustDocumentRejected, "trust document version %d has epoch %d, the one before has %d", d.Version, d.Epoch, before.Epoch)
	}
	roots := []Role{d.Root}
	if len(c) > 0 {
		roots = append(roots, before.Root)
	}
	for i, role := range roots {
		whose := [...]string{"its own", "the previous version's"}[i]
		if n := len(signers(env, role)); n < role.Threshold {
			return nil, Refuse(TrustDocumentRejected, "trust document version %d is signed by %d of %s root keys, %d are needed", d.Version, n, whose, role.Threshold)
		}
	}
	return append(slices.Clone(c), TrustLink{d, bytes.Clone(envelope)}), nil
}

// Next asks src, a repository of trust documents, for the version after the last one and appends it. If there is none,
// more is false and the chain is unchanged.
func (c TrustChain) Next(ctx context.Context, src Source) (chain TrustChain, more bool, err error) {
	version := int64(len(c)) + 1
	envelope, err := FetchTrust(ctx, src, version)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return c, false, nil
	case err != nil:
		return c, false, err
	}
	chain, err = c.Append(envelope)
	if err != nil {
		return c, false, err
	}
	return chain, true, nil
}

// OpenTrust reads the document in an envelope and the ids of those of its own root keys that have signed
// it, sorted. That does not make those roots trusted: only TrustChain does.
func OpenTrust(envelope []byte) (d TrustDocument, signedBy []string, err error) {
	env, d, err := openTrust(envelope)
	if err != nil {
		return d, nil, err
	}
	return d, signers(env, d.Root), nil
}

// TrustSigners returns the ids of the keys of role that have signed the envelope, sorted.
func TrustSigners(envelope []byte, role Role) ([]string, error) {
	env, _, err := openTrust(envelope)
	if err != nil {
		return nil, err
	}
	return signers(env, role), nil
}

func openTrust(envelope []byte) (*dsse.Envelope, TrustDocument, error) {
	none := TrustDocument{}
	if len(envelope) > MaxTrustBytes {
		return nil, none, Refuse(TrustDocumentRejected, "trust document has %d bytes, at most %d are allowed", len(envelope), MaxTrustBytes)
	}
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return nil, none, Refuse(TrustDocumentRejected, "trust document's envelope: %v", err)
	}
	if isNewer(env.PayloadType, MediaTypeTrust) {
		return nil, none, Refuse(TrustDocumentRejected, "envelope holds %q: %s", env.PayloadType, tooNew)
	}
	if env.PayloadType != MediaTypeTrust {
		return nil, none, Refuse(TrustDocumentRejected, "envelope holds %q, not a trust document", env.PayloadType)
	}
	if len(env.Signatures) > maxSignatures {
		return nil, none, Refuse(TrustDocumentRejected, "trust document has %d signatures, at most %d are allowed", len(env.Signatures), maxSignatures)
	}
	body, err := env.DecodeB64Payload()
	if err != nil {
		return nil, none, Refuse(TrustDocumentRejected, "trust document's envelope: %v", err)
	}
	d, err := ParseTrustDocument(body)
	return &env, d, err
}

// signers returns the ids of the role's keys that signed env, each once. It ignores the key ids that the envelope claims.
func signers(env *dsse.Envelope, role Role) []string {
	body, err := env.DecodeB64Payload()
	if err != nil {
		return nil
	}
	keys, _ := role.keys() // an invalid role has none
	var ids []string
	for _, s := range env.Signatures {
		sig, err := base64.StdEncoding.DecodeString(s.Sig)
		if err != nil {
			continue
		}
		if id, ok := signedBy(dsse.PAE(env.PayloadType, body), sig, keys); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// SealTrust returns d in an envelope that nobody has signed yet.
func SealTrust(d TrustDocument) ([]byte, error) {
	body, err := d.Marshal()
	if err != nil {
		return nil, err
	}
	return json.Marshal(dsse.Envelope{PayloadType: MediaTypeTrust, Payload: base64.StdEncoding.EncodeToString(body), Signatures: []dsse.Signature{}})
}

// SignTrust returns the envelope of a trust document with one more signature, by key. It returns an envelope that
// key has signed already as it is.
func SignTrust(envelope []byte, key signature.Signer) ([]byte, error) {
	env, _, err := openTrust(envelope)
	if err != nil {
		return nil, err
	}
	pub, err := key.PublicKey()
	if err != nil {
		return nil, err
	}
	id, err := KeyID(pub)
	if err != nil {
		return nil, err
	}
	body, err := env.DecodeB64Payload()
	if err != nil {
		return nil, err
	}
	pae := dsse.PAE(env.PayloadType, body)
	for _, s := range env.Signatures {
		if sig, err := base64.StdEncoding.DecodeString(s.Sig); err == nil {
			if _, ok := signedBy(pae, sig, Keys{pub}); ok {
				return envelope, nil
			}
		}
	}
	sig, err := key.SignMessage(bytes.NewReader(pae))
	if err != nil {
		return nil, fmt.Errorf("sign trust document: %w", err)
	}
	env.Signatures = append(env.Signatures, dsse.Signature{KeyID: id, Sig: base64.StdEncoding.EncodeToString(sig)})
	slices.SortStableFunc(env.Signatures, func(a, b dsse.Signature) int { return bytes.Compare([]byte(a.KeyID), []byte(b.KeyID)) })
	data, err := json.Marshal(env)
	if err == nil && len(data) > MaxTrustBytes {
		err = fmt.Errorf("trust document: %w: %d bytes with its signatures, at most %d are allowed", ErrTooLarge, len(data), MaxTrustBytes)
	}
	return data, err
}

// TrustManifest returns the blobs that store an envelope, in the order in which to push them, the manifest last.
func TrustManifest(envelope []byte) ([]Blob, error) {
	return envelopeManifest(MediaTypeTrust, envelope)
}

// FetchTrust reads the envelope of one version from a repository of trust documents, without verifying
// it. The error wraps errdef.ErrNotFound if the repository has no such version, and is a *Refusal
// if the tag points at something else.
func FetchTrust(ctx context.Context, src Source, version int64) ([]byte, error) {
	desc, err := src.Resolve(ctx, TrustTag(version))
	if err != nil {
		return nil, fmt.Errorf("trust document %s: %w", TrustTag(version), err)
	}
	data, err := ReadBlob(ctx, src, desc, MaxManifestBytes)
	if err != nil {
		return nil, incomplete(err, version)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Refuse(TrustDocumentRejected, "trust document %s: manifest: %v", TrustTag(version), err)
	}
	if m.ArtifactType != MediaTypeTrust || m.Config.MediaType != MediaTypeTrust {
		return nil, Refuse(TrustDocumentRejected, "manifest %s has artifactType %q and config %q: no trust document",
			desc.Digest, m.ArtifactType, m.Config.MediaType)
	}
	envelope, err := ReadBlob(ctx, src, m.Config, MaxTrustBytes)
	if err != nil {
		return nil, incomplete(err, version)
	}
	return envelope, nil
}

// incomplete returns the error for a version that exists but cannot be read. It does not wrap errdef.ErrNotFound when a
// part is missing, since that would mean that there is no such version.
func incomplete(err error, version int64) error {
	var bad *Refusal
	switch {
	case errors.As(err, &bad):
		return Refuse(TrustDocumentRejected, "trust document %s: %s", TrustTag(version), bad.Message)
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("trust document %s: not all of it is there: %v", TrustTag(version), err)
	}
	return fmt.Errorf("trust document %s: %w", TrustTag(version), err)
}
