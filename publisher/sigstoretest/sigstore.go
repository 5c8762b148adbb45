// Package sigstoretest is a Sigstore for tests: an authority that issues certificates for identities that it
// does not ask for, a log of certificates and a log of signatures, of which only the keys are real.
//
// New makes one, TrustedRoot returns its trusted root, and Sign signs a manifest with it.
package sigstoretest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"time"

	ct "github.com/google/certificate-transparency-go"
	"github.com/google/certificate-transparency-go/tls"
	"github.com/google/certificate-transparency-go/x509util"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	rekor "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Sigstore signs by certificate. All its keys are its own.
type Sigstore struct {
	founded            time.Time
	root, intermediate *x509.Certificate
	issuing            *ecdsa.PrivateKey
	certificates, log  *ecdsa.PrivateKey
}

// Signing is one keyless signature. The zero value but for Subject, Issuer and At is a good one.
type Signing struct {
	// Subject is a URI.
	Subject, Issuer string
	// At is when the certificate is issued. It is valid for ten minutes.
	At time.Time
	// LoggedAfter is when, after At, the signature is logged.
	LoggedAfter time.Duration
	// Claims is a digest to sign instead of the manifest's.
	Claims digest.Digest
	// Unlogged and NoSCT leave out the promises of the two logs.
	Unlogged, NoSCT bool
	// Edit changes the annotations of the signature's layer at last.
	Edit func(annotations map[string]string)
}

var (
	oidOldIssuer = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	oidIssuer    = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	oidSCTs      = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

// New makes a Sigstore that is there since a time.
func New(founded time.Time) (*Sigstore, error) {
	s := &Sigstore{founded: founded}
	keys := make([]*ecdsa.PrivateKey, 4)
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	s.issuing, s.certificates, s.log = keys[1], keys[2], keys[3]
	var err error
	if s.root, err = s.authority("root", keys[0], nil, keys[0]); err != nil {
		return nil, err
	}
	s.intermediate, err = s.authority("intermediate", s.issuing, s.root, keys[0])
	return s, err
}

func (s *Sigstore) authority(name string, key *ecdsa.PrivateKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"sigstoretest"}},
		NotBefore: s.founded, NotAfter: s.founded.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	if parent == nil {
		parent = template
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	}
	return certify(template, parent, key, parentKey)
}

func certify(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// TrustedRoot returns a trusted_root.json.
func (s *Sigstore) TrustedRoot() ([]byte, error) {
	authority := &root.FulcioCertificateAuthority{Root: s.root, Intermediates: []*x509.Certificate{s.intermediate}, ValidityPeriodStart: s.founded}
	logOf := func(key *ecdsa.PrivateKey) map[string]*root.TransparencyLog {
		id := logID(key)
		return map[string]*root.TransparencyLog{hex.EncodeToString(id[:]): {
			ID: id[:], PublicKey: key.Public(), ValidityPeriodStart: s.founded, HashFunc: crypto.SHA256, SignatureHashFunc: crypto.SHA256,
		}}
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{authority}, logOf(s.certificates), nil, logOf(s.log))
	if err != nil {
		return nil, err
	}
	return trusted.MarshalJSON()
}

func logID(key *ecdsa.PrivateKey) [sha256.Size]byte {
	der, _ := x509.MarshalPKIXPublicKey(key.Public()) // of a P-256 key: it cannot fail
	return sha256.Sum256(der)
}

// Sign signs the manifest d in repo as cosign would, and takes the place of all signatures that it has.
func (s *Sigstore) Sign(ctx context.Context, repo oci.Target, d digest.Digest, signing Signing) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := s.issue(key, signing)
	if err != nil {
		return err
	}
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	if err != nil {
		return err
	}
	claims := d
	if signing.Claims != "" {
		claims = signing.Claims
	}
	signed, err := bundle.SignManifest(claims, "test", signer)
	if err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(signed.Manifest.Data, &m); err != nil {
		return err
	}
	annotations := m.Layers[0].Annotations
	annotations[static.CertificateAnnotationKey] = certificate
	annotations[static.ChainAnnotationKey] = pemOf(s.intermediate) + pemOf(s.root)
	if !signing.Unlogged {
		entry, err := s.enter(m.Layers[0].Digest, annotations[static.SignatureAnnotationKey], certificate, signing.At.Add(signing.LoggedAfter))
		if err != nil {
			return err
		}
		annotations[static.BundleAnnotationKey] = entry
	}
	if signing.Edit != nil {
		signing.Edit(annotations)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	manifest := bundle.NewBlob(m.MediaType, data)
	for _, b := range append(signed.Blobs, manifest) {
		if err := push(ctx, repo, b); err != nil {
			return err
		}
	}
	return repo.Tag(ctx, manifest.Descriptor, bundle.SignatureTag(d))
}

// issue returns a certificate in PEM. Its log has seen it without the promise that it then holds.
func (s *Sigstore) issue(key *ecdsa.PrivateKey, signing Signing) (string, error) {
	subject, err := url.Parse(signing.Subject)
	if err != nil {
		return "", err
	}
	issuer, err := asn1.MarshalWithParams(signing.Issuer, "utf8")
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{subject}, NotBefore: signing.At, NotAfter: signing.At.Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: oidOldIssuer, Value: []byte(signing.Issuer)}, {Id: oidIssuer, Value: issuer}},
	}
	certificate, err := certify(template, s.intermediate, key, s.issuing)
	if err != nil || signing.NoSCT {
		return pemOf(certificate), err
	}
	promise, err := s.promise(certificate)
	if err != nil {
		return "", err
	}
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: oidSCTs, Value: promise})
	certificate, err = certify(template, s.intermediate, key, s.issuing)
	return pemOf(certificate), err
}

