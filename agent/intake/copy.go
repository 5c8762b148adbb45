package intake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// walk returns what an artifact consists of, by its manifests in the package or in the store. The error is a *missingError
// if one is in neither.
func (t *taking) walk(ctx context.Context, root digest.Digest, platforms graph.Platforms) (graph.Graph, error) {
	return graph.Walk(ocispec.Descriptor{Digest: root}, platforms, func(d ocispec.Descriptor) ([]byte, error) { return t.manifest(ctx, d) })
}

// manifest returns a manifest in the package or in the store. The error is a *missingError if neither has it.
func (t *taking) manifest(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if data, ok := t.held[d.Digest]; ok {
		if digest.FromBytes(data) != d.Digest {
			return nil, bundle.Refuse(bundle.DigestMismatch, "manifest %s has another digest", d.Digest)
		}
		return data, nil
	}
	desc, err := t.blobs.Resolve(ctx, d.Digest.String())
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, &missingError{d}
	}
	if err != nil {
		return nil, state.Local("store: %w", err)
	}
	return bundle.ReadBlob(ctx, t.blobs, desc, graph.MaxManifestBytes)
}

// passOver ends the streams whose release is stored with everything that the package carries of it.
func (t *taking) passOver(ctx context.Context) {
	for _, s := range t.left() {
		if !s.stored || !t.has(s.blobs[0]) {
			continue
		}
		before := len(s.content.Artifacts)
		probe := &stream{Stream: s.Stream, offer: s.offer, place: s.place, content: s.content, blobs: s.blobs[:1:1]}
		if t.list(ctx, probe) != nil || len(probe.content.Artifacts) != before {
			continue
		}
		if missing, _ := t.missing(probe); len(missing) == 0 {
			s.Outcome = Here
		}
	}
}

// storeDocuments stores the documents of releases.
func (t *taking) storeDocuments(ctx context.Context) error {
	for _, s := range t.left() {
		from := s.offer.source(t.head)
		for _, d := range s.documents {
			data, err := bundle.ReadBlob(ctx, from, d, bundle.MaxManifestBytes)
			if err != nil {
				return err // it was read before
			}
			if err := t.storeDocument(ctx, oci.Plain(d), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeDocument stores a document or a manifest.
func (t *taking) storeDocument(ctx context.Context, d ocispec.Descriptor, data []byte) error {
	t.documents.Lock()
	defer t.documents.Unlock()
	t.db.At("intake: a document has arrived")
	if err := t.blobs.Push(ctx, d, bytes.NewReader(data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return state.Local("store: %w", err)
	}
	return nil
}

// storeTrees stores the trees of releases, which come before all blobs of artifacts.
func (t *taking) storeTrees(ctx context.Context) error {
	wanted := needs{}
	for _, s := range t.left() {
		wanted.add(s, s.blobs[0], t.has)
	}
	err := t.copy(ctx, wanted, func(d digest.Digest) bool { return t.parts[d] })
	if err != nil {
		return err
	}
	for _, s := range t.left() {
		if missing, bytes := t.missing(s); len(missing) > 0 {
			t.lacks(s, missing, bytes)
		}
	}
	return nil
}

// listArtifacts reads the signed lists of artifacts, and claims those that the package carries.
func (t *taking) listArtifacts(ctx context.Context) error {
	all := map[*stream][]ocispec.Descriptor{}
	for _, s := range t.left() {
		err := t.list(ctx, s)
		var missing *missingError
		switch {
		case errors.As(err, new(*state.LocalError)):
			return err
		case errors.As(err, &missing):
			t.lacks(s, []ocispec.Descriptor{missing.Descriptor}, missing.Size)
		case err != nil:
			s.fail(err)
		}
		all[s] = s.blobs
	}
	t.checkLeftOut()
	t.fits(all, true)
	if len(t.left()) == 0 {
		return nil
	}
	return t.claim(t.left())
}

// checkLeftOut ends the streams that leave out what is not in the store, by their signed lists.
func (t *taking) checkLeftOut() {
	left := t.leftOut()
	for _, s := range t.left() {
		missing, _ := t.missing(s)
		missing = slices.DeleteFunc(missing, func(d ocispec.Descriptor) bool { _, out := left[d.Digest]; return !out })
		if len(missing) > 0 {
			t.lacks(s, missing, sum(missing))
		}
	}
}

// list reads the signed list of artifacts of a release from its stored tree, and adds those that the package carries.
func (t *taking) list(ctx context.Context, s *stream) error {
	r := s.content.Release
	list, err := bundle.ReadArtifacts(ctx, t.blobs, r.Tree, r.Release)
	if err != nil {
		return err
	}
	before := s.content.Artifacts
	stored, needed := t.platformsOf(s)
	s.content.Artifacts, s.manifests = nil, nil
	for _, a := range list {
		repository, tag := a.InRegistry()
		d := digest.Digest(a.Digest)
		if !isRepository(repository) || d.Validate() != nil || d.Algorithm() != digest.SHA256 || !t.carries(d, before) {
			continue
		}
		if oci.CheckTag(tag) != nil {
			tag = ""
		}
		if err := t.runsHere(ctx, d, needed); err != nil {
			return &bundle.Refusal{Reason: ReasonLacksPlatform, Message: bundle.Clip(a.Reference + " " + err.Error())}
		}
		g, err := t.walk(ctx, d, stored)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Reference, err)
		}
		s.content.Artifacts = append(s.content.Artifacts, artifact{Repository: repository, Tag: tag, Manifest: g.Manifests[0]})
		s.manifests, s.blobs = append(s.manifests, g.Manifests...), append(s.blobs, g.All()...)
		if err := t.listReferrers(ctx, s, repository, g, before); err != nil {
			return err
		}
	}
	s.manifests, s.blobs = once(s.manifests), once(s.blobs)
	s.content.Bytes = sum(once(s.documents)) + sum(s.blobs)
	return nil
}

// listReferrers adds the referrers of an artifact that the package has, and those that are here. They are signed by others, or by nobody:
// the agent verifies none of them, and serves them to those of the site that do.
func (t *taking) listReferrers(ctx context.Context, s *stream, repository string, g graph.Graph, before []artifact) error {
	if t.opts.WithoutReferrers {
		return nil
	}
	subjects := map[digest.Digest]digest.Digest{}
	all, leftOut, err := graph.WalkReferrers(g, func(of ocispec.Descriptor) (list []oci.Referrer, _ error) {
		list = slices.Clone(t.referrers[repository+"@"+of.Digest.String()])
		for _, a := range before {
			if a.Subject == of.Digest && a.Repository == repository {
				list = append(list, oci.Referrer{Tag: a.Tag, Descriptor: a.Manifest})
			}
		}
		slices.SortFunc(list, func(a, b oci.Referrer) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Digest, b.Digest)) })
		for _, r := range list {
			subjects[r.Digest] = of.Digest
		}
		return slices.CompactFunc(list, func(a, b oci.Referrer) bool { return a.Tag == b.Tag && (a.Tag != "" || a.Digest == b.Digest) }), nil
	}, func(d ocispec.Descriptor) ([]byte, error) {
		data, err := t.manifest(ctx, d)
		if errors.As(err, new(*missingError)) {
			err = errdef.ErrNotFound
		}
		return data, err
	})
	if err != nil {
		return err
	}
	for _, text := range leftOut {
		t.opts.Log.Warn("a referrer of an artifact is left out", "repository", repository, "err", bundle.Clip(text))
	}
	for _, r := range all {
		s.content.Artifacts = append(s.content.Artifacts, artifact{repository, r.Tag, r.Manifests[0], subjects[r.Manifests[0].Digest]})
		s.manifests, s.blobs = append(s.manifests, r.Manifests...), append(s.blobs, r.All()...)
	}
	return nil
}

