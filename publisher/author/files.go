package author

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// MaxBytes bounds a file, as it does where platforms are read.
const MaxBytes = 8 << 20

// ErrChanged is wrapped by the error about a file that is not as it was read.
var ErrChanged = errors.New("changed since it was read")

// ErrOutside is wrapped by the error about a file that lies outside of the root, by its name or because a folder on its way is a
// link that leads out.
var ErrOutside = errors.New("leads out of the platform's folder")

// FileChange is a file as it was read and as it is to be.
type FileChange struct {
	Name   string // slash-separated, below the root
	Before []byte // nil for a file that must not exist yet
	After  []byte // nil removes the file
}

// FileMove renames a file or a folder. Changes name files as they are called before the moves.
type FileMove struct {
	From, To string // slash-separated, below the root
}

// FileSet is a set of changes below a folder. An empty Root lets names be any paths, for files that a person names.
type FileSet struct {
	Root    string
	Changes []FileChange
	Moves   []FileMove
}

// Path returns the path of a file of the set.
func (s *FileSet) Path(name string) string { return filepath.Join(s.Root, filepath.FromSlash(name)) }

// Empty reports whether the set changes nothing.
func (s *FileSet) Empty() bool {
	return len(s.Moves) == 0 && !slices.ContainsFunc(s.Changes, func(c FileChange) bool { return !c.same() })
}

func (c FileChange) same() bool {
	return bytes.Equal(c.Before, c.After) && (c.Before == nil) == (c.After == nil)
}

// Apply makes the changes and then the moves. Its error wraps [ErrChanged] if a file is not as it was read, and
// [fs.ErrExist] if a new file or the target of a move exists, and [ErrOutside] if a file is not below the root. After an error,
// all files are as before.
func (s *FileSet) Apply() (err error) {
	if err := s.contained(); err != nil {
		return err
	}
	var done undo
	defer func() {
		if err != nil {
			err = errors.Join(err, done.run())
		}
	}()
	var staged []stagedFile
	for _, c := range s.Changes {
		if c.same() {
			continue
		}
		if err := s.check(c); err != nil {
			return err
		}
		f, err := s.stage(c, &done)
		if err != nil {
			return err
		}
		staged = append(staged, f)
	}
	for _, m := range s.Moves {
		if _, err := os.Lstat(s.Path(m.To)); !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "rename to", Path: s.Path(m.To), Err: fs.ErrExist}
		}
	}
	for _, f := range staged {
		if err := s.check(f.change); err != nil { // staging may have taken a while
			return err
		}
		if err := f.commit(&done); err != nil {
			return err
		}
	}
	return s.move(&done)
}

// contained returns an error unless all that the set changes is below the root. A repository may hold links.
func (s *FileSet) contained() error {
	if s.Root == "" {
		return nil
	}
	var names []string
	for _, c := range s.Changes {
		if !c.same() {
			names = append(names, c.Name)
		}
	}
	for _, m := range s.Moves {
		names = append(names, m.From, m.To)
	}
	root, err := os.OpenRoot(s.Root)
	if errors.Is(err, fs.ErrNotExist) { // it is made
		root, err = nil, nil
	}
	if err != nil {
		return err
	}
	if root != nil {
		defer root.Close()
	}
	for _, name := range names {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return &fs.PathError{Op: "write", Path: s.Path(name), Err: ErrOutside}
		}
		for dir := path.Dir(name); root != nil && dir != "."; dir = path.Dir(dir) {
			if _, err := root.Stat(filepath.FromSlash(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &fs.PathError{Op: "write below", Path: s.Path(dir), Err: ErrOutside}
			}
		}
	}
	return nil
}

func (s *FileSet) move(done *undo) error {
	for _, m := range s.Moves {
		from, to := s.Path(m.From), s.Path(m.To)
		if err := makeFolders(filepath.Dir(to), done); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		done.add(func() error { return os.Rename(to, from) })
		if err := errors.Join(diskfile.SyncDir(filepath.Dir(from)), diskfile.SyncDir(filepath.Dir(to))); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error unless the file is as it was read.
func (s *FileSet) check(c FileChange) error {
	name := s.Path(c.Name)
	if c.Before == nil {
		if _, err := os.Lstat(name); err == nil {
			return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: it is gone", name, ErrChanged)
	}
	if err == nil && !bytes.Equal(data, c.Before) {
		err = fmt.Errorf("%s: %w", name, ErrChanged)
	}
	return err
}

// ReadFile returns the content of a regular file. It refuses symbolic links, which the readers of platforms pass over: replacing
// the link would leave the file that it leads to as it is.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: diskfile.ErrNotRegular}
	}
	data, err := diskfile.Read(name, MaxBytes)
	if data == nil && err == nil {
		data = []byte{}
	}
	return data, err
}

// stagedFile is a change whose new text is on disk.
type stagedFile struct {
	change FileChange
	path   string
	temp   string // empty for a file that is removed
	mode   fs.FileMode
}

func (s *FileSet) stage(c FileChange, done *undo) (stagedFile, error) {
	f := stagedFile{change: c, path: s.Path(c.Name), mode: 0o644}
	if info, err := os.Lstat(f.path); err == nil {
		f.mode = info.Mode().Perm()
	}
	if c.After == nil {
		return f, nil
	}
	if err := makeFolders(filepath.Dir(f.path), done); err != nil {
		return f, err
	}
	var err error
	f.temp, err = writeTemp(f.path, c.After, f.mode)
	if err == nil {
		temp := f.temp
		done.add(func() error { return removed(os.Remove(temp)) })
	}
	return f, err
}

// commit gives the staged text its name.
func (f stagedFile) commit(done *undo) error {
	var err error
	switch {
	case f.temp == "":
		err = os.Remove(f.path)
	case f.change.Before == nil: // a link, unlike a rename, replaces nothing
		if err = os.Link(f.temp, f.path); err == nil {
			err = os.Remove(f.temp)
		} else if !errors.Is(err, fs.ErrExist) { // a file system without links
			err = os.Rename(f.temp, f.path)
		}
	default:
		err = os.Rename(f.temp, f.path)
	}
	if err != nil {
		return err
	}
	done.add(f.restore)
	return diskfile.SyncDir(filepath.Dir(f.path))
}

func (f stagedFile) restore() error {
	if f.change.Before == nil {
		return removed(os.Remove(f.path))
	}
	temp, err := writeTemp(f.path, f.change.Before, f.mode)
	if err != nil {
		return err
	}
	return os.Rename(temp, f.path)
}

// writeTemp writes data beside path, under a name that no reader of platforms takes for an object's file.
func writeTemp(path string, data []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), err
}

// makeFolders is os.MkdirAll whose new folders can be taken away again.
func makeFolders(dir string, done *undo) error {
	_, err := os.Stat(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeFolders(filepath.Dir(dir), done); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	done.add(func() error { return removed(os.Remove(dir)) })
	return nil
}

func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// undo is what takes steps back, the last one first.
type undo struct{ steps []func() error }

func (u *undo) add(step func() error) { u.steps = append(u.steps, step) }

func (u *undo) run() error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		errs = append(errs, step())
	}
	return errors.Join(errs...)
}

// Diff returns the changes and moves as git shows them.
func (s *FileSet) Diff() string {
	var out strings.Builder
	for _, c := range s.Changes {
		out.WriteString(Unified(c.Name, c.Before, c.After))
	}
	for _, m := range s.Moves {
		fmt.Fprintf(&out, "rename from %s\nrename to %s\n", m.From, m.To)
	}
	return out.String()
}
