package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// maxBaseLookups is how many releases are verified at most to find those that deltas start from.
	maxBaseLookups = 16
	// minDeltaSaves is what a delta saves at least, in bytes: the descriptors of four of them cost every agent
	// as much.
	minDeltaSaves = 1 << 10
)

// Deltas makes the deltas that lead to next, a tree of the cluster type t, from what agents are likely to have. One that
// cannot be made is a warning of rd: agents fetch the whole layer in its place. The cache may have earlier trees. Command
// is the program, with its arguments, that calls [delta.Child]; without one there are no deltas of trees that are not
// small. The error is ctx's.
func Deltas(ctx context.Context, rd *state.Reader, t state.Type, next *bundle.Packed, cache scheduler.Cache, command []string) ([]bundle.Blob, error) {
	if next.Content.Size > delta.MaxTreeBytes || len(next.Gzip) <= minDeltaSaves {
		return nil, nil
	}
	bases, err := findBases(ctx, rd, t, next.Content)
	if err != nil || len(bases) == 0 {
		return nil, err
	}
	m, err := newMaker(t.Repo, next, bases, cache, command)
	if err != nil {
		rd.Warn("%s: there are no deltas: %v", t.Stream.ClusterType, err)
		return nil, nil
	}
	defer m.close()
	made, errs := m.all(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var blobs []bundle.Blob
	for i, data := range made {
		if errs[i] != nil {
			rd.Warn("%s: there is no delta from release %s: %v", t.Stream.ClusterType, bases[i].Name(), errs[i])
			continue
		}
		if n, full := int64(len(data)), int64(len(next.Gzip)); n > 0 && delta.Worth(n, full) && full-n >= minDeltaSaves {
			b := bundle.NewBlob(delta.MediaType, data)
			b.Descriptor.Annotations = map[string]string{delta.AnnotationFrom: bases[i].Release.Content.DiffID.String()}
			blobs = append(blobs, b)
		}
	}
	return blobs, nil
}

// baseSearch looks for the releases that deltas start from.
type baseSearch struct {
	*state.Reader
	of      state.Type
	lookups int
	found   []*bundle.Verified
	taken   map[digest.Digest]bool // trees
}

// findBases returns the base releases for deltas, at most delta.MaxLayers, each with a different tree: the rings' present
// releases, newest first, and then earlier ones. If the registry fails, it returns the ones found so far.
func findBases(ctx context.Context, rd *state.Reader, t state.Type, next bundle.Content) ([]*bundle.Verified, error) {
	s := &baseSearch{Reader: rd, of: t, taken: map[digest.Digest]bool{next.DiffID: true}}
	err := s.atRings(ctx)
	for _, tag := range t.Releases() {
		if err != nil || len(s.found) == delta.MaxLayers {
			break
		}
		var v *bundle.Verified
		if v, err = s.look(ctx, tag); v != nil {
			s.take(v)
		}
	}
	if err != nil && ctx.Err() == nil {
		rd.Warn("%s: there may be deltas from fewer releases: %v", t.Stream.ClusterType, err)
		err = nil
	}
	return s.found, err
}

// atRings takes what the moving tags name, each once.
func (s *baseSearch) atRings(ctx context.Context) error {
	var all []*bundle.Verified
	seen := map[digest.Digest]bool{}
	for _, tag := range slices.Sorted(maps.Keys(s.of.Moving)) {
		d := s.of.Moving[tag]
		if seen[d] {
			continue
		}
		seen[d] = true
		v, err := s.look(ctx, tag)
		if err != nil {
			return err
		}
		if v != nil {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *bundle.Verified) int { return published.OrderOf(b).Compare(published.OrderOf(a)) })
	for _, v := range all {
		s.take(v)
	}
	return nil
}

// look returns nil for an untrusted release, and when maxBaseLookups is exceeded.
func (s *baseSearch) look(ctx context.Context, tag string) (*bundle.Verified, error) {
	if last := s.of.Verified; last != nil &&
		(s.of.Moving[tag] == last.Descriptor.Digest || tag == last.Release.Tag() && !s.of.Taken) {
		return last, nil
	}
	if s.lookups++; s.lookups > maxBaseLookups {
		return nil, nil
	}
	v, _, err := s.of.Release(ctx, tag)
	return v, err
}

func (s *baseSearch) take(v *bundle.Verified) {
	c := v.Release.Content
	if len(s.found) < delta.MaxLayers && !s.taken[c.DiffID] && c.Size <= delta.MaxTreeBytes {
		s.taken[c.DiffID], s.found = true, append(s.found, v)
	}
}

// maker makes the deltas to one tree: small ones here, others each in a process of its own, from files.
type maker struct {
	bases   []*bundle.Verified
	next    bundle.Content
	tar     []byte            // of next, where a base is small
	folder  *diskfile.Scratch // of files, where a base is not
	command []string
	atOnce  int
	fetch   func(ctx context.Context, base *bundle.Verified, to io.Writer) error
}

func newMaker(repo oci.Target, next *bundle.Packed, bases []*bundle.Verified, cache scheduler.Cache, command []string) (*maker, error) {
	m := &maker{
		bases: bases, next: next.Content, command: command, atOnce: min(len(bases), runtime.GOMAXPROCS(0)),
		fetch: func(ctx context.Context, base *bundle.Verified, to io.Writer) error {
			return fetchTar(ctx, repo, base, cache, to)
		},
	}
	small := func(v *bundle.Verified) bool { return m.small(v) }
	if slices.ContainsFunc(bases, small) {
		var tar bytes.Buffer
		tar.Grow(int(m.next.Size))
		if err := published.Unzip(bytes.NewReader(next.Gzip), m.next, &tar); err != nil {
			return nil, err
		}
		m.tar = tar.Bytes()
	}
	if len(m.command) == 0 || !slices.ContainsFunc(bases, func(v *bundle.Verified) bool { return !small(v) }) {
		return m, nil
	}
	var err error
	if m.folder, err = diskfile.NewScratch(); err == nil {
		err = os.WriteFile(m.path("next"), next.Gzip, 0o600)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	m.atOnce = min(m.atOnce, m.processes())
	return m, nil
}

// processes is how many of the largest jobs there is memory for; where that is not known, it is one.
func (m *maker) processes() int {
	free, ok := delta.Available()
	if !ok {
		return 1
	}
	most := int64(0)
	for i := range m.bases {
		most = max(most, m.job(i).Memory())
	}
	return int(max(free/most, 1)) // one that lacks it is left out
}

func (m *maker) close() {
	if m.folder != nil {
		_ = m.folder.Close()
	}
}

func (m *maker) small(v *bundle.Verified) bool {
	return delta.Small(v.Release.Content.Size, m.next.Size)
}

func (m *maker) path(name string) string { return filepath.Join(m.folder.Path, name) }

func (m *maker) job(i int) delta.Job {
	return delta.Job{
		Base: delta.Tree{Path: m.path(fmt.Sprint("base", i)), Size: m.bases[i].Release.Content.Size},
		Next: delta.Tree{Path: m.path("next"), Gzip: true, Size: m.next.Size},
		Out:  m.path(fmt.Sprint("delta", i)),
	}
}

// all returns the delta from each base, or why there is none; neither where it is not worth it.
func (m *maker) all(ctx context.Context) (made [][]byte, errs []error) {
	made, errs = make([][]byte, len(m.bases)), make([]error, len(m.bases))
	slots := make(chan struct{}, m.atOnce)
	var all sync.WaitGroup
	for i, base := range m.bases {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			switch {
			case m.small(base):
				made[i], errs[i] = m.here(ctx, base)
			case m.folder != nil:
				made[i], errs[i] = m.outside(ctx, i)
			}
		})
	}
	all.Wait()
	return made, errs
}

