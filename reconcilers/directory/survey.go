package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// survey is the wanted content of an assignment's folder, its present content, and the difference.
type survey struct {
	want, have tree
	// ids are the metadata of the live files.
	ids map[string]identity
	// missing is true if there is no live folder.
	missing bool
	// fetched marks the paths of want that come from registries; cached gives the places of those that were
	// fetched and are not in the live folder.
	fetched map[string]bool
	cached  map[string]string
	// unknown are artifacts whose manifest was not read yet; absent are layers that are not here. If opaque is true,
	// want lacks files whose names are not known yet: those of unknown artifacts, and of absent archives.
	unknown []bundle.FetchedArtifact
	opaque  bool
	absent  []wantedLayer
	// need is the room, in bytes, that want takes beside have, and unpacked the part of it that no signed size promises.
	need, unpacked int64
}

// wantedLayer is a layer and the repository that has it.
type wantedLayer struct {
	layer
	repository string
}

// keeps reports whether the live folder's file of that name is the wanted one.
func (v *survey) keeps(name string) bool {
	h, ok := v.have[name]
	return ok && h == v.want[name]
}

// complete reports whether all wanted content is on this machine.
func (v *survey) complete() bool { return len(v.unknown)+len(v.absent) == 0 }

// look reads the content for an assignment's folder, and the folder.
func look(ctx context.Context, s *site, a reconcilers.Assignment, e *entry, limit int64) (*survey, error) {
	rendered, err := readAssignment(ctx, a)
	if err != nil {
		return nil, err
	}
	v := &survey{want: rendered, fetched: map[string]bool{}, cached: map[string]string{}}
	layers, err := v.add(a, e, limit)
	if err != nil {
		return nil, err
	}
	if s != nil {
		v.have, v.ids, err = s.read(ctx, e.Seen)
	}
	v.missing = s == nil || errors.Is(err, fs.ErrNotExist)
	if err != nil && !v.missing {
		return nil, err
	}
	for _, l := range layers {
		here, err := v.find(ctx, s, l.layer, e)
		if err != nil {
			return nil, err
		}
		counted := slices.ContainsFunc(v.absent, func(o wantedLayer) bool { return o.key() == l.key() })
		if !here && !counted { // two files may be one blob
			v.absent = append(v.absent, l)
			if l.Unpack == "" || !e.hasPacked(s, l.layer) {
				v.need += l.Size
			}
			v.need += e.Unpacked[l.key()]
			v.unpacked += e.Unpacked[l.key()]
		}
	}
	v.measure(s)
	return v, nil
}

// add adds the known files of the artifacts to the wanted ones, and checks that all of them can be in one folder.
func (v *survey) add(a reconcilers.Assignment, e *entry, limit int64) (layers []wantedLayer, err error) {
	names := bundle.NewNames(bundle.MaxFiles)
	for _, name := range slices.Sorted(maps.Keys(v.want)) {
		if err := names.Add(name, false); err != nil {
			return nil, invalid("the rendered files: %w", err)
		}
	}
	for _, artifact := range a.Fetched {
		known, ok := e.Artifacts[artifact.Digest]
		if !ok {
			v.unknown, v.opaque = append(v.unknown, artifact), true
			continue
		}
		for _, l := range known {
			parts, named := e.parts(l)
			v.opaque = v.opaque || !named
			for _, p := range parts {
				if _, taken := v.want[p.Path]; taken && !v.fetched[p.Path] {
					return nil, invalid("%s: %s is in the artifact and among the rendered files", artifact.Reference, p.Path)
				}
				if err := names.Add(p.Path, false); err != nil {
					return nil, invalid("%s: %w", artifact.Reference, err)
				}
				if limit -= p.Size; limit < 0 {
					return nil, invalid("%s: the files that are fetched hold more bytes than are allowed", artifact.Reference)
				}
				v.want[p.Path], v.fetched[p.Path] = p.file(), true
			}
			layers = append(layers, wantedLayer{l, artifact.Repository()})
		}
	}
	return layers, nil
}

// find reports whether all files of a layer are here: in the live folder, or in the folder of fetched layers.
func (v *survey) find(ctx context.Context, s *site, l layer, e *entry) (bool, error) {
	parts, known := e.parts(l)
	if !known || s == nil {
		return false, nil
	}
	for i, p := range parts {
		if v.keeps(p.Path) {
			continue
		}
		place := path.Join(s.fetched, l.key(), fmt.Sprint(i))
		f, id, err := readFile(ctx, s.root, place, p.seen())
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if f != p.file() {
			return false, nil
		}
		v.cached[p.Path] = place
		e.remember(l, i, id)
	}
	return true, nil
}

// measure adds the room that is needed for copies.
func (v *survey) measure(s *site) {
	for name, f := range v.want {
		if s == nil {
			v.need += f.size
			continue
		}
		if v.cached[name] != "" || v.fetched[name] && !v.keeps(name) {
			continue // it takes no more room, or is counted as a layer
		}
		if v.keeps(name) {
			if info, err := s.root.Lstat(path.Join(s.live, name)); err == nil && ownAlone(info) {
				continue
			}
		}
		v.need += f.size
	}
}

// checkRoom returns an error with the room that is needed, if there is too little.
func (v *survey) checkRoom(s *site, place string) error {
	return checkRoom(s, place, v.need, v.unpacked)
}

// checkRoom returns an error if there is too little room. A tenth of the disk stays free of what archives unpack to.
func checkRoom(s *site, place string, need, unpacked int64) error {
	free, all, known := freeBytes(s.root)
	switch {
	case known && need > free:
		return &reconcilers.Error{Reason: DiskFull, Err: fmt.Errorf("%s needs %s more beside what runs, and has %s free", place, bytesText(need), bytesText(free))}
	case known && unpacked > 0 && need > free-all/10:
		return &reconcilers.Error{Reason: DiskFull, Err: fmt.Errorf("%s needs %s more (%s of it for unpacked archives) and has %s free, of which a tenth of the disk, %s, is reserved",
			place, bytesText(need), bytesText(unpacked), bytesText(free), bytesText(all/10))}
	}
	return nil
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, i := float64(n)/unit, 0
	for ; size >= unit && i < len("KMGT")-1; i++ {
		size /= unit
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGT"[i])
}
