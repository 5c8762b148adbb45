package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// fetch fetches the missing content of a's artifacts: manifests, then layer by layer. After an interruption, the next call
// finds the layers that were fetched.
func (r *Reconciler) fetch(ctx context.Context, f *fetching) error {
	a := f.latest()
	for _, artifact := range a.Fetched {
		if err := r.fetchManifest(ctx, a.Name, artifact); err != nil {
			return fmt.Errorf("%s: %w", artifact.Reference, err)
		}
	}
	absent, err := r.prepare(ctx, a)
	if err != nil {
		return err
	}
	for _, l := range absent {
		f.total.Add(l.Size)
	}
	for _, l := range absent {
		bring := r.fetchLayer
		if l.Unpack != "" {
			bring = r.fetchArchive
		}
		if err := bring(ctx, a, l, f); err != nil {
			return fmt.Errorf("%s: %w", path.Join(l.repository, l.Title), err)
		}
	}
	return nil
}

// fetchArchive fetches an archive, counts what it unpacks to, and unpacks it if there is room for all of that. The archive
// stays until then, so that nothing is fetched twice.
func (r *Reconciler) fetchArchive(ctx context.Context, a reconcilers.Assignment, l wantedLayer, f *fetching) error {
	s, err := openSite(r.root, a.Name)
	if err != nil {
		return err
	}
	defer s.close()
	r.turn.Lock()
	here := r.entries.load(ctx, a.Name).hasPacked(s, l.layer)
	r.turn.Unlock()
	if here {
		f.done.Add(l.Size)
	} else if err := r.fetchLayer(ctx, a, wantedLayer{l.packed(), l.repository}, f); err != nil {
		return err
	}
	file, err := s.root.Open(path.Join(s.fetched, l.packed().key(), "0"))
	if err != nil {
		return err
	}
	defer file.Close()
	need, err := l.measure(ctx, file, r.limit, roomFor(s))
	if err != nil {
		return l.discard(s, err)
	}
	r.turn.Lock()
	e := r.entries.load(ctx, a.Name)
	e.Unpacked[l.key()] = need
	r.entries.save(ctx, a.Name, e)
	r.turn.Unlock()
	if err := checkRoom(s, r.root, need, need); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err = r.store(ctx, a, l, s, func(to *os.Root) ([]part, error) {
		sum := l.Digest.Algorithm().Digester()
		in := io.TeeReader(file, sum.Hash())
		parts, err := l.store(ctx, in, to, r.limit)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return nil, err
		}
		if sum.Digest() != l.Digest {
			return nil, reconcilers.ReleaseError(ArtifactMismatch, "the archive on this machine was changed before it was unpacked")
		}
		return parts, nil
	})
	return l.discard(s, err)
}

// discard deletes an archive that was unpacked, or cannot be.
func (l layer) discard(s *site, err error) error {
	if err != nil && reconcilers.Known(err) == nil {
		return err
	}
	return errors.Join(err, s.root.RemoveAll(path.Join(s.fetched, l.packed().key())))
}

// roomFor returns the room for what archives unpack to.
func roomFor(s *site) int64 {
	free, all, known := freeBytes(s.root)
	if !known {
		return math.MaxInt64
	}
	return max(free-all/10, 0)
}

// hasPacked reports whether the archive itself is here.
func (e *entry) hasPacked(s *site, l layer) bool {
	if s == nil || e.Parts[l.packed().key()] == nil {
		return false
	}
	info, err := s.root.Lstat(path.Join(s.fetched, l.packed().key(), "0"))
	return err == nil && info.Mode().IsRegular() && info.Size() == l.Size
}

