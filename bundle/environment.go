package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// EnvironmentSchema is the version of the environment record that this code writes.
const EnvironmentSchema = 1

// EnvironmentRecord names the releases of all cluster types that make up an environment at one commit. Gate,
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
	// BaseID identifies what was read of the base: commits with one ID are the same base. It is empty if the base was read from a folder.
	BaseID string `json:"baseID,omitempty"`
	// ClusterTypes gives the manifest of each cluster type's newest release or, if the platform names rings, of the
	// release for agents without a ring. A type that failed at this commit keeps its earlier release.
	ClusterTypes map[string]digest.Digest `json:"clusterTypes"`
	// Rings gives the manifest of each ring's release, by cluster type and ring. It is absent if the platform names
	// no rings.
	Rings map[string]map[string]digest.Digest `json:"rings,omitempty"`
	// RingOrder are the platform's rings, narrowest first. It is absent in records of earlier versions, and without rings.
	RingOrder []string `json:"ringOrder,omitempty"`
	// Incomplete names the cluster types, sorted, whose release differs from the commit: an assignment is held, left
	// out or dropped, or the type was not published. None of them passes a gate.
	Incomplete []string `json:"incomplete,omitempty"`
	// Former is the tag of the earlier record whose content, or part of it, this one gave back: what came between was
	// undone. It is empty for all other records.
	Former string `json:"former,omitempty"`
	// Undone is what was taken back from the environment, oldest first, at most MaxUndone. It stays out until a person says otherwise.
	Undone []Undone `json:"undone,omitempty"`
}

// MaxUndone bounds EnvironmentRecord.Undone.
const MaxUndone = 8

// Undone is what an undo or an abort took back.
type Undone struct {
	// At is the time of issue of the record that took it back.
	At time.Time `json:"at"`
	// BaseCommit is the base commit that was taken back; empty if what took its place is of the same one.
	BaseCommit string `json:"baseCommit,omitempty"`
	// Contents are the digests of the trees that were taken back, by cluster type, those of all rings, sorted.
	Contents map[string][]digest.Digest `json:"contents,omitempty"`
	// Reason is that of whoever took it back, one line.
	Reason string `json:"reason,omitempty"`
}

// Is reports whether a release of a base commit with these trees, by cluster type, would bring back what was taken back: the commit, or
// the same content of all cluster types.
func (u Undone) Is(baseCommit string, contents map[string]digest.Digest) bool {
	if u.BaseCommit != "" && u.BaseCommit == baseCommit {
		return true
	}
	for name, all := range u.Contents {
		if !slices.Contains(all, contents[name]) {
			return false
		}
	}
	return len(u.Contents) > 0
}

// Name names what was taken back, for people: "commit 3f2a9c1" or "the content of drone, large".
func (u Undone) Name() string {
	if u.BaseCommit != "" {
		return "commit " + u.BaseCommit[:min(len(u.BaseCommit), 12)]
	}
	const most = 5
	names := slices.Sorted(maps.Keys(u.Contents))
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return "the content of " + strings.Join(names, ", ")
}

// String says what was taken back, when and why.
func (u Undone) String() string {
	text := u.Name() + " was undone at " + u.At.Format(time.RFC3339)
	if u.Reason != "" {
		text += " (" + u.Reason + ")"
	}
	return text
}

// EnvironmentRepository returns the repository of an environment's records, below a location's prefix.
func EnvironmentRepository(environment string) string { return "environments/" + environment }

// Tag returns the record's own tag, which never moves.
func (r EnvironmentRecord) Tag() string { return fmt.Sprintf("s%d-%d", r.Epoch, r.Sequence) }

// Marshal returns the record's bytes. It returns an error if they exceed MaxEnvironmentBytes.
func (r EnvironmentRecord) Marshal() ([]byte, error) {
	data, err := json.Marshal(r)
	if err == nil && len(data) > MaxEnvironmentBytes {
		err = fmt.Errorf("record of environment %s: %d bytes: %w (at most %d)", r.Environment, len(data), ErrTooLarge, MaxEnvironmentBytes)
	}
	return data, err
}

