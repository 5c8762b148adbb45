package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
)

// MaxSequence is the last sequence of an epoch. A publisher that has reached it needs a new epoch.
const MaxSequence = math.MaxInt64

// ReleaseSchema is the version of the release document that this code writes.
const ReleaseSchema = 1

// Release is the release document: what a signature on a bundle vouches for. It is the config blob of
// the bundle's manifest.
type Release struct {
	Schema      int    `json:"schema"`
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
	// Rings names the rings that may run the release, sorted. Empty means all of them.
	Rings []string `json:"rings,omitempty"`
	// Epoch is the epoch of the trust document in force; 0 while public keys are pinned.
	Epoch    int64 `json:"epoch"`
	Sequence int64 `json:"sequence"`
	// Number is the name of the release for people; see NextNumber. It is 0 in releases of older publishers. Neither
	// order nor equality of releases depends on it.
	Number int64 `json:"number,omitempty"`
	// IssuedAt and ExpiresAt are in UTC, in whole seconds.
	IssuedAt          time.Time `json:"issuedAt"`
	ExpiresAt         time.Time `json:"expiresAt"`
	BaseCommit        string    `json:"baseCommit,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	Content           Content   `json:"content"`
	Artifacts         Artifacts `json:"artifacts"`
	// Platforms are those of the type's clusters, sorted, for which their images are brought: at most MaxPlatforms. Empty means that
	// the publisher does not say.
	Platforms []string `json:"platforms,omitempty"`
}

// Content identifies a tree. It is a function of the input alone, and does not depend on the compressor.
type Content struct {
	// DiffID is the digest of the uncompressed tar.
	DiffID digest.Digest `json:"diffID"`
	// Size is the length of the uncompressed tar, in bytes.
	Size int64 `json:"size"`
	// Files counts the regular files in it.
	Files int `json:"files"`
}

// Artifacts is the summary of .wherry/artifacts.ndjson.
type Artifacts struct {
	// Digest is the digest of the file; empty if no assignment needs an artifact.
	Digest digest.Digest `json:"digest,omitempty"`
	Count  int           `json:"count"`
	Bytes  int64         `json:"bytes"`
}

// Stream names a sequence of releases that are ordered among themselves.
type Stream struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
}

// Stream returns the stream that r belongs to.
func (r Release) Stream() Stream {
	return Stream{Platform: r.Platform, Environment: r.Environment, ClusterType: r.ClusterType}
}

// Repository returns the repository of the stream's releases, below a location's prefix.
func (s Stream) Repository() string { return "bundles/" + s.Environment + "/" + s.ClusterType }

// Tag returns the release's own tag, which never moves.
func (r Release) Tag() string { return fmt.Sprintf("s%d-%d", r.Epoch, r.Sequence) }

// SameContent reports whether r and o have the same tree and need the same artifacts, for the same platforms.
func (r Release) SameContent(o Release) bool {
	return r.Content == o.Content && r.Artifacts == o.Artifacts && slices.Equal(r.Platforms, o.Platforms)
}

// Marshal returns the document's bytes. It returns an error if they exceed MaxReleaseBytes.
func (r Release) Marshal() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxReleaseBytes {
		return nil, fmt.Errorf("release document of %s/%s: %d bytes: %w (at most %d: shorten ring names or commits)",
			r.Environment, r.ClusterType, len(data), ErrTooLarge, MaxReleaseBytes)
	}
	return data, nil
}

// ParseRelease reads and checks a release document. Its errors are of type *Refusal.
func ParseRelease(data []byte) (Release, error) {
	if len(data) > MaxReleaseBytes {
		return Release{}, Refuse(TooLarge, "release document has %d bytes, at most %d are allowed", len(data), MaxReleaseBytes)
	}
	var r Release
	if err := json.Unmarshal(data, &r); err != nil {
		return Release{}, Refuse(BadContent, "release document: %v", err)
	}
	if r.Number < 0 || r.Number > maxNumber {
		r.Number = 0 // it is only for people, so no reason to refuse the release
	}
	switch {
	case r.Schema > ReleaseSchema:
		return Release{}, Refuse(UnsupportedSchema, "release document has schema %d, this version reads %d: %s", r.Schema, ReleaseSchema, tooNew)
	case r.Schema != ReleaseSchema:
		return Release{}, Refuse(BadContent, "release document has schema %d, this version reads %d", r.Schema, ReleaseSchema)
	case r.Platform == "" || r.Environment == "" || r.ClusterType == "":
		return Release{}, Refuse(BadContent, "release document lacks platform, environment or clusterType")
	case r.Sequence < 1 || r.Epoch < 0:
		return Release{}, Refuse(BadContent, "release document has epoch %d and sequence %d", r.Epoch, r.Sequence)
	case r.IssuedAt.IsZero() || r.ExpiresAt.Before(r.IssuedAt):
		return Release{}, Refuse(BadContent, "release document has issuedAt %s and expiresAt %s", r.IssuedAt, r.ExpiresAt)
	case len(r.Platforms) > MaxPlatforms || slices.ContainsFunc(r.Platforms, func(p string) bool { return CheckPlatform(p) != nil }):
		return Release{}, Refuse(BadContent, "release document has platforms %.200q", r.Platforms)
	case r.Content.DiffID.Validate() != nil || r.Content.Size < 0 || r.Content.Files < 0:
		return Release{}, Refuse(BadContent, "release document has no valid content")
	case r.Content.Size > MaxTreeBytes || r.Content.Files > MaxFiles:
		return Release{}, Refuse(TooLarge, "tree of %d files and %d bytes: at most %d and %d are allowed",
			r.Content.Files, r.Content.Size, MaxFiles, MaxTreeBytes)
	}
	return r, nil
}

// Order is a release's place in its stream.
type Order struct {
	Epoch    int64         `json:"epoch"`
	Sequence int64         `json:"sequence"`
	IssuedAt time.Time     `json:"issuedAt"`
	Digest   digest.Digest `json:"digest"` // of the manifest
}

// OrderOf returns the place of release r, whose manifest has digest d.
func OrderOf(r Release, d digest.Digest) Order {
	return Order{Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt, Digest: d}
}

// Compare orders by epoch, sequence, time of issue and manifest digest, so that all agents order the releases of two
// publishers in a race for one sequence alike.
func (o Order) Compare(p Order) int {
	return cmp.Or(
		cmp.Compare(o.Epoch, p.Epoch),
		cmp.Compare(o.Sequence, p.Sequence),
		o.IssuedAt.Compare(p.IssuedAt),
		cmp.Compare(o.Digest, p.Digest),
	)
}

// Expect holds the agent's identity, history and time, against which a release is judged.
type Expect struct {
	Stream
	// Ring is the agent's ring; empty accepts only releases that name no ring.
	Ring string
	// Epoch is the epoch of the trust in force.
	Epoch int64
	// Highest is the highest place accepted so far in the stream; zero means none.
	Highest Order
	// Now is the time for judging expiry: the later of the clock and the newest verified time of issue.
	Now time.Time
	// AllowExpired accepts a release that has expired, because a person has said so.
	AllowExpired bool
}

// Check returns nil if release r, whose manifest has digest d, may be accepted, and a *Refusal otherwise. It accepts a
// release equal to e.Highest whatever its epoch and age, since the agent has accepted it already.
func (e Expect) Check(r Release, d digest.Digest) error {
	order := OrderOf(r, d)
	switch {
	case r.Platform != e.Platform:
		return Refuse(WrongPlatform, "release is for platform %q, this agent belongs to %q", r.Platform, e.Platform)
	case r.Environment != e.Environment:
		return Refuse(WrongEnvironment, "release is for environment %q, this agent belongs to %q", r.Environment, e.Environment)
	case r.ClusterType != e.ClusterType:
		return Refuse(WrongClusterType, "release is for cluster type %q, this agent is a %q", r.ClusterType, e.ClusterType)
	case len(r.Rings) > 0 && !slices.Contains(r.Rings, e.Ring):
		return Refuse(WrongRing, "release is for rings %v, this agent is in ring %q", r.Rings, e.Ring)
	case order.Digest == e.Highest.Digest:
		return nil
	case r.Epoch != e.Epoch:
		return Refuse(OldEpoch, "release has epoch %d, the trust in force has %d", r.Epoch, e.Epoch)
	case order.Compare(e.Highest) < 0:
		return Refuse(OlderRelease, "release %s, s%d-%d, is older than s%d-%d, which this agent has accepted",
			ReleaseName(r.Number, d), order.Epoch, order.Sequence, e.Highest.Epoch, e.Highest.Sequence)
	case !e.AllowExpired && !e.Now.Before(r.ExpiresAt):
		return Refuse(Expired, "release expired at %s, and here it is %s", r.ExpiresAt.Format(time.RFC3339), e.Now.UTC().Format(time.DateOnly))
	}
	return nil
}
