package copier

import (
	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/publisher/releases"
)

// The outcomes of copying, beside OutcomeUnchanged.
const (
	// OutcomeCopied means that the destination did not have it.
	OutcomeCopied releases.Outcome = "copied"
	// OutcomeUpdated means that the destination had it, without all that belongs to it: signatures, tags or blobs.
	OutcomeUpdated releases.Outcome = "updated"
)

// Copied is what a copy did. Its JSON form is an interface.
type Copied struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Items are in the order in which they were written: trust documents, artifacts, bundles, the record.
	Items []Item `json:"items"`
	// Decisions counts the decisions about promotion that the destination did not have.
	Decisions int `json:"decisions,omitempty"`
	// Warnings are about content that the source lacks.
	Warnings []string `json:"warnings,omitempty"`
}

// The kinds of items, beside "trust" and "environment".
const (
	kindBundle   = "bundle"
	kindArtifact = "artifact"
)

// Item is one manifest with its signatures, or an artifact.
type Item struct {
	// Kind is "trust", "artifact", "bundle" or "environment".
	Kind string `json:"kind"`
	// Repository is its name below the prefix, and Tag the manifest's own tag there; for an artifact that of the
	// reference, if it has one.
	Repository string           `json:"repository"`
	Tag        string           `json:"tag"`
	Digest     digest.Digest    `json:"digest"`
	Result     releases.Outcome `json:"result"`
	// Moving lists the moving tags that name it at both places.
	Moving []string `json:"moving,omitempty"`
	// Kept lists the tags that name it where it was copied from, and stay with something newer at the destination.
	Kept []KeptTag `json:"kept,omitempty"`
	// Sent counts the bytes of the blobs and manifests that were written, and ReferrerSent those of the signatures and other referrers of
	// an artifact, of which the source has as many as Referrers.
	Sent         int64 `json:"sentBytes"`
	Referrers    int   `json:"referrers,omitempty"`
	ReferrerSent int64 `json:"referrerSentBytes,omitempty"`
}

// KeptTag is a tag that was not moved, because it names something newer.
type KeptTag struct {
	Tag string `json:"tag"`
	// Newer is the own tag of the newer release or record.
	Newer  string        `json:"newer"`
	Digest digest.Digest `json:"digest"`
}

// Kept counts the tags that were not moved.
func (c *Copied) Kept() int {
	n := 0
	for _, i := range c.Items {
		n += len(i.Kept)
	}
	return n
}
