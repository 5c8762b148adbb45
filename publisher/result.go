package publisher

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// Published is what Publish did. Its JSON form is an interface.
type Published struct {
	Platform          string          `json:"platform"`
	Environment       string          `json:"environment"`
	BaseCommit        string          `json:"baseCommit,omitempty"`
	EnvironmentCommit string          `json:"environmentCommit,omitempty"`
	ClusterTypes      []PublishedType `json:"clusterTypes"`
	// Unread lists the registrations whose sources could not be read.
	Unread []platform.UnreadRegistration `json:"unread,omitempty"`
	// Dropping lists the registrations that are held because they drop too many of their targets at once.
	Dropping []platform.UnreadRegistration `json:"dropping,omitempty"`
	// AwaitingProof lists the workloads that keep what they have until the environment below has proved what they would get, and those
	// that would come again although they were undone.
	AwaitingProof []diff.AwaitingProof `json:"awaitingProof,omitempty"`
	// Proved lists the workloads that came because the environment below has proved them.
	Proved []diff.Proved `json:"proved,omitempty"`
	// FailedPolicies lists the scheduling policies whose selection is unknown.
	FailedPolicies []platform.FailedPolicy `json:"failedPolicies,omitempty"`
	// Record is the environment record.
	Record PublishedRecord `json:"record"`
	// Refused are the cluster types, sorted, whose content was not published because the environment is paused; see
	// PublishOptions.Paused.
	Refused []string `json:"refused,omitempty"`
	// Undone is what was undone and would have been released again: nothing new was published. It is nil if there is none.
	Undone *bundle.Undone `json:"undone,omitempty"`
	// Warnings are about the content at the destination.
	Warnings []string `json:"warnings,omitempty"`

	// RenewAt is the moment from which publishing again makes a release anew because it expires; zero if there is none.
	RenewAt time.Time `json:"-"`
	// NextLook is the moment from which publishing again may bring content that is proved then; zero if there is none.
	NextLook time.Time `json:"-"`
}

// PublishedType is one cluster type of a Published.
type PublishedType struct {
	ClusterType string `json:"clusterType"`
	// Assignments counts the rendered and the held assignments.
	Assignments int              `json:"assignments"`
	Result      releases.Outcome `json:"result"`
	// Sequence, Digest and Number belong to the newest release after publishing, or to the pending one; zero if there
	// is none.
	Sequence int64         `json:"sequence,omitempty"`
	Digest   digest.Digest `json:"digest,omitempty"`
	Number   int64         `json:"number,omitempty"`
	// Renewed is the reason why a release was made with unchanged content; empty if its content is new.
	Renewed string `json:"renewed,omitempty"`
	// Signatures counts those of a pending release.
	Signatures *SignatureCount `json:"signatures,omitempty"`
	// Releases lists the rings' releases, the newest first, if the platform names rings. Sequence, Digest, Number,
	// Renewed and Signatures then belong to the widest ring that was published to, and Result sums up all of them.
	Releases []PublishedRelease `json:"releases,omitempty"`
	// Reason is the reason why the cluster type as a whole failed.
	Reason string `json:"reason,omitempty"`
	// Failures lists the assignments that could not be rendered, sorted by name. Unless the cluster type
	// failed, those with HeldFrom are in the release as they were, and the others never were in one.
	Failures []FailedAssignment `json:"failures,omitempty"`
	// Waiting lists the assignments of workloads that wait for a proof of the environment below or were undone, sorted by name. Those with HeldFrom
	// are in the release as they were, and the others are in none so far.
	Waiting []FailedAssignment `json:"waiting,omitempty"`
	// Dropped lists those of PublishOptions.Drop that could not be rendered and were left out.
	Dropped []FailedAssignment `json:"dropped,omitempty"`
	// FailedSites lists the clusters whose site values have a mistake. Unless the cluster type failed, those with HeldFrom
	// keep their values of the release that it names, and the others have none.
	FailedSites []FailedSite `json:"failedSites,omitempty"`

	assigns bool // a ring's release has assignments, although the cluster type has none any more
}