// ParseEnvironmentRecord reads and checks a record. Its errors are of type *Refusal.
func ParseEnvironmentRecord(data []byte) (EnvironmentRecord, error) {
	var r EnvironmentRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return EnvironmentRecord{}, Refuse(BadContent, "environment record: %v", err)
	}
	switch {
	case r.Schema != EnvironmentSchema:
		return EnvironmentRecord{}, Refuse(BadContent, "environment record has schema %d, this version reads %d", r.Schema, EnvironmentSchema)
	case r.Platform == "" || r.Environment == "":
		return EnvironmentRecord{}, Refuse(BadContent, "environment record lacks platform or environment")
	case r.Sequence < 1 || r.Epoch < 0:
		return EnvironmentRecord{}, Refuse(BadContent, "environment record has epoch %d and sequence %d", r.Epoch, r.Sequence)
	}
	for name, d := range r.ClusterTypes {
		if err := d.Validate(); err != nil {
			return EnvironmentRecord{}, Refuse(BadContent, "environment record: cluster type %q: %v", name, err)
		}
	}
	if len(r.Undone) > MaxUndone {
		return EnvironmentRecord{}, Refuse(BadContent, "environment record lists %d times that something was undone, at most %d are allowed", len(r.Undone), MaxUndone)
	}
	for _, u := range r.Undone {
		if u.Reason != "" && CheckMessage(u.Reason) != nil || u.BaseCommit != "" && !plainName(u.BaseCommit) {
			return EnvironmentRecord{}, Refuse(BadContent, "environment record has a reason or a commit of what was undone with control characters, or too long")
		}
		for name, all := range u.Contents {
			for _, d := range all {
				if err := d.Validate(); err != nil {
					return EnvironmentRecord{}, Refuse(BadContent, "environment record: what was undone of cluster type %q: %v", name, err)
				}
			}
		}
	}
	for name, rings := range r.Rings {
		for ring, d := range rings {
			if err := d.Validate(); err != nil || ring == "" {
				return EnvironmentRecord{}, Refuse(BadContent, "environment record: cluster type %q, ring %q: %v", name, ring, err)
			}
		}
	}
	return r, nil
}

// HasBase reports whether the record is of a base commit, or of another one with the same base; an empty id is not known.
func (r EnvironmentRecord) HasBase(commit, id string) bool {
	return r.BaseCommit == commit || id != "" && r.BaseID == id
}

// ReleaseOf returns the manifest of the release for agents of a cluster type and ring; an empty ring means agents without
// one. It returns "" if the record names none.
func (r EnvironmentRecord) ReleaseOf(clusterType, ring string) digest.Digest {
	if ring == "" {
		return r.ClusterTypes[clusterType]
	}
	return r.Rings[clusterType][ring]
}

// ReleasesOf returns the record's manifests of a cluster type, sorted, each once.
func (r EnvironmentRecord) ReleasesOf(clusterType string) []digest.Digest {
	var all []digest.Digest
	if d := r.ClusterTypes[clusterType]; d != "" {
		all = append(all, d)
	}
	all = slices.AppendSeq(all, maps.Values(r.Rings[clusterType]))
	slices.Sort(all)
	return slices.Compact(all)
}

// Types returns the names of the cluster types for which the record has a release, sorted.
func (r EnvironmentRecord) Types() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(r.ClusterTypes)), maps.Keys(r.Rings))
	slices.Sort(names)
	return slices.Compact(names)
}

// VerifiedEnvironment is an environment record whose signature was checked.
type VerifiedEnvironment struct {
	Descriptor ocispec.Descriptor
	Record     EnvironmentRecord
	// Ledger describes the layer with what the record says of workloads, which was not requested yet; see package ledger. It is zero if
	// there is none.
	Ledger ocispec.Descriptor
	// KeyIDs names the distinct keys that signed, sorted; see KeyID.
	KeyIDs []string
}

// VerifyEnvironment is Verify for an environment record.
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

// ReadEnvironment is Read for an environment record.
func ReadEnvironment(ctx context.Context, src Source, manifest ocispec.Descriptor) (*VerifiedEnvironment, error) {
	data, err := ReadBlob(ctx, src, manifest, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Refuse(BadContent, "manifest %s: %v", manifest.Digest, err)
	}
	if m.ArtifactType != MediaTypeEnvironment || m.Config.MediaType != MediaTypeEnvironment {
		return nil, Refuse(BadContent, "manifest %s has artifactType %q and config %q: no environment record",
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
	manifest.Data = nil
	v := &VerifiedEnvironment{Descriptor: manifest, Record: record}
	if len(m.Layers) > 0 && (m.Layers[0].MediaType == MediaTypeLedger || isNewer(m.Layers[0].MediaType, MediaTypeLedger)) {
		v.Ledger = m.Layers[0]
	}
	return v, nil
}
