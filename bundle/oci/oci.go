// Package oci opens the places where bundles are kept: repositories below a prefix of a registry (oci://HOST/PREFIX), a
// folder in the OCI image layout (oci-layout:DIR), and to read alone such a layout in a tar (oci-archive:FILE).
//
// Begin with Parse, then Location.Repository for one repository or Location.Open for several:
//
//	loc, err := oci.Parse("oci://registry.plant-7:5000/edge")
//	repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
//	desc, err := repo.Resolve(ctx, "latest")
//
// All kinds behave the same. In a layout the index's org.opencontainers.image.ref.name is the
// repository's name and the tag, joined by a slash: bundles/dev/drone/latest. Only tagging makes content visible. In a
// layout, tagging is atomic, and the content is on disk before the tag.
//
// No content is trusted: a reader has to check it against the descriptor's digest. Every request ends by itself when
// the registry stalls, and no reader yields more bytes than its descriptor's size. Errors wrap ErrUnreachable,
// ErrUnauthorized or oras's errdef.ErrNotFound where callers branch.
package oci

import (
	"context"
	"errors"
	"net/http"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Errors that callers test for, beside errdef.ErrNotFound.
var (
	// ErrUnreachable means no connection, no response in time, or a response that asks to try again later. Trying
	// again can help.
	ErrUnreachable = errors.New("registry unreachable")
	// ErrUnauthorized means that the registry denies the request, or requires credentials that are missing or
	// withheld.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNoLayout means that a folder is no OCI layout. Errors of reading wrap errdef.ErrNotFound too. An error of
	// writing means that the folder holds other files, and nothing was written to it.
	ErrNoLayout = errors.New("no OCI layout")
)

// MaxTags bounds the number of tags or repositories that are listed.
const MaxTags = 100_000

// Options configures access to a registry. The zero value suits most registries; layouts use no option.
type Options struct {
	// HTTPClient sends the requests. Nil means a client that retries three times and ends stalled requests.
	HTTPClient *http.Client
	// UserAgent names the program to the registry. Empty means "wherry".
	UserAgent string
	// PlainHTTP turns TLS off. Loopback hosts are always asked without TLS.
	PlainHTTP bool
	// Credential returns the credentials of a registry. Nil means docker's config.json and its helpers.
	Credential auth.CredentialFunc
	// AuthHosts are the hosts of token services, as HOST or HOST:PORT (443 by default), that may get the
	// credentials when a registry names them. The registry's own host and those in its registered domain need no entry.
	AuthHosts []string
	// AuthRecord is the file in which Login has recorded such hosts. Empty means the file beside docker's config.json
	// if Credential is nil, and none otherwise.
	AuthRecord string
	// Patience bounds the time of a request for metadata, with its retries and logins, and the time for which a
	// transfer of other content may stall. Zero means a minute.
	Patience time.Duration
}

// Target is one repository: content by digest, and tags that point at manifests.
//
// Tag points a tag at a manifest that was pushed before. If the descriptor has the manifest as its data, Tag pushes it too, which
// at a registry is one request for both. Its error wraps errdef.ErrNotFound if the manifest, or what it names, is not there.
type Target interface {
	content.Storage
	content.TagResolver
	// Tags lists the repository's tags, sorted. A missing repository has none.
	Tags(ctx context.Context) ([]string, error)
	// Referrers lists the manifests that name subject as theirs. Function Referrers has those under cosign's tags as well.
	Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error)
	// Untag removes a tag and keeps its manifest. Its error wraps errors.ErrUnsupported if the registry cannot
	// delete tags, as many cannot: there, Delete removes a manifest with its tags.
	Untag(ctx context.Context, tag string) error
	// Delete removes a manifest with all its tags. Its error wraps errors.ErrUnsupported if the registry deletes
	// nothing. The space is freed later: by the registry itself, or by Layout.Sweep.
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

// Open returns the location's store. It makes no request and does not access the disk. Like a registry, a layout that was
// opened so refuses to tag a manifest if any content that it names is missing. An archive is opened by its first use; its
// methods that write return ErrReadOnly.
func (l Location) Open(opts Options) (Store, error) {
	switch {
	case l.Dir != "":
		return &Layout{dir: l.Dir, whole: true}, nil
	case l.Archive != "":
		return &archived{location: l}, nil
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
