package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// findParts opens the parts of one file. The names are those of parts or of their manifest, which may lie on several
// media.
func findParts(fsys FS, names []string) (*Found, error) {
	for _, name := range names {
		if !isPart(name) {
			return nil, fmt.Errorf("%s is no part of a file: a part's name ends in .001 to .%d", name, MaxParts)
		}
		if info, err := fsys.Stat(name); err != nil {
			return nil, err
		} else if info.IsDir() {
			return nil, fmt.Errorf("%s is a folder: name the parts in it, or the folder alone", name)
		}
	}
	manifest, p, err := findManifest(fsys, names)
	if err != nil {
		return nil, err
	}
	paths, err := locateParts(fsys, manifest, p, names)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(manifest)
	f := &Found{Name: filepath.Join(dir, p.Name), Dir: dir, Parts: &p, fsys: fsys, parts: paths, file: &joined{}}
	if err := f.openParts(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// findManifest finds and reads the manifest of the parts: one that is named, or one beside a part.
func findManifest(fsys FS, names []string) (string, Parts, error) {
	var found string
	var p Parts
	var content []byte
	var wholes []string
	for _, name := range names {
		path := name
		if !isManifest(name) {
			whole, _ := cutPart(name)
			wholes = append(wholes, filepath.Base(whole))
			var err error
			if path, err = lookUp(fsys, filepath.Dir(name), filepath.Base(whole)+PartsSuffix); err != nil {
				return "", p, err
			}
		}
		if path == "" || path == found {
			continue
		}
		data, err := readSmall(fsys, path)
		if err != nil {
			return "", p, err
		}
		switch next, err := ParseParts(data); {
		case err != nil:
			return "", p, fmt.Errorf("%s: %w", path, err)
		case found == "":
			found, p, content = path, next, data
		case !bytes.Equal(data, content):
			return "", p, fmt.Errorf("%s and %s belong to two files: name the parts of one", found, path)
		}
	}
	for i, whole := range wholes {
		if !strings.EqualFold(whole, wholes[0]) {
			return "", p, fmt.Errorf("parts of two files: %s and %s: name the parts of one", wholes[0], wholes[i])
		}
	}
	if found == "" {
		return "", p, &MissingPartsError{Name: wholes[0], Missing: []string{wholes[0] + PartsSuffix}}
	}
	return found, p, nil
}

// lookUp returns the path of the file in dir with this name, in whatever case; empty if there is none.
func lookUp(fsys FS, dir, name string) (string, error) {
	if _, err := fsys.Stat(filepath.Join(dir, name)); err == nil {
		return filepath.Join(dir, name), nil
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), name) {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return "", nil
}

func readSmall(fsys FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := diskfile.ReadAll(path, f, MaxPartsBytes)
	return data, errors.Join(err, f.Close())
}

// locateParts returns the path of each part: one that is named, or one beside the manifest or beside another part.
func locateParts(fsys FS, manifest string, p Parts, names []string) ([]string, error) {
	dirs := []string{filepath.Dir(manifest)}
	known := map[string]string{}
	for _, name := range names {
		if isManifest(name) {
			continue
		}
		key := strings.ToLower(filepath.Base(name))
		if !slices.ContainsFunc(p.Parts, func(part Part) bool { return strings.EqualFold(part.Name, key) }) {
			return nil, fmt.Errorf("%s is no part of %s, which has %d, by %s", name, p.Name, len(p.Parts), manifest)
		}
		if other := known[key]; other != "" && filepath.Clean(other) != filepath.Clean(name) {
			return nil, fmt.Errorf("%s and %s are the same part: name one of them", other, name)
		}
		known[key] = name
		if dir := filepath.Dir(name); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	var paths, missing []string
	for _, part := range p.Parts {
		path := known[strings.ToLower(part.Name)]
		for i := 0; path == "" && i < len(dirs); i++ {
			var err error
			if path, err = lookUp(fsys, dirs[i], part.Name); err != nil {
				return nil, err
			}
		}
		if path == "" {
			missing = append(missing, part.Name)
		}
		paths = append(paths, path)
	}
	if len(missing) > 0 {
		return nil, &MissingPartsError{Name: p.Name, Missing: missing, Of: len(p.Parts)}
	}
	return paths, nil
}

// MissingPartsError is the error of a file of which parts are missing. It wraps fs.ErrNotExist.
type MissingPartsError struct {
	Name    string   // of the whole file
	Missing []string // the names of the parts, in their order, or that of their manifest
	Of      int      // the number of all parts; zero without the manifest
}

func (e *MissingPartsError) Error() string {
	if e.Of == 0 {
		return fmt.Sprintf("%s is missing: it names the parts of %s, and was written beside them", strings.Join(e.Missing, ""), e.Name)
	}
	names := e.Missing
	if len(names) > 8 {
		names = append(slices.Clone(names[:8]), "…")
	}
	return fmt.Sprintf("%d of %d parts of %s are missing: %s", len(e.Missing), e.Of, e.Name, strings.Join(names, ", "))
}

func (*MissingPartsError) Unwrap() error { return fs.ErrNotExist }

// openParts opens the files and compares their sizes.
func (f *Found) openParts() error {
	for i, part := range f.Parts.Parts {
		file, err := f.fsys.Open(f.parts[i])
		if err != nil {
			return err
		}
		f.file.pieces = append(f.file.pieces, piece{file, f.file.size, part.Bytes})
		f.file.size += part.Bytes
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Size() != part.Bytes {
			return &DamagedError{[]string{fmt.Sprintf("%s (%d bytes in place of %d)", f.parts[i], info.Size(), part.Bytes)}}
		}
	}
	return nil
}

// Damaged compares each part with the digest in the manifest, and names those that differ. It returns nil if all are as
// they were written, or if the file is not in parts. It reads everything: call it once content has turned out to be wrong.
func (f *Found) Damaged(ctx context.Context) error {
	if f.Parts == nil {
		return nil
	}
	var damaged []string
	for i, part := range f.Parts.Parts {
		verifier := part.Digest.Verifier()
		_, err := io.Copy(verifier, &interruptible{ctx, io.NewSectionReader(f.file.pieces[i], 0, part.Bytes)})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			damaged = append(damaged, fmt.Sprintf("%s (%v)", f.parts[i], err))
		case !verifier.Verified():
			damaged = append(damaged, f.parts[i])
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	return &DamagedError{damaged}
}

// DamagedError is the error of parts that differ from what their manifest says. It wraps ErrFormat.
type DamagedError struct {
	// Parts are their paths, in their order, some with the reason.
	Parts []string
}

func (e *DamagedError) Error() string {
	if len(e.Parts) > 1 {
		return strings.Join(e.Parts, ", ") + " are not as they were exported: copy them again, or they belong to another export"
	}
	return strings.Join(e.Parts, "") + " is not as it was exported: copy it again, or it belongs to another export"
}

func (*DamagedError) Unwrap() error { return ErrFormat }

// interruptible is a reader that ends with ctx.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