// prepare returns the layers to fetch, if there is room for them, and deletes the leftovers of earlier attempts for other
// content.
func (r *Reconciler) prepare(ctx context.Context, a reconcilers.Assignment) ([]wantedLayer, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	s, err := r.open(a.Name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	e := r.entries.load(ctx, a.Name)
	v, err := look(ctx, s, a, e, r.limit)
	if err == nil {
		err = r.owned.check(s, r.root, v)
	}
	if err != nil {
		return nil, err
	}
	if err := s.keepFetched(a, e); err != nil {
		return nil, err
	}
	if err := v.checkRoom(s, r.root); err != nil {
		return nil, err
	}
	return v.absent, s.root.MkdirAll(s.fetched, 0o700)
}

// keepFetched deletes fetched layers that a does not have, and layers that were not fetched completely.
func (s *site) keepFetched(a reconcilers.Assignment, e *entry) error {
	keep := map[string]bool{}
	for _, f := range a.Fetched {
		for _, l := range e.Artifacts[f.Digest] {
			keep[l.key()], keep[l.packed().key()] = true, true
		}
	}
	entries, err := fs.ReadDir(s.root.FS(), s.fetched)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, d := range entries {
		if !keep[d.Name()] {
			err = errors.Join(err, s.root.RemoveAll(path.Join(s.fetched, d.Name())))
		}
	}
	return err
}

// fetchManifest reads the layers of an artifact, unless they are known.
func (r *Reconciler) fetchManifest(ctx context.Context, name string, artifact fetchedArtifact) error {
	r.turn.Lock()
	_, known := r.entries.load(ctx, name).Artifacts[artifact.Digest]
	r.turn.Unlock()
	if known {
		return nil
	}
	src, err := r.source(artifact.Repository())
	if err != nil {
		return err
	}
	desc, err := src.Resolve(ctx, artifact.Digest.String())
	if err != nil {
		return &linkError{err}
	}
	if desc.Digest != artifact.Digest {
		return &linkError{fmt.Errorf("the registry answers with manifest %s, asked for was %s", desc.Digest, artifact.Digest)}
	}
	data, err := bundle.ReadBlob(ctx, src, desc, maxManifestBytes)
	if err != nil {
		return &linkError{err}
	}
	layers, err := layersOf(data)
	if err != nil {
		return err
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	e := r.entries.load(ctx, name)
	e.Artifacts[artifact.Digest] = layers
	r.entries.save(ctx, name, e)
	return nil
}

func (r *Reconciler) source(repository string) (bundle.Source, error) {
	if r.repository == nil {
		return nil, invalid("this agent fetches no artifacts")
	}
	src, err := r.repository(repository)
	if err != nil {
		return nil, invalid("%w", err)
	}
	return src, nil
}

// fetchLayer streams one layer to the disk. The layer gets its name once it is complete and its digest was checked.
func (r *Reconciler) fetchLayer(ctx context.Context, a reconcilers.Assignment, l wantedLayer, f *fetching) error {
	src, err := r.source(l.repository)
	if err != nil {
		return err
	}
	s, err := openSite(r.root, a.Name)
	if err != nil {
		return err
	}
	defer s.close()
	return r.store(ctx, a, l, s, func(to *os.Root) ([]part, error) { return l.receive(ctx, src, to, r.limit, f) })
}

// store has a layer written to a folder of its own, which gets its name once it is complete.
func (r *Reconciler) store(ctx context.Context, a reconcilers.Assignment, l wantedLayer, s *site, write func(*os.Root) ([]part, error)) error {
	final := path.Join(s.fetched, l.key())
	temp := final + ".part"
	if err := errors.Join(s.root.RemoveAll(temp), s.root.RemoveAll(final), s.root.MkdirAll(temp, 0o700)); err != nil {
		return err
	}
	to, err := s.root.OpenRoot(temp)
	if err != nil {
		return err
	}
	defer to.Close()
	parts, err := write(to)
	if err != nil {
		return errors.Join(err, s.root.RemoveAll(temp))
	}
	if err := errors.Join(syncDir(to, "."), s.root.Rename(temp, final), syncDir(s.root, s.fetched)); err != nil {
		return err
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	e := r.entries.load(ctx, a.Name)
	e.Parts[l.key()] = parts
	r.entries.save(ctx, a.Name, e)
	return nil
}

// receive stores a layer. A blob that differs from its descriptor is rarely a valid archive either, so an error about the
// digest comes first.
func (l layer) receive(ctx context.Context, src bundle.Source, to *os.Root, limit int64, f *fetching) ([]part, error) {
	body, err := src.Fetch(ctx, l.descriptor())
	if err != nil {
		return nil, &linkError{err}
	}
	defer body.Close()
	sum := l.Digest.Algorithm().Digester()
	in := &link{ctx: ctx, in: body, sum: sum, f: f}
	parts, err := l.store(ctx, in, to, limit)
	if err != nil && reconcilers.Known(err) == nil {
		return nil, err
	}
	if _, restErr := io.Copy(io.Discard, in); restErr != nil {
		return nil, restErr
	}
	if in.read != l.Size || sum.Digest() != l.Digest {
		return nil, reconcilers.ReleaseError(ArtifactMismatch, "the registry served %d bytes with digest %s, wanted were %d with %s", in.read, sum.Digest(), l.Size, l.Digest)
	}
	return parts, err
}

// link counts and digests the bytes from a registry, and marks its errors.
type link struct {
	ctx  context.Context // of one transfer
	in   io.Reader
	sum  digest.Digester
	f    *fetching
	read int64
}

func (l *link) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := l.in.Read(p)
	l.sum.Hash().Write(p[:n])
	l.read += int64(n)
	l.f.done.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		err = &linkError{err}
	}
	return n, err
}

// linkError is an error of, or on the way to, a registry.
type linkError struct{ err error }

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// classify returns the reason and the fault of an error of a registry. An answer that package oci does not know as
// a failure of the link is one with the wrong content.
func (e *linkError) classify() (reason string, fault reconcilers.Fault) {
	switch {
	case errors.Is(e.err, oci.ErrUnauthorized):
		return ArtifactForbidden, reconcilers.FaultSite
	case errors.Is(e.err, errdef.ErrNotFound):
		return ArtifactNotFound, reconcilers.FaultRelease
	case errors.Is(e.err, oci.ErrUnreachable), errors.Is(e.err, io.ErrUnexpectedEOF), errors.As(e.err, new(*errcode.ErrorResponse)):
		return ArtifactUnreachable, ""
	}
	return ArtifactMismatch, reconcilers.FaultRelease
}

// retryTime is the time for which a failure stands that would cost the same bytes again, unless other content is asked for
// meanwhile.
const retryTime = 10 * time.Minute
