package copier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// maxIndexDepth bounds indexes in indexes.
const maxIndexDepth = 3

// SparseError means that a registry refuses the index of an artifact of which some manifests are missing, since the
// package has it for some platforms only.
type SparseError struct {
	// Repository is where it was to go, and Name what the bundle calls it.
	Repository, Name string
	Digest           digest.Digest
	// Missing is the number of its manifests that are not in the package.
	Missing int
	Err     error // the registry's
}

func (e *SparseError) Error() string {
	return fmt.Sprintf("%s: the registry refuses the index of %s, of which %d manifests for other platforms are not in the package: %v", e.Repository, e.Name, e.Missing, e.Err)
}

func (e *SparseError) Unwrap() error { return e.Err }

// artifact is something in another registry that releases need, and that the source may hold a copy of.
type artifact struct {
	// repository is HOST/NAME, and tags those of the references to it.
	repository string
	digest     digest.Digest
	name       string // for messages
	tags       []string
	done       Item
}

// planArtifacts finds the artifacts that the bundles need, if the source is a site package or a folder unpacked from one.
// A release that gives way to a newer one needs none.
func (c *copier) planArtifacts(ctx context.Context) error {
	if c.opts.WithoutArtifacts || !c.from.at.Local() {
		return nil
	}
	names, err := c.from.store.Repositories(ctx)
	if err != nil {
		return c.from.blame(err)
	}
	if !slices.ContainsFunc(names, isForeign) {
		return nil
	}
	known := map[string]*artifact{}
	for _, o := range slices.Concat(c.bundles...) {
		if len(o.done.Kept) > 0 {
			continue
		}
		list, err := o.needs(ctx)
		if err != nil {
			return fmt.Errorf("artifacts of %s@%s: %w", o.repo.fullName(), o.desc.Digest, err)
		}
		for _, a := range list {
			c.need(known, a)
		}
	}
	return nil
}

// isForeign reports whether a repository's first part is a host: whether it is a copy from another registry.
func isForeign(repository string) bool {
	host, _, _ := strings.Cut(repository, "/")
	return strings.ContainsAny(host, ".:") || host == "localhost"
}

// need adds an artifact. Of two releases that have another digest for one tag, the later one has the tag.
func (c *copier) need(known map[string]*artifact, a bundle.Artifact) {
	repository, tag := a.InRegistry()
	id := repository + "@" + a.Digest
	one := known[id]
	if one == nil {
		one = &artifact{repository: repository, digest: digest.Digest(a.Digest), name: a.Reference}
		known[id] = one
		c.artifacts = append(c.artifacts, one)
	}
	if tag == "" {
		return
	}
	for _, other := range c.artifacts {
		if other.repository == repository {
			other.tags = slices.DeleteFunc(other.tags, func(t string) bool { return t == tag })
		}
	}
	one.tags = append(one.tags, tag)
}

// needs lists the artifacts of a bundle that lie in registries, but for what embedded delivery has put into the bundle.
func (o *original) needs(ctx context.Context) (list []bundle.Artifact, err error) {
	if o.kind != kindBundle || len(o.manifest.Layers) == 0 {
		return nil, nil
	}
	files, err := bundle.TreeFiles(ctx, o.repo, o.manifest.Layers[0], bundle.AssignmentsPath, bundle.ArtifactsPath)
	if err != nil {
		return nil, err
	}
	all, err := bundle.ParseArtifacts(files[bundle.ArtifactsPath])
	if err != nil {
		return nil, err
	}
	assignments, err := bundle.ParseAssignments(files[bundle.AssignmentsPath])
	if err != nil {
		return nil, err
	}
	embedded := map[string]bool{}
	for _, a := range assignments {
		embedded[a.Name] = a.Delivery == bundle.Embedded
	}
	for _, a := range all {
		repository, _ := a.InRegistry()
		d := digest.Digest(a.Digest)
		fromRegistry := a.Type == bundle.ArtifactImage || a.Type == bundle.ArtifactZarf ||
			slices.ContainsFunc(a.UsedBy, func(name string) bool { return !embedded[name] })
		if repository != "" && fromRegistry && d.Validate() == nil {
			list = append(list, a)
		}
	}
	return list, nil
}

// putArtifacts copies the artifacts. Those that neither place has are a warning: the source may have been exported
// without them.
func (c *copier) putArtifacts(ctx context.Context) error {
	err := inParallel(ctx, c.artifacts, c.putArtifact)
	var missing []string
	for _, a := range c.artifacts {
		if a.done.Result == "" {
			missing = append(missing, a.name)
		}
	}
	if err == nil && len(missing) > 0 {
		c.warn("%d of %d artifacts are neither at %s nor at %s, such as %s: agents need another place for them",
			len(missing), len(c.artifacts), c.from.at, c.to.at, missing[0])
	}
	return err
}

func (c *copier) putArtifact(ctx context.Context, a *artifact) error {
	err := c.copyArtifact(ctx, a)
	if err != nil && !errors.As(err, new(*SparseError)) {
		err = fmt.Errorf("artifact %s: %w", a.name, err)
	}
	return err
}