// runsHere returns an error if the package has an artifact for other platforms than the site's alone, or lacks one of these.
// What a package lacks of the platforms that it names is found later.
func (t *taking) runsHere(ctx context.Context, root digest.Digest, needed graph.Platforms) error {
	if t.contents == nil || len(t.contents.ImagePlatforms) == 0 {
		return nil
	}
	for _, p := range needed {
		var missing *missingError
		_, err := t.walk(ctx, root, graph.Platforms{p})
		if errors.As(err, &missing) && missing.Digest != root && !slices.Contains(t.contents.ImagePlatforms, p) {
			return fmt.Errorf("is here for %s, and the site needs %s", strings.Join(t.contents.ImagePlatforms, " and "), strings.Join(needed, " and "))
		}
	}
	return nil
}

// isRepository reports whether an artifact lies at HOST/NAME.
func isRepository(repository string) bool {
	host, name, _ := strings.Cut(repository, "/")
	return oci.CheckHost(host) == nil && oci.CheckName(name) == nil
}

// carries reports whether an artifact of a release is one that the package says to carry, or that was stored with the same
// release before.
func (t *taking) carries(d digest.Digest, before []artifact) bool {
	if t.artifacts[d] != nil || slices.ContainsFunc(before, func(a artifact) bool { return a.Manifest.Digest == d }) {
		return true
	}
	return t.contents != nil && slices.ContainsFunc(t.contents.Artifacts, func(a airgap.ContentsArtifact) bool { return a.Digest == d })
}

