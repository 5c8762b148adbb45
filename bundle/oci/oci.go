// Package oci opens the two kinds of place where bundles are kept: repositories below a prefix of a
// registry (oci://HOST/PREFIX) and a folder in the OCI image layout (oci-layout:DIR).
//
// Begin with Parse, then Location.Repository for one repository or Location.Open for several:
//
//	loc, err := oci.Parse("oci://registry.plant-7:5000/edge")
//	repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
//	desc, err := repo.Resolve(ctx, "latest")
//
// Both kinds behave the same. In a layout the index's org.opencontainers.image.ref.name is the
// repository's name and the tag, joined by a slash: bundles/dev/drone/latest. Tagging is the only
// step that makes content visible, it is atomic, and what it points at is on disk before it.
//
// Nothing here is trusted: content is what a descriptor's digest says only once the caller has checked
// it. Every request ends by itself when the other side stalls, and no reader yields more bytes than its
// descriptor names. Errors wrap ErrUnreachable, ErrUnauthorized or oras's errdef.ErrNotFound where
// callers branch.
package oci

import (
	"context"
	"errors"
	"net/http"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Errors that callers test for, beside errdef.ErrNotFound.
var (
	// ErrUnreachable means that the registry cannot be asked now: no connection, no answer in time, or an
	// answer that says to come back later. Trying again can help.
	ErrUnreachable = errors.New("registry unreachable")
	// ErrUnauthorized means that the registry knows no credentials for the request, or denies it.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNoLayout means that a folder is no layout. Where it could become one, the error wraps
	// errdef.ErrNotFound too; else it holds something that is not to be mixed with one.
	ErrNoLayout = errors.New("no OCI layout")
)

// MaxTags bounds how many tags or repositories are listed.
const MaxTags = 100_000

// Options says how to talk to a registry. The zero value is right for most; layouts need none of it.
type Options struct {
	// HTTPClient sends the requests. Nil is a client that retries a few times and gives up on silence.
	HTTPClient *http.Client
	// UserAgent names the program to the registry. Empty means "wherry".
	UserAgent string
	// PlainHTTP speaks HTTP without TLS. Loopback hosts are spoken to that way in any case.
	PlainHTTP bool
	// Credential finds the credentials of a registry. Nil asks docker's config.json and its helpers.
	Credential auth.CredentialFunc
	// AuthHosts are the hosts of token services, HOST or HOST:PORT (443 where there is none), that credentials may be
	// sent to when a registry names them. Its own host and others in its registered domain need no entry.
	AuthHosts []string
	// AuthRecord is the file in which Login has recorded such hosts. Empty is the one beside docker's config.json where
	// Credential is nil, and else none.
	AuthRecord string
	// Patience is how long a request for metadata may take, with its retries and the logins that it takes, and how
	// long other content may bring next to nothing. Zero means a minute.
	Patience time.Duration
}

// Target is one repository: content by digest, and tags that point at manifests.
type Target interface {
	oras.Target
	// Tags lists the repository's tags, sorted. A repository that is not there has none.
	Tags(ctx context.Context) ([]string, error)
	// Untag takes a tag away; what it named stays. Its error wraps errors.ErrUnsupported where the registry
	// deletes no tags, as many do not: Delete takes a manifest's tags along.
	Untag(ctx context.Context, tag string) error
	// Delete takes a manifest out of the repository, with all its tags. Its error wraps errors.ErrUnsupported
	// where the registry deletes nothing. The space is freed later: by the registry itself, or by Layout.Sweep.
	Delete(ctx context.Context, manifest ocispec.Descriptor) error
}

// Store is an opened location. It is safe for use by several goroutines.
type Store interface {
	// Repository returns the repository with the given name below the prefix, whether it exists or not.
	Repository(name string) (Target, error)
	// Repositories lists the names of the repositories below the prefix, sorted. Its error wraps
	// errors.ErrUnsupported where the registry has no catalog.
	Repositories(ctx context.Context) ([]string, error)
}

// Open returns the location's store. It makes no request and touches no disk. A layout's tags are then given
// only to what is there with all that it names, as registries have it.
func (l Location) Open(opts Options) (Store, error) {
	if l.Dir != "" {
		return &Layout{dir: l.Dir, whole: true}, nil
	}
	return openRegistry(l, opts)
}

// Repository opens the location and returns one repository of it.
func (l Location) Repository(name string, opts Options) (Target, error) {
	s, err := l.Open(opts)
	if err != nil {
		return nil, err
	}
	return s.Repository(name)
}