// Released reports whether a release of the cluster type was made or became visible, or waits for signatures.
func (t PublishedType) Released() bool {
	return t.Result == releases.OutcomePublished || t.Result == releases.OutcomePending
}

// PublishedRelease is what some rings of a cluster type have after publishing, or are to have once it is signed.
type PublishedRelease struct {
	// Rings lists the rings that have it, and Latest is true where agents without a ring do.
	Rings  []string         `json:"rings"`
	Latest bool             `json:"latest,omitempty"`
	Result releases.Outcome `json:"result"`
	// Sequence and Number are zero where the release is not known any more.
	Sequence int64         `json:"sequence,omitempty"`
	Number   int64         `json:"number,omitempty"`
	Digest   digest.Digest `json:"digest"`
	// Renewed is the reason why the release was made anew with unchanged content; empty if its content is new.
	Renewed    string          `json:"renewed,omitempty"`
	Signatures *SignatureCount `json:"signatures,omitempty"`

	content digest.Digest // of the tree
}

// releaseOf returns what a ring has, or latest where that is empty; the zero value where it has nothing.
func (t PublishedType) releaseOf(ring string) PublishedRelease {
	for _, r := range t.Releases {
		if ring == "" && r.Latest || slices.Contains(r.Rings, ring) {
			return r
		}
	}
	return PublishedRelease{Result: releases.OutcomeUnchanged}
}

// byRing maps each ring to its release.
func (t PublishedType) byRing() map[string]digest.Digest {
	rings := map[string]digest.Digest{}
	for _, r := range t.Releases {
		for _, ring := range r.Rings {
			rings[ring] = r.Digest
		}
	}
	return rings
}

// SignatureCount is the number of keys that have signed, and the number that have to.
type SignatureCount struct {
	Have int `json:"have"`
	Need int `json:"need"`
}

// FailedAssignment is an assignment that could not be rendered.
type FailedAssignment struct {
	Name   string                  `json:"name"`
	Error  string                  `json:"error"`
	Reason scheduler.FailureReason `json:"reason"`
	// HeldFrom identifies the release of its content; nil if it has none.
	HeldFrom *bundle.Held `json:"heldFrom,omitempty"`
	// Taken is true if another assignment has the name and keeps it; Registration is then the failed
	// one's.
	Taken        bool   `json:"taken,omitempty"`
	Registration string `json:"registration,omitempty"`
}

// PublishedRecord is the environment record of a Published.
type PublishedRecord struct {
	Result   releases.Outcome `json:"result"`
	Sequence int64            `json:"sequence,omitempty"`
	Digest   digest.Digest    `json:"digest,omitempty"`
	// Signatures counts those of a pending record.
	Signatures *SignatureCount `json:"signatures,omitempty"`
}

// Pending counts the cluster types whose releases wait for signatures.
func (p *Published) Pending() int {
	n := 0
	for _, ct := range p.ClusterTypes {
		if ct.Result == releases.OutcomePending {
			n++
		}
	}
	return n
}

// Failed counts the cluster types that were not published.
func (p *Published) Failed() int {
	n := 0
	for _, ct := range p.ClusterTypes {
		if ct.Result == releases.OutcomeFailed {
			n++
		}
	}
	return n
}

// FailedAssignments counts the assignments that could not be rendered, were not dropped, and have kept the
// content that they had, or never had any. Those of cluster types that failed are in neither count.
func (p *Published) FailedAssignments() (held, leftOut int) {
	for _, ct := range p.ClusterTypes {
		for _, f := range ct.Failures {
			switch {
			case ct.Result == releases.OutcomeFailed:
			case f.HeldFrom != nil:
				held++
			default:
				leftOut++
			}
		}
	}
	return held, leftOut
}