// storeManifests stores the manifests of artifacts, so that all that they refer to is kept.
func (t *taking) storeManifests(ctx context.Context) error {
	for _, s := range t.left() {
		for _, d := range s.manifests {
			data, ok := t.held[d.Digest]
			if !ok || t.has(d) {
				continue
			}
			if err := t.storeDocument(ctx, d, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeBlobs stores the blobs of artifacts.
func (t *taking) storeBlobs(ctx context.Context) error {
	wanted := needs{}
	for _, s := range t.left() {
		for _, d := range s.blobs {
			wanted.add(s, d, t.has)
		}
	}
	if err := t.storeHeld(ctx, wanted); err != nil {
		return err
	}
	return t.copy(ctx, wanted, func(digest.Digest) bool { return false })
}

// storeHeld stores the wanted blobs that are in memory, since they are documents of the package as well. The package has
// each blob once, so they do not come again. The empty config is one of them: that of the list of contents, and of
// most artifacts that are no images.
func (t *taking) storeHeld(ctx context.Context, wanted needs) error {
	for d, n := range wanted {
		data := t.held[d]
		if d == ocispec.DescriptorEmptyJSON.Digest {
			data = ocispec.DescriptorEmptyJSON.Data
		}
		if data == nil || digest.FromBytes(data) != d {
			continue
		}
		if err := t.storeDocument(ctx, n.Descriptor, data); err != nil {
			return err
		}
		delete(wanted, d)
	}
	return nil
}

// needs has the blobs that are to be copied, each with the streams that need it.
type needs map[digest.Digest]*need

type need struct {
	ocispec.Descriptor
	by []*stream
}

// add adds a blob that a stream needs, unless the store has it.
func (n needs) add(s *stream, d ocispec.Descriptor, has func(ocispec.Descriptor) bool) {
	if n[d.Digest] == nil {
		if has(d) {
			return
		}
		n[d.Digest] = &need{Descriptor: d}
	}
	n[d.Digest].by = append(n[d.Digest].by, s)
}

// copy copies the wanted blobs from the package to the store, until one comes of which before says that none of them comes
// after it. A blob that is not what its digest says ends the streams that need it. What the package lacks stays in wanted.
func (t *taking) copy(ctx context.Context, wanted needs, before func(digest.Digest) bool) error {
	w := &writers{taking: t}
	err := t.copyBy(ctx, w, wanted, before)
	return errors.Join(err, w.settle(0))
}

func (t *taking) copyBy(ctx context.Context, w *writers, wanted needs, before func(digest.Digest) bool) error {
	for len(wanted) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n := wanted[e.Digest]
		if n == nil && before(e.Digest) {
			t.back = &e
			return nil
		}
		t.advance(e.Size)
		if n == nil {
			continue
		}
		delete(wanted, e.Digest)
		if !slices.ContainsFunc(n.by, (*stream).open) {
			continue
		}
		if err := w.write(ctx, n, e.Content); err != nil {
			return err
		}
	}
	return nil
}

// maxWriting is how many blobs are on their way to the disk at a time: while one is synced, the next one is read.
const maxWriting = 4

// writers store blobs, the oldest first.
type writers struct {
	*taking
	all    []*writer
	buffer []byte
}

// writer stores one blob.
type writer struct {
	need *need
	read error // of the package
	done chan error
}

// errEnough ends the reading of a blob that cannot be stored.
var errEnough = errors.New("the store takes no more of it")

// write reads a blob and has it stored, and returns before it is on the disk. The error is that of an earlier blob, or that
// of reading this one.
func (w *writers) write(ctx context.Context, n *need, from io.Reader) error {
	if err := w.settle(maxWriting - 1); err != nil {
		return err
	}
	if w.buffer == nil {
		w.buffer = make([]byte, 1<<20)
	}
	r, pipe := io.Pipe()
	one := &writer{need: n, done: make(chan error, 1)}
	w.all = append(w.all, one)
	go func() {
		err := w.blobs.Push(ctx, n.Descriptor, r)
		_ = r.CloseWithError(errEnough)
		one.done <- err
	}()
	source := &reading{ctx: ctx, from: from}
	_, _ = io.CopyBuffer(pipe, source, w.buffer) // Push says what is wrong with the disk
	one.read = source.err
	_ = pipe.CloseWithError(source.err)
	return source.err
}

// settle waits until at most this many blobs are on their way.
func (w *writers) settle(atMost int) (err error) {
	for len(w.all) > atMost {
		one := w.all[0]
		w.all = w.all[1:]
		err = errors.Join(err, w.stored(one, <-one.done))
	}
	return err
}

// stored records that a blob is on the disk, or why it is not. A blob that could not be read is no error here.
func (w *writers) stored(one *writer, err error) error {
	n := one.need
	switch {
	case err == nil, errors.Is(err, errdef.ErrAlreadyExists):
		n.by[0].Bytes += n.Size
		w.db.At("intake: a blob has arrived")
		return nil
	case one.read != nil:
		return nil
	case errors.Is(err, orascontent.ErrMismatchedDigest), errors.Is(err, orascontent.ErrTrailingData), errors.Is(err, io.ErrUnexpectedEOF):
		bad := bundle.Refuse(bundle.DigestMismatch, "the content of blob %s has another digest", n.Digest)
		w.failures[n.Digest] = bad
		for _, s := range n.by {
			s.fail(bad)
		}
		return nil
	}
	return state.Local("store: %w", err)
}

// advance reports the progress, after a blob of some bytes has come up.
func (t *taking) advance(bytes int64) {
	if t.done += bytes; t.Progress == nil {
		return
	}
	total := int64(0)
	if t.contents != nil {
		total = max(t.contents.Bytes, t.done)
	}
	t.Progress(t.done, total)
}

// reading reads until its context ends, and remembers the error of its reader.
type reading struct {
	ctx  context.Context
	from io.Reader
	err  error
}

func (r *reading) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		r.err = context.Cause(r.ctx)
		return 0, r.err
	}
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