// promise is the value of an extension with a signed certificate timestamp (RFC 6962, sections 3.2 and 3.3).
func (s *Sigstore) promise(certificate *x509.Certificate) ([]byte, error) {
	sct := &ct.SignedCertificateTimestamp{
		SCTVersion: ct.V1, LogID: ct.LogID{KeyID: logID(s.certificates)}, Timestamp: uint64(certificate.NotBefore.UnixMilli()),
	}
	input, err := ct.SerializeSCTSignatureInput(*sct, ct.LogEntry{Leaf: ct.MerkleTreeLeaf{TimestampedEntry: &ct.TimestampedEntry{
		EntryType: ct.PrecertLogEntryType,
		PrecertEntry: &ct.PreCert{
			IssuerKeyHash: sha256.Sum256(s.intermediate.RawSubjectPublicKeyInfo), TBSCertificate: certificate.RawTBSCertificate,
		},
	}}})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(input)
	sct.Signature.Algorithm = tls.SignatureAndHashAlgorithm{Hash: tls.SHA256, Signature: tls.ECDSA}
	if sct.Signature.Signature, err = ecdsa.SignASN1(rand.Reader, s.certificates, sum[:]); err != nil {
		return nil, err
	}
	list, err := x509util.MarshalSCTsIntoSCTList([]*ct.SignedCertificateTimestamp{sct})
	if err != nil {
		return nil, err
	}
	data, err := tls.Marshal(*list)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(data)
}

// enter returns what cosign keeps of an entry of the log of signatures.
func (s *Sigstore) enter(claim digest.Digest, sig, certificate string, at time.Time) (string, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "0.0.1", "kind": "hashedrekord",
		"spec": map[string]any{
			"data": map[string]any{"hash": map[string]any{"algorithm": "sha256", "value": claim.Encoded()}},
			"signature": map[string]any{
				"content": sig, "publicKey": map[string]any{"content": base64.StdEncoding.EncodeToString([]byte(certificate))},
			},
		},
	})
	if err != nil {
		return "", err
	}
	id := logID(s.log)
	payload := rekor.RekorPayload{Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: at.Unix(), LogIndex: 7, LogID: hex.EncodeToString(id[:])}
	signed, err := json.Marshal(map[string]any{ // with its names in order, which is canonical
		"body": payload.Body, "integratedTime": payload.IntegratedTime, "logIndex": payload.LogIndex, "logID": payload.LogID,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(signed)
	set, err := ecdsa.SignASN1(rand.Reader, s.log, sum[:])
	if err != nil {
		return "", err
	}
	entry, err := json.Marshal(rekor.RekorBundle{SignedEntryTimestamp: set, Payload: payload})
	return string(entry), err
}

func pemOf(certificate *x509.Certificate) string {
	if certificate == nil {
		return ""
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}

func push(ctx context.Context, repo oci.Target, b bundle.Blob) error {
	there, err := repo.Exists(ctx, b.Descriptor)
	if err != nil || there {
		return err
	}
	return repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
}