func (m *maker) here(ctx context.Context, base *bundle.Verified) ([]byte, error) {
	var tar bytes.Buffer
	tar.Grow(int(base.Release.Content.Size))
	if err := m.fetch(ctx, base, &tar); err != nil {
		return nil, err
	}
	return delta.Make(tar.Bytes(), m.tar)
}

func (m *maker) outside(ctx context.Context, i int) ([]byte, error) {
	j := m.job(i)
	if free, ok := delta.Available(); ok && free < j.Memory() {
		return nil, fmt.Errorf("it takes %d MiB of memory, and %d are free", j.Memory()>>20, free>>20)
	}
	f, err := os.Create(j.Base.Path)
	if err != nil {
		return nil, err
	}
	defer os.Remove(j.Base.Path)
	err = m.fetch(ctx, m.bases[i], f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	if err := j.Start(ctx, m.command...); err != nil {
		return nil, err
	}
	defer os.Remove(j.Out)
	if info, err := os.Stat(j.Out); err != nil || info.Size() > delta.MaxBytes {
		return nil, err
	}
	return os.ReadFile(j.Out)
}

// fetchTar writes the tar of a release, and returns an error if it differs from the signed content.
func fetchTar(ctx context.Context, repo oci.Target, v *bundle.Verified, cache scheduler.Cache, to io.Writer) error {
	if layer, ok := Before(cache, v.Release.Content); ok {
		return published.Unzip(bytes.NewReader(layer), v.Release.Content, to)
	}
	return published.FetchTar(ctx, repo, v.Tree, v.Release.Content, to)
}
