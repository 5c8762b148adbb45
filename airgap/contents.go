package airgap

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
)

const (
	// ContentsName is the name, in a site package's index, of the artifact whose one layer is the list of contents.
	ContentsName = "site"
	// MediaTypeContents is the type of that artifact, and of its layer.
	MediaTypeContents = "application/vnd.wherry.site.v1+json"
	// ContentsSchema is the version of the list of contents that this code writes.
	ContentsSchema = 1
	// MaxContentsBytes bounds the list of contents.
	MaxContentsBytes = 16 << 20
)

// Contents is the list of what a site package holds and leaves out. It is not signed: it says what to expect, so that
// lack of space, or of content that the site should have, is found before anything is copied. It never decides what is
// believed.
type Contents struct {
	Schema   int    `json:"schema"`
	Platform string `json:"platform"`
	// Site is the name of the site that the package was made for, for people; empty if none was named.
	Site string `json:"site,omitempty"`
	// Releases are sorted by environment, cluster type and ring.
	Releases []ContentsRelease `json:"releases"`
	// Artifacts are sorted by repository, tag and digest.
	Artifacts []ContentsArtifact `json:"artifacts"`
	// ImagePlatforms are the platforms of the artifacts, sorted.
	ImagePlatforms graph.Platforms `json:"imagePlatforms,omitempty"`
	// Blobs is the number of blobs in the package, and Bytes the sum of their sizes, each blob counted once.
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
	// LeftOut are blobs of artifacts that the site should have from earlier packages, sorted by digest.
	LeftOut []ContentsBlob `json:"leftOut,omitempty"`
	// AllowExpired is a person's reason for carrying a release that had expired; empty if none had.
	AllowExpired string `json:"allowExpired,omitempty"`
}

// ContentsRelease is a release in a site package.
type ContentsRelease struct {
	Environment string `json:"environment"`
	ClusterType string `json:"clusterType"`
	// Ring is the ring whose moving tag the release has; empty for latest.
	Ring   string        `json:"ring,omitempty"`
	Number int64         `json:"number"`
	Tag    string        `json:"tag"`    // its own, such as s0-12
	Digest digest.Digest `json:"digest"` // of its manifest
	// ExpiresAt is the end of its validity; zero if it has none.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Bytes is the size of the bundle without its artifacts.
	Bytes int64 `json:"bytes"`
	// Base is the release whose artifacts the site should have: what they have in common with the artifacts of this one
	// is left out. Empty if nothing is left out.
	Base digest.Digest `json:"base,omitempty"`
	// BaseName is the short name of Base, such as "11 (0aa1f2b3)".
	BaseName string `json:"baseName,omitempty"`
}

// Stream is the stream of the release.
func (c Contents) Stream(r ContentsRelease) bundle.Stream {
	return bundle.Stream{Platform: c.Platform, Environment: r.Environment, ClusterType: r.ClusterType}
}

// ContentsArtifact is an image, a chart or another artifact of a registry, on ImagePlatforms.
type ContentsArtifact struct {
	Type       bundle.ArtifactType `json:"type"`
	Repository string              `json:"repository"` // HOST/NAME
	Tag        string              `json:"tag,omitempty"`
	Digest     digest.Digest       `json:"digest"`
	// Bytes is the size of its manifests and blobs, whether they are in the package or left out.
	Bytes int64 `json:"bytes"`
	// ReferrerCount counts its signatures, attestations, SBOMs and other referrers in the package, and ReferrerBytes is their size, which
	// Bytes does not have.
	ReferrerCount int   `json:"referrers,omitempty"`
	ReferrerBytes int64 `json:"referrerBytes,omitempty"`
	// UsedBy names the releases that need it, as ENVIRONMENT/CLUSTER-TYPE, sorted.
	UsedBy []string `json:"usedBy"`
}

// Referrers counts the referrers of the artifacts, and their bytes. Those of an artifact that has several names count once.
func (c Contents) Referrers() (n int, bytes int64) {
	counted := map[string]bool{}
	for _, a := range c.Artifacts {
		if name := a.Repository + "@" + a.Digest.String(); !counted[name] {
			counted[name] = true
			n, bytes = n+a.ReferrerCount, bytes+a.ReferrerBytes
		}
	}
	return n, bytes
}

// ContentsBlob is a blob that is left out.
type ContentsBlob struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// Marshal returns the document. The same contents have the same bytes.
func (c Contents) Marshal() ([]byte, error) {
	c.Schema = ContentsSchema
	data, err := json.Marshal(c)
	if err == nil && len(data) > MaxContentsBytes {
		err = fmt.Errorf("list of contents: %w: %d bytes, at most %d are allowed", bundle.ErrTooLarge, len(data), MaxContentsBytes)
	}
	return data, err
}

// ParseContents reads and checks a document. Its error wraps ErrFormat.
func ParseContents(data []byte) (Contents, error) {
	var c Contents
	bad := func(format string, args ...any) (Contents, error) {
		return Contents{}, fmt.Errorf("%w: list of contents: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(data) > MaxContentsBytes {
		return bad("it has %d bytes, at most %d are allowed", len(data), MaxContentsBytes)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return bad("%v", err)
	}
	if c.Schema > ContentsSchema || c.Schema < 1 {
		return bad("version %d is not known here, only up to %d: use a newer wherry", c.Schema, ContentsSchema)
	}
	digests := []digest.Digest{}
	for _, r := range c.Releases {
		digests = append(digests, r.Digest)
		if r.Base != "" {
			digests = append(digests, r.Base)
		}
		if r.Environment == "" || r.ClusterType == "" || r.Bytes < 0 {
			return bad("a release needs an environment, a cluster type and no negative size")
		}
	}
	for _, a := range c.Artifacts {
		digests = append(digests, a.Digest)
		if a.Repository == "" || a.Bytes < 0 || a.ReferrerCount < 0 || a.ReferrerBytes < 0 {
			return bad("an artifact needs a repository and no negative size")
		}
	}
	for _, b := range c.LeftOut {
		digests = append(digests, b.Digest)
		if b.Size < 0 {
			return bad("a blob has a negative size")
		}
	}
	if c.Blobs < 0 || c.Bytes < 0 || slices.ContainsFunc(digests, func(d digest.Digest) bool { return d.Validate() != nil || d.Algorithm() != digest.SHA256 }) {
		return bad("it has a negative size, or a digest that is no SHA-256")
	}
	return c, nil
}
