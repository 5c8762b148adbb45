package oci

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// DefaultTag is the tag of a reference without tag or digest.
const DefaultTag = "latest"

// Reference names a manifest in a location: LOCATION/REPOSITORY with :TAG, @DIGEST or neither.
type Reference struct {
	Location   Location
	Repository string
	// Tag and Digest are both empty if the text names neither; otherwise one of them is set.
	Tag    string
	Digest digest.Digest
}

// layoutReference finds where the folder ends and the repository begins. Only the repositories that
// wherry writes are recognised, since both may hold any number of slashes. The separator may also be a
// colon, as other tools write references into a layout.
var layoutReference = lazyregexp.New(`^(.+)[/:]((?:bundles|environments)/[^:@]+)$`)

// ParseReference reads oci://HOST/PREFIX/bundles/ENVIRONMENT/TYPE, oci-layout:DIR/bundles/ENVIRONMENT/TYPE and
// oci-archive:FILE/bundles/ENVIRONMENT/TYPE, each with an optional :TAG or @DIGEST. In a layout or an archive the tag
// may also follow a slash, as in the index's ref names.
func ParseReference(s string) (Reference, error) {
	var r Reference
	rest, err := r.cutVersion(s)
	if err != nil {
		return Reference{}, fmt.Errorf("reference %q: %w", s, err)
	}
	if scheme, path, ok := cutLocal(rest); ok {
		m := layoutReference.FindStringSubmatch(path)
		if m == nil {
			return Reference{}, fmt.Errorf("reference %q names no repository: write %s/bundles/ENVIRONMENT/TYPE", s, placeholder[scheme])
		}
		if r.Location, err = Parse(scheme + m[1]); err != nil {
			return Reference{}, err
		}
		r.Repository = m[2]
		if err := CheckName(strings.ToLower(r.Repository)); err != nil { // the last part may be a tag
			return Reference{}, fmt.Errorf("reference %q: %w", s, err)
		}
		return r, nil
	}
	if !strings.HasPrefix(rest, schemeRegistry) {
		return Reference{}, fmt.Errorf("reference %q: write oci://HOST/PREFIX/bundles/ENVIRONMENT/TYPE or oci-layout:DIR/bundles/ENVIRONMENT/TYPE, or with oci-archive:FILE", s)
	}
	loc, err := Parse(rest)
	if err != nil {
		return Reference{}, err
	}
	if loc.Prefix == "" {
		return Reference{}, fmt.Errorf("reference %q names no repository: write oci://HOST/PREFIX/bundles/ENVIRONMENT/TYPE", s)
	}
	r.Location, r.Repository = Location{Host: loc.Host}, loc.Prefix
	return r, nil
}

// placeholder has what a person writes for a scheme of local files.
var placeholder = map[string]string{schemeLayout: "oci-layout:DIR", schemeArchive: "oci-archive:FILE"}

// cutLocal takes the scheme of a folder or an archive off s.
func cutLocal(s string) (scheme, path string, ok bool) {
	for scheme := range placeholder {
		if path, ok := strings.CutPrefix(s, scheme); ok {
			return scheme, path, true
		}
	}
	return "", s, false
}

// cutVersion takes @DIGEST or :TAG off the end of s. A tag follows the last slash, which tells it from
// a port.
func (r *Reference) cutVersion(s string) (rest string, err error) {
	if at := strings.LastIndexByte(s, '@'); at > strings.LastIndexByte(s, '/') {
		r.Digest = digest.Digest(s[at+1:])
		return s[:at], r.Digest.Validate()
	}
	i := strings.LastIndexByte(s, ':')
	if i <= strings.LastIndexByte(s, '/') {
		return s, nil
	}
	if host, ok := strings.CutPrefix(s, schemeRegistry); ok && !strings.Contains(host, "/") {
		return s, nil // oci://HOST:PORT
	}
	if scheme, _, ok := cutLocal(s); ok && i == len(scheme)-1 {
		return s, nil // oci-layout:DIR
	}
	r.Tag = s[i+1:]
	return s[:i], CheckTag(r.Tag)
}

// String returns what ParseReference reads.
func (r Reference) String() string {
	s := r.Location.String() + "/" + r.Repository
	switch {
	case r.Digest != "":
		return s + "@" + r.Digest.String()
	case r.Tag != "":
		return s + ":" + r.Tag
	}
	return s
}

// Resolve opens the reference's repository and looks the manifest up. The error wraps
// errdef.ErrNotFound if there is no such manifest.
func (r Reference) Resolve(ctx context.Context, opts Options) (Target, ocispec.Descriptor, error) {
	store, err := r.Location.Open(opts)
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	if r.Tag == "" && r.Digest == "" && r.Location.Local() {
		// DIR/bundles/dev/drone/latest, as the index writes it.
		if i := strings.LastIndexByte(r.Repository, '/'); i > 0 {
			asRefName := Reference{Repository: r.Repository[:i], Tag: r.Repository[i+1:]}
			repo, desc, err := asRefName.resolve(ctx, store)
			if !errors.Is(err, errdef.ErrNotFound) {
				return repo, desc, err
			}
		}
	}
	return r.resolve(ctx, store)
}

func (r Reference) resolve(ctx context.Context, store Store) (Target, ocispec.Descriptor, error) {
	repo, err := store.Repository(r.Repository)
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	version := DefaultTag
	switch {
	case r.Digest != "":
		version = r.Digest.String()
	case r.Tag != "":
		version = r.Tag
	}
	desc, err := repo.Resolve(ctx, version)
	return repo, desc, err
}
