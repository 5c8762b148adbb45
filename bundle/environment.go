package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// EnvironmentSchema is the version of the environment record that this code writes.
const EnvironmentSchema = 1

// EnvironmentRecord says which release of each cluster type makes up an environment at one commit. Gate,
// plan and hub read it; agents never do. It is the config blob of its manifest.
type EnvironmentRecord struct {
	Schema      int    `json:"schema"`
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	Epoch       int64  `json:"epoch"`
	Sequence    int64  `json:"sequence"`
	// IssuedAt is in UTC, in whole seconds.
	IssuedAt          time.Time `json:"issuedAt"`
	BaseCommit        string    `json:"baseCommit,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	// ClusterTypes gives the manifest of each cluster type's newest release. A type that failed at this
	// commit keeps the release that it had before.
	ClusterTypes map[string]digest.Digest `json:"clusterTypes"`
	// Incomplete names the cluster types, sorted, whose release is not all that the commit asks for: an
	// assignment is held, left out or dropped, or the type was not published. None of them passes a gate.
	Incomplete []string `json:"incomplete,omitempty"`
}

// EnvironmentRepository is where an environment's records lie, below a location's prefix.
func EnvironmentRepository(environment string) string { return "environments/" + environment }

// Tag is the record's own, immovable tag.
func (r EnvironmentRecord) Tag() string { return fmt.Sprintf("s%d-%d", r.Epoch, r.Sequence) }

// Marshal returns the record's bytes. It fails when they exceed MaxEnvironmentBytes.
func (r EnvironmentRecord) Marshal() ([]byte, error) {
	data, err := json.Marshal(r)
	if err == nil && len(data) > MaxEnvironmentBytes {
		err = fmt.Errorf("record of environment %s: %d bytes: %w (at most %d)", r.Environment, len(data), ErrTooLarge, MaxEnvironmentBytes)
	}
	return data, err
}

// ParseEnvironmentRecord reads and checks a record. Its errors are Refusals.
func ParseEnvironmentRecord(data []byte) (EnvironmentRecord, error) {
	var r EnvironmentRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return EnvironmentRecord{}, refuse(BadContent, "environment record: %v", err)
	}
	switch {
	case r.Schema != EnvironmentSchema:
		return EnvironmentRecord{}, refuse(BadContent, "environment record has schema %d, this version reads %d", r.Schema, EnvironmentSchema)
	case r.Platform == "" || r.Environment == "":
		return EnvironmentRecord{}, refuse(BadContent, "environment record lacks platform or environment")
	case r.Sequence < 1 || r.Epoch < 0:
		return EnvironmentRecord{}, refuse(BadContent, "environment record has epoch %d and sequence %d", r.Epoch, r.Sequence)
	}
	for name, d := range r.ClusterTypes {
		if err := d.Validate(); err != nil {
			return EnvironmentRecord{}, refuse(BadContent, "environment record: cluster type %q: %v", name, err)
		}
	}
	return r, nil
}

// VerifiedEnvironment is an environment record whose signature was checked.
type VerifiedEnvironment struct {
	Descriptor ocispec.Descriptor
	Record     EnvironmentRecord
	// KeyIDs names the distinct keys that signed, sorted; see KeyID.
	KeyIDs []string
}

// VerifyEnvironment does for an environment record what Verify does for a bundle.
func VerifyEnvironment(ctx context.Context, src Source, manifest ocispec.Descriptor, trust Trust) (*VerifiedEnvironment, error) {
	ids, err := VerifySignature(ctx, src, manifest.Digest, trust)
	if err != nil {
		return nil, err
	}
	v, err := ReadEnvironment(ctx, src, manifest)
	if err != nil {
		return nil, err
	}
	v.KeyIDs = ids
	return v, nil
}

// ReadEnvironment does for an environment record what Read does for a bundle.
func ReadEnvironment(ctx context.Context, src Source, manifest ocispec.Descriptor) (*VerifiedEnvironment, error) {
	data, err := ReadBlob(ctx, src, manifest, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, refuse(BadContent, "manifest %s: %v", manifest.Digest, err)
	}
	if m.ArtifactType != MediaTypeEnvironment || m.Config.MediaType != MediaTypeEnvironment {
		return nil, refuse(BadContent, "manifest %s has artifactType %q and config %q: no environment record",
			manifest.Digest, m.ArtifactType, m.Config.MediaType)
	}
	doc, err := ReadBlob(ctx, src, m.Config, MaxEnvironmentBytes)
	if err != nil {
		return nil, fmt.Errorf("environment record: %w", err)
	}
	record, err := ParseEnvironmentRecord(doc)
	if err != nil {
		return nil, err
	}
	return &VerifiedEnvironment{Descriptor: manifest, Record: record}, nil
}
