package copier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
)

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
	names, err := c.from.Repositories(ctx)
	if err != nil {
		return err
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
	g, err := graph.Walk(root, nil, func(d ocispec.Descriptor) ([]byte, error) { return w.readManifest(ctx, d) })
	if errors.As(err, new(*graph.InvalidError)) {
		err = refusal(bundle.BadContent, "%v", err)
	}
	if err == nil {
		err = w.artifact(ctx, g)
	}
	if err != nil {
		var sparse *SparseError
		if errors.As(err, &sparse) {
			sparse.Repository, sparse.Name = dst.fullName(), a.name
		}
		return err
	}
	if err := w.artifactTags(ctx, root, a); err != nil {
		return err
	}
	if !c.opts.WithoutReferrers {
		if err := c.copyReferrers(ctx, &w, a, g); err != nil {
			return err
		}
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

// staysTag returns the tag that keeps a manifest in a registry that deletes those without one.
func staysTag(d digest.Digest) string { return "wherry-" + d.Encoded() }

// artifactTags sets the tags of the references, and one that stays, since many registries delete manifests without a tag.
func (w *writer) artifactTags(ctx context.Context, root ocispec.Descriptor, a *artifact) error {
	stays := staysTag(a.digest)
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
func (w *writer) artifact(ctx context.Context, g graph.Graph) error {
	for _, b := range g.Blobs {
		if err := w.blob(ctx, b); err != nil {
			return w.lacking(err)
		}
	}
	for _, d := range slices.Backward(g.Manifests) {
		var err error
		if d.Data, err = w.readManifest(ctx, d); err == nil {
			err = w.blob(ctx, d)
		}
		if err != nil && g.Absent > 0 && oci.Refused(err) {
			return &SparseError{Digest: d.Digest, Missing: g.Absent, Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyReferrers copies the signatures, attestations and SBOMs of an artifact that the source has. They are as anybody has made them.
func (c *copier) copyReferrers(ctx context.Context, w *writer, a *artifact, g graph.Graph) error {
	all, leftOut, err := graph.WalkReferrers(g, func(subject ocispec.Descriptor) ([]oci.Referrer, error) {
		return oci.Referrers(ctx, w.from, subject)
	}, func(d ocispec.Descriptor) ([]byte, error) {
		return bundle.ReadBlob(ctx, w.from, d, graph.MaxManifestBytes)
	})
	if err != nil {
		return err
	}
	for _, text := range leftOut {
		c.warn("%s: left out: %s", a.name, text)
	}
	before := *w.sent
	for _, r := range all {
		if err := w.referrer(ctx, r); err != nil {
			return fmt.Errorf("referrer %s: %w", r.Manifests[0].Digest, err)
		}
	}
	a.done.Referrers, a.done.ReferrerSent = len(all), *w.sent-before
	*w.sent = before
	return nil
}

// referrer writes one referrer. Of the signatures under cosign's tag, those that the destination alone has stay.
func (w *writer) referrer(ctx context.Context, r graph.Referrer) error {
	root := r.Manifests[0]
	if strings.HasSuffix(r.Tag, ".sig") {
		if s, err := readSignatures(ctx, w.from, root.Digest.String()); err == nil && s != nil {
			return w.signature(ctx, s, r.Tag)
		} else if err := published.IgnoreRefused(err); err != nil { // else it is copied as it is
			return err
		}
	}
	if err := w.artifact(ctx, r.Graph); err != nil {
		return err
	}
	tag := r.Tag
	if tag == "" {
		tag = staysTag(root.Digest)
		if err := w.list(ctx, root); err != nil {
			return err
		}
	}
	now, err := releases.Current(ctx, w.to, tag)
	if err != nil || now == root.Digest {
		return err
	}
	w.changed = true
	return w.to.Tag(ctx, root, tag)
}

// list has the destination list a manifest among the referrers of its subject. A registry without the referrers API keeps such a list under
// a tag, which an interrupted copy has not written.
func (w *writer) list(ctx context.Context, d ocispec.Descriptor) error {
	data, err := w.readManifest(ctx, d)
	if err != nil || w.to.place.at.Host == "" {
		return err
	}
	listed, err := w.to.Referrers(ctx, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: oci.SubjectOf(data)})
	if err != nil || slices.ContainsFunc(listed, func(l ocispec.Descriptor) bool { return l.Digest == d.Digest }) {
		return err
	}
	w.changed = true
	return w.to.Push(ctx, d, bytes.NewReader(data))
}

// lacking explains the error of content that neither place has.
func (w *writer) lacking(err error) error {
	var failed *Error
	if errors.Is(err, errdef.ErrNotFound) && errors.As(err, &failed) && failed.At == w.from.place.at {
		return fmt.Errorf("%w, nor at %s: the package leaves out what an earlier one has brought; copy that one first, or a complete one", err, w.to.fullName())
	}
	return err
}

// readManifest reads a manifest from the source, or from the destination where the source leaves it out.
func (w *writer) readManifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	data, err := bundle.ReadBlob(ctx, w.from, d, graph.MaxManifestBytes)
	if errors.Is(err, errdef.ErrNotFound) {
		data, err = bundle.ReadBlob(ctx, w.to, d, graph.MaxManifestBytes)
	}
	return data, err
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
