package store

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// ErrUnknownRelease means that the hub has never seen the release.
var ErrUnknownRelease = errors.New("no such release")

// PublishedRelease is a release whose signature was verified. It is never changed and never removed.
type PublishedRelease struct {
	Digest digest.Digest // of the manifest
	bundle.Release
	Message string   // of whoever published it
	KeyIDs  []string // that signed it
	SeenAt  time.Time
	// Assignments are by name. Artifacts are what they need from outside the bundle.
	Assignments []bundle.Assignment
	Artifacts   []bundle.Artifact
}

// PublishedRecord is an environment record whose signature was verified.
type PublishedRecord struct {
	Digest digest.Digest
	bundle.EnvironmentRecord
	KeyIDs []string
	SeenAt time.Time
}

// Published is what the fleet should run.
type Published interface {
	// AddReleases stores verified releases; those that are there already change nothing.
	AddReleases(ctx context.Context, all []PublishedRelease) (added int, err error)
	// AddRecord stores a verified record, after the releases that it names. An older one than the newest adds to the history
	// alone. It reports whether it was new.
	AddRecord(ctx context.Context, r PublishedRecord) (added bool, err error)
	// Release returns a release. The error wraps ErrUnknownRelease.
	Release(ctx context.Context, d digest.Digest) (PublishedRelease, error)
	// Releases calls each with all releases without Assignments and Artifacts, by stream and order, oldest first.
	Releases(ctx context.Context, each func(PublishedRelease) error) error
	// Records calls each with all records, by platform, environment and order, oldest first.
	Records(ctx context.Context, each func(PublishedRecord) error) error
}