func (c *copier) copyArtifact(ctx context.Context, a *artifact) error {
	src, err := c.from.repository(a.repository)
	if err != nil {
		return err
	}
	dst, err := c.to.artifacts(a.repository)
	if err != nil {
		return err
	}
	root, err := src.content(ctx, a.digest)
	if errors.Is(err, errdef.ErrNotFound) { // left out, since the site should have it
		root, err = dst.content(ctx, a.digest)
		if errors.Is(err, errdef.ErrNotFound) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	a.done = Item{Kind: kindArtifact, Repository: dst.name, Digest: a.digest, Result: releases.OutcomeUnchanged}
	there, err := dst.Exists(ctx, root)
	if err != nil {
		return err
	}
	w := writer{from: src, to: dst, sent: &a.done.Sent}
	if err := w.artifact(ctx, root, 0); err != nil {
		var sparse *SparseError
		if errors.As(err, &sparse) {
			sparse.Repository, sparse.Name = dst.fullName(), a.name
		}
		return err
	}
	if err := w.artifactTags(ctx, root, a); err != nil {
		return err
	}
	switch {
	case !there:
		a.done.Result = OutcomeCopied
	case w.changed:
		a.done.Result = OutcomeUpdated
	}
	return nil
}

// content is Resolve for a digest, and fails for a manifest that an index names alone.
func (r placedRepository) content(ctx context.Context, d digest.Digest) (ocispec.Descriptor, error) {
	desc, err := r.Resolve(ctx, d.String())
	if err != nil {
		return desc, err
	}
	there, err := r.Exists(ctx, desc)
	if err == nil && !there {
		err = errdef.ErrNotFound
	}
	return desc, err
}

// artifactTags sets the tags of the references, and one that stays, since many registries delete manifests without a tag.
func (w *writer) artifactTags(ctx context.Context, root ocispec.Descriptor, a *artifact) error {
	stays := "wherry-" + a.digest.Encoded()
	a.done.Tag = stays
	for _, tag := range append([]string{stays}, a.tags...) {
		if tag != stays {
			a.done.Tag = tag
		}
		now, err := releases.Current(ctx, w.to, tag)
		if err != nil {
			return err
		}
		if now == a.digest {
			continue
		}
		if err := w.to.Tag(ctx, root, tag); err != nil {
			return err
		}
		w.changed = true
	}
	return nil
}

// artifact writes a manifest or an index after its parts. Of an index, the manifests that neither place has are left out.
func (w *writer) artifact(ctx context.Context, d ocispec.Descriptor, depth int) error {
	if depth > maxIndexDepth {
		return refusal(bundle.BadContent, "%s has more than %d indexes in one another", d.Digest, maxIndexDepth)
	}
	data, m, err := w.readArtifact(ctx, d)
	if err != nil {
		return err
	}
	if m.MediaType != "" {
		d.MediaType = m.MediaType
	}
	missing := 0
	for _, child := range m.Manifests {
		child = plain(child)
		there, err := w.somewhere(ctx, child)
		if err != nil {
			return err
		}
		if !there {
			missing++
			continue
		}
		if err := w.artifact(ctx, child, depth+1); err != nil {
			return err
		}
	}
	for _, b := range m.blobs() {
		if err := w.blob(ctx, b); err != nil {
			return w.lacking(err)
		}
	}
	d.Data = data
	err = w.blob(ctx, d)
	if err != nil && missing > 0 && oci.Refused(err) {
		return &SparseError{Digest: d.Digest, Missing: missing, Err: err}
	}
	return err
}

// lacking explains the error of content that neither place has.
func (w *writer) lacking(err error) error {
	var failed *Error
	if errors.Is(err, errdef.ErrNotFound) && errors.As(err, &failed) && failed.At == w.from.place.at {
		return fmt.Errorf("%w, nor at %s: the package leaves out what an earlier one has brought; copy that one first, or a complete one", err, w.to.fullName())
	}
	return err
}

// somewhere reports whether one of the places has a manifest.
func (w *writer) somewhere(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	if there, err := w.from.Exists(ctx, d); err != nil || there {
		return there, err
	}
	return w.to.Exists(ctx, d)
}

// artifactManifest is a manifest or an index of an artifact.
type artifactManifest struct {
	MediaType string               `json:"mediaType"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

// blobs returns the config and the layers, without those that no registry may pass on.
func (m artifactManifest) blobs() (all []ocispec.Descriptor) {
	if m.Config != nil {
		all = append(all, plain(*m.Config))
	}
	for _, l := range m.Layers {
		if !strings.Contains(l.MediaType, ".foreign.") && !strings.Contains(l.MediaType, ".nondistributable.") {
			all = append(all, plain(l))
		}
	}
	return all
}

func plain(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

// readArtifact reads a manifest from the source, or from the destination where the source leaves it out.
func (w *writer) readArtifact(ctx context.Context, d ocispec.Descriptor) (data []byte, m artifactManifest, err error) {
	if d.Size > graph.MaxManifestBytes {
		return nil, m, refusal(bundle.TooLarge, "manifest %s has %d bytes, at most %d are allowed", d.Digest, d.Size, graph.MaxManifestBytes)
	}
	data, err = content.FetchAll(ctx, w.from, d)
	if errors.Is(err, errdef.ErrNotFound) {
		data, err = content.FetchAll(ctx, w.to, d)
	}
	if err == nil && json.Unmarshal(data, &m) != nil {
		err = refusal(bundle.BadContent, "manifest %s is not JSON", d.Digest)
	}
	return data, m, err
}

// artifacts opens the repository that holds copies of another registry's.
func (p place) artifacts(repository string) (placedRepository, error) {
	if p.at.Dir != "" { // one that takes indexes without all of their manifests
		repo, err := oci.NewLayout(p.at.Dir).Repository(repository)
		return placedRepository{repo, p, repository}, err
	}
	name, err := oci.MirrorName(repository)
	if err != nil {
		return placedRepository{}, err
	}
	return p.repository(name)
}
