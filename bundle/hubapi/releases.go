package hubapi

import "github.com/opencontainers/go-digest"

const (
	// ReleasesPattern takes an OCI layout in a tar with an environment record, the releases that it names, the trust
	// documents of its platform and all their signatures, under the names that they have below a location. It answers with
	// Learned.
	ReleasesPattern = "POST /v1/releases"
	// ArchiveContentType is the media type of such a request.
	ArchiveContentType = "application/x-tar"
	// MaxArchiveBytes bounds its body.
	MaxArchiveBytes = 256 << 20
	// MaxLearnedBytes bounds its answer.
	MaxLearnedBytes = 8 << 20
)

// Learned is what a hub has learned from an environment record.
type Learned struct {
	Platform    string        `json:"platform"`
	Environment string        `json:"environment"`
	Record      digest.Digest `json:"record"`
	// Stored is true if the record is stored, New if it was not before.
	Stored bool `json:"stored"`
	New    bool `json:"new"`
	// Newest is true if no newer record of the environment is stored.
	Newest bool `json:"newest"`
	// Releases counts the releases that were stored now.
	Releases int `json:"releases"`
	// Refused lists the releases that the record names and that are not stored. If content of one is missing, the record is
	// not stored either: send everything again, together with that content.
	Refused []RefusedRelease `json:"refused,omitempty"`
}

// MissingContent returns the digests of the content that is missing.
func (l Learned) MissingContent() (all []digest.Digest) {
	for _, r := range l.Refused {
		if r.Missing != "" {
			all = append(all, r.Missing)
		}
	}
	return all
}

// RefusedRelease is a release that a record names and that is not stored.
type RefusedRelease struct {
	ClusterType string        `json:"clusterType"`
	Digest      digest.Digest `json:"digest"`
	// Reason is a bundle.Reason, or ReasonMissing.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Missing is the digest of the content that is missing.
	Missing digest.Digest `json:"missing,omitempty"`
}

// ReasonMissing is the RefusedRelease.Reason of a release of which content is missing.
const ReasonMissing = "Missing"
