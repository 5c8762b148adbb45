package intake

import (
	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Outcome is what came of one stream of a site package. Its values are an interface, in documents and for programs.
type Outcome string

// The outcomes of a stream.
const (
	// Taken means that the release is whole in the store, and the newest of its stream there.
	Taken Outcome = "taken"
	// Here means that the store had this release already.
	Here Outcome = "here"
	// Older means that a newer release of the stream was taken before.
	Older Outcome = "older"
	// Refused means that the release is not trusted, has expired, or is damaged.
	Refused Outcome = "refused"
	// LacksBase means that the package leaves out content of an earlier release that is not in the store.
	LacksBase Outcome = "lacks its base"
	// NoRoom means that the release does not fit into its budget or on the disk.
	NoRoom Outcome = "no room"
	// Foreign means that the release is of another platform, or that this agent does not store its stream.
	Foreign Outcome = "foreign"
	// Unfinished means that the package could not be read to its end. The next import goes on.
	Unfinished Outcome = "unfinished"
)

// Good reports whether the store has what the package offered.
func (o Outcome) Good() bool { return o == Taken || o == Here }

// Stream is the result for one stream. Its JSON is an interface.
type Stream struct {
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
	// Own is true for the stream that the agent itself follows. A pass has judged its release then.
	Own bool `json:"own,omitempty"`
	// Package is the file's name if the medium has several packages.
	Package string  `json:"package,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Release is the short name of the package's release, such as "12 (68846e7d)", and Digest that of its manifest.
	Release string        `json:"release,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"`
	// Bytes is what was copied for it. Blobs that several streams need count for the first of them.
	Bytes int64 `json:"bytes,omitempty"`
	// Reason and Message say why it was not taken; empty if it was, or was here.
	Reason  bundle.Reason `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// Name is the stream as people write it: ENVIRONMENT/CLUSTER-TYPE.
func (s Stream) Name() string { return s.Environment + "/" + s.ClusterType }
