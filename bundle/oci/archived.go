package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ErrReadOnly means that something was to be written to an archive.
var ErrReadOnly = errors.New("an archive is only read")

// archived is an OCI layout in a tar. It is opened by the first access, and its files stay open as long as it is in use.
type archived struct {
	location Location
	once     sync.Once
	layout   *archive.Layout
	found    *archive.Found // with the open files
	err      error
}

// ArchiveOf returns the store of an archive that is open. Name is that of the archive in messages.
func ArchiveOf(name string, layout *archive.Layout) Store {
	a := &archived{location: Location{Archive: name}, layout: layout}
	a.once.Do(func() {})
	return a
}

func (a *archived) open() (*archive.Layout, error) {
	a.once.Do(func() {
		found, err := archive.Find(archive.OS{}, strings.Split(a.location.Archive, ",")...)
		if err == nil && found.Folder {
			err = fmt.Errorf("%s is a folder with an unpacked layout: write %s%s", found.Name, schemeLayout, found.Name)
		}
		if err == nil {
			a.found = found
			a.layout, err = found.Layout()
		}
		if err != nil {
			a.err = fmt.Errorf("open %s: %w", a.location, err)
		}
	})
	return a.layout, a.err
}

// Damaged names the parts of an archive in parts that are not as they were written, once content has turned out to be
// wrong. It returns nil for other locations, and if all parts are right.
func (l Location) Damaged(ctx context.Context) error {
	if l.Archive == "" {
		return nil
	}
	found, err := archive.Find(archive.OS{}, strings.Split(l.Archive, ",")...)
	if err != nil {
		return err
	}
	return errors.Join(found.Damaged(ctx), found.Close())
}

func (a *archived) Repository(name string) (Target, error) {
	if err := checkStoredName(name); err != nil {
		return nil, err
	}
	return &archivedRepository{a, name}, nil
}

// checkStoredName is CheckName for a repository of a layout or an archive, where copies of other registries' repositories
// begin with their host, port included.
func checkStoredName(name string) error {
	if host, rest, ok := strings.Cut(name, "/"); ok && strings.Contains(host, ":") && CheckHost(host) == nil {
		return CheckName(rest)
	}
	return CheckName(name)
}

// MirrorName returns the name of the repository, below the prefix of a registry, that holds copies of what lies in
// HOST/NAME elsewhere: the same, with '_' before a port, since names of repositories have no colon. Containerd asks for it
// there if the mirror's address ends with this host and has override_path.
func MirrorName(repository string) (string, error) {
	host, name, ok := strings.Cut(repository, "/")
	if !ok {
		return "", fmt.Errorf("%q names no host and repository", repository)
	}
	name = strings.ToLower(strings.ReplaceAll(host, ":", "_")) + "/" + name
	return name, CheckName(name)
}

func (a *archived) Repositories(context.Context) ([]string, error) {
	l, err := a.open()
	if err != nil {
		return nil, err
	}
	return repositoriesOf(l.Index()), nil
}

// archivedRepository is one repository of an archive.
type archivedRepository struct {
	archived *archived
	name     string
}

func (r *archivedRepository) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	l, err := r.archived.open()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := digest.Digest(reference)
	if d.Validate() != nil {
		desc, err := l.Resolve(ctx, r.name+"/"+reference)
		if err != nil {
			err = fmt.Errorf("%s in %s: %w", r.name+"/"+reference, r.archived.location, errdef.ErrNotFound)
		}
		return desc, err
	}
	if desc, err := l.Resolve(ctx, d.String()); err == nil {
		return desc, nil
	}
	return r.describe(ctx, l, d)
}

// describe returns the descriptor of a manifest that the index does not name.
func (r *archivedRepository) describe(ctx context.Context, l *archive.Layout, d digest.Digest) (ocispec.Descriptor, error) {
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d}
	var err error
	if desc.Size, err = r.size(l, d); err != nil {
		return ocispec.Descriptor{}, err
	}
	if desc.Size > maxManifestBytes {
		return ocispec.Descriptor{}, fmt.Errorf("%s in %s has %d bytes and is no manifest", d, r.archived.location, desc.Size)
	}
	data, err := content.FetchAll(ctx, r, desc)
	if err == nil {
		err = json.Unmarshal(data, &struct {
			MediaType *string `json:"mediaType"`
		}{&desc.MediaType})
	}
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("manifest %s in %s: %w", d, r.archived.location, err)
	}
	return desc, nil
}

func (r *archivedRepository) size(l *archive.Layout, d digest.Digest) (int64, error) {
	size, ok := l.Size(d)
	if !ok {
		return 0, fmt.Errorf("%s in %s: %w", d, r.archived.location, errdef.ErrNotFound)
	}
	return size, nil
}

func (r *archivedRepository) Tags(context.Context) ([]string, error) {
	l, err := r.archived.open()
	if err != nil {
		return nil, err
	}
	return tagsOf(l.Index(), r.name), nil
}

func (r *archivedRepository) Exists(_ context.Context, target ocispec.Descriptor) (bool, error) {
	l, err := r.archived.open()
	if err != nil {
		return false, err
	}
	size, ok := l.Size(target.Digest)
	return ok && size == target.Size, nil
}

func (r *archivedRepository) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	l, err := r.archived.open()
	if err != nil {
		return nil, err
	}
	if _, err := r.size(l, target.Digest); err != nil {
		return nil, err
	}
	body, err := l.Fetch(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.archived.location, err)
	}
	return bounded(body, target), nil
}

func (r *archivedRepository) readOnly() error {
	return fmt.Errorf("%s: %w", r.archived.location, ErrReadOnly)
}

func (r *archivedRepository) Push(context.Context, ocispec.Descriptor, io.Reader) error {
	return r.readOnly()
}

func (r *archivedRepository) Tag(context.Context, ocispec.Descriptor, string) error {
	return r.readOnly()
}

func (r *archivedRepository) Untag(context.Context, string) error { return r.readOnly() }

func (r *archivedRepository) Delete(context.Context, ocispec.Descriptor) error { return r.readOnly() }

// repositoriesOf lists the repositories that an index names, sorted.
func repositoriesOf(index ocispec.Index) []string {
	var names []string
	for _, d := range index.Manifests {
		if name := repositoryOf(d); name != "." {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// repositoryOf returns the repository in which an index names a manifest, by tag or by digest; "." is none.
func repositoryOf(d ocispec.Descriptor) string {
	if name, _, byDigest := strings.Cut(nameOf(d), "@"); byDigest {
		return name
	}
	return path.Dir(nameOf(d))
}

// tagsOf lists the tags that an index has for a repository, sorted.
func tagsOf(index ocispec.Index, repository string) []string {
	var tags []string
	for _, d := range index.Manifests {
		name, tag := path.Split(nameOf(d))
		if name == repository+"/" && !strings.Contains(tag, "@") {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}
