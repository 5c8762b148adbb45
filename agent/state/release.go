package state

import (
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
)

// Release is a verified release as the state file keeps it: enough to fetch, stage and apply it again without asking
// anybody for permission. Nil is no release.
type Release struct {
	Release    bundle.Release     `json:"release"`
	Manifest   ocispec.Descriptor `json:"manifest"`
	Tree       ocispec.Descriptor `json:"tree"`
	AcceptedAt time.Time          `json:"acceptedAt"`
	// AllowExpired is why a person has let it be accepted although it had expired; empty if it had not.
	AllowExpired string `json:"allowExpired,omitempty"`
}

// Orders is the bucket with the highest place that was accepted of each stream, under its OrderKey. Every state file has it.
const Orders = "orders"

// OrderKey is the key of a stream in Orders.
func OrderKey(s bundle.Stream) string { return s.Repository() + "@" + s.Platform }

// Digest is that of the manifest; empty for nil.
func (r *Release) Digest() digest.Digest {
	if r == nil {
		return ""
	}
	return r.Manifest.Digest
}

// Name is the short name of a release, such as "12 (68846e7d)", and "none" for nil.
func (r *Release) Name() string {
	if r == nil {
		return "none"
	}
	return r.ID().String()
}

// ID is what people may name a release by.
func (r *Release) ID() bundle.ReleaseID { return bundle.IDOf(r.Release, r.Digest()) }

// Order is its place among the releases of its stream.
func (r *Release) Order() bundle.Order { return bundle.OrderOf(r.Release, r.Digest()) }
