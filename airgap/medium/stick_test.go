package medium

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Stick is a file system with one folder, Dir, at its root. The zero value is not ready: use New.
type Stick struct {
	// Limit bounds one file, in bytes; zero means medium.FAT32. Room bounds all files together; zero means no bound.
	Limit, Room int64
	// Upper has all names listed in capitals, as a stick does that knows short names alone.
	Upper bool
	// ReadOnly makes every change fail.
	ReadOnly bool
	// Before is called before each operation, with its name (open, read, write, sync, rename, remove, list, stat), and
	// returns the operation's error, or nil. Nil lets everything happen.
	Before func(operation, name string) error
	// Now is the clock of the machine that writes; nil means time.Now.
	Now func() time.Time

	mu    sync.Mutex
	files map[string]*node // by the folded name
}

// Dir is the folder at which a Stick is mounted.
const Dir = "/media/stick"

type node struct {
	name  string // as it was created
	data  []byte
	when  time.Time
	saved []byte // what has been synced
}

var _ FS = (*Stick)(nil)

// New returns an empty stick.
func NewStick() *Stick { return &Stick{files: map[string]*node{}} }

// Path returns the path of a file on the stick.
func Path(name string) string { return filepath.Join(Dir, name) }

// Names lists the files, as they were created, sorted without case.
func (s *Stick) Names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.files {
		names = append(names, n.name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(fold(a), fold(b)) })
	return names
}

// Lose pulls the stick out, as it were: what was not synced is lost. Names stay.
func (s *Stick) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.files {
		n.data = bytes.Clone(n.saved)
	}
}

func fold(name string) string { return strings.ToUpper(name) }

// legal returns an error unless FAT with long names holds a file of this name.
func legal(name string) error {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, `"*/:<>?\|`) || strings.TrimRight(name, ". ") != name ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return syscall.EINVAL
	}
	return nil
}

func (s *Stick) before(operation, name string, changes bool) error {
	if s.Before != nil {
		if err := s.Before(operation, filepath.Base(name)); err != nil {
			return &fs.PathError{Op: operation, Path: name, Err: err}
		}
	}
	if changes && s.ReadOnly {
		return &fs.PathError{Op: operation, Path: name, Err: syscall.EROFS}
	}
	return nil
}

// find returns the file of a path. The caller holds mu.
func (s *Stick) find(operation, path string) (*node, error) {
	if dir, name := filepath.Split(path); filepath.Clean(dir) == Dir {
		if n := s.files[fold(name)]; n != nil {
			return n, nil
		}
	}
	return nil, &fs.PathError{Op: operation, Path: path, Err: fs.ErrNotExist}
}

func (s *Stick) now() time.Time {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	return now().Truncate(2 * time.Second)
}

// Open opens a file for reading.
func (s *Stick) Open(path string) (archive.File, error) { return s.open(path, false) }

// open opens a file that exists.
func (s *Stick) open(path string, changes bool) (File, error) {
	if err := s.before("open", path, changes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find("open", path)
	if err != nil {
		return nil, err
	}
	return &handle{s, n, 0}, nil
}

// Create opens a file that does not exist, in whatever case.
func (s *Stick) Create(path string) (File, error) {
	if err := s.before("create", path, true); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find("create", path); err == nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	name := filepath.Base(path)
	if err := legal(name); err != nil || filepath.Dir(path) != Dir {
		return nil, &fs.PathError{Op: "create", Path: path, Err: errors.Join(err, fs.ErrInvalid)}
	}
	n := &node{name: name, when: s.now()}
	s.files[fold(name)] = n
	return &handle{s, n, 0}, nil
}

// Reopen opens a file for reading and writing.
func (s *Stick) Reopen(path string) (File, error) { return s.open(path, true) }

// Rename replaces a file of the new name.
func (s *Stick) Rename(from, to string) error {
	if err := s.before("rename", from, true); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find("rename", from)
	if err != nil {
		return err
	}
	name := filepath.Base(to)
	if err := legal(name); err != nil {
		return &fs.PathError{Op: "rename", Path: to, Err: err}
	}
	delete(s.files, fold(n.name))
	n.name = name
	s.files[fold(name)] = n
	return nil
}

// Remove removes a file.
func (s *Stick) Remove(path string) error {
	if err := s.before("remove", path, true); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find("remove", path)
	if err == nil {
		delete(s.files, fold(n.name))
	}
	return err
}

// SyncDir does nothing: names are on the stick at once.
func (s *Stick) SyncDir(dir string) error { return s.before("sync", dir, true) }

// Space returns the room that is left.
func (s *Stick) Space(string) Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := Space{MaxFile: s.limit()}
	if s.Room > 0 {
		space.Free, space.Known = s.Room-s.used(), true
	}
	return space
}

func (s *Stick) limit() int64 {
	if s.Limit > 0 {
		return s.Limit
	}
	return FAT32
}

func (s *Stick) used() (sum int64) {
	for _, n := range s.files {
		sum += int64(len(n.data))
	}
	return sum
}

// Stat returns the size, the time and the name of a file, and that everybody may do everything.
func (s *Stick) Stat(path string) (fs.FileInfo, error) {
	if err := s.before("stat", path, false); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if filepath.Clean(path) == Dir {
		return info{name: filepath.Base(Dir), dir: true}, nil
	}
	n, err := s.find("stat", path)
	if err != nil {
		return nil, err
	}
	return s.info(n), nil
}

func (s *Stick) info(n *node) info {
	name := n.name
	if s.Upper {
		name = fold(name)
	}
	return info{name: name, size: int64(len(n.data)), when: n.when}
}

// ReadDir lists the root.
func (s *Stick) ReadDir(path string) (all []fs.DirEntry, err error) {
	if err := s.before("list", path, false); err != nil {
		return nil, err
	}
	if filepath.Clean(path) != Dir {
		return nil, &fs.PathError{Op: "list", Path: path, Err: fs.ErrNotExist}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.files {
		all = append(all, fs.FileInfoToDirEntry(s.info(n)))
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

type info struct {
	name string
	size int64
	when time.Time
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.when }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o777
}

// handle is an open file.
type handle struct {
	stick *Stick
	*node
	at int64
}

func (h *handle) Stat() (fs.FileInfo, error) {
	h.stick.mu.Lock()
	defer h.stick.mu.Unlock()
	return h.stick.info(h.node), nil
}

func (h *handle) Read(b []byte) (int, error) {
	n, err := h.ReadAt(b, h.at)
	h.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	if err := h.stick.before("read", h.name, false); err != nil {
		return 0, err
	}
	h.stick.mu.Lock()
	defer h.stick.mu.Unlock()
	return bytes.NewReader(h.data).ReadAt(b, at)
}

func (h *handle) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += h.at
	case io.SeekEnd:
		h.stick.mu.Lock()
		offset += int64(len(h.data))
		h.stick.mu.Unlock()
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	h.at = offset
	return offset, nil
}

// Write writes as much as the size of a file and the room allow.
func (h *handle) Write(b []byte) (n int, err error) {
	if err := h.stick.before("write", h.name, true); err != nil {
		return 0, err
	}
	h.stick.mu.Lock()
	defer h.stick.mu.Unlock()
	room := h.stick.limit() - h.at
	if int64(len(b)) > room {
		b, err = b[:max(0, room)], syscall.EFBIG
	}
	end := h.at + int64(len(b))
	if more := end - int64(len(h.data)); h.stick.Room > 0 && more > 0 && h.stick.used()+more > h.stick.Room {
		b, err = nil, syscall.ENOSPC
		end = h.at
	}
	if end > int64(len(h.data)) {
		h.data = append(h.data, make([]byte, end-int64(len(h.data)))...)
	}
	n = copy(h.data[h.at:], b)
	h.at += int64(n)
	h.when = h.stick.now()
	if err != nil {
		err = &fs.PathError{Op: "write", Path: Path(h.name), Err: err}
	}
	return n, err
}

func (h *handle) Truncate(size int64) error {
	if err := h.stick.before("write", h.name, true); err != nil {
		return err
	}
	h.stick.mu.Lock()
	defer h.stick.mu.Unlock()
	if size > h.stick.limit() {
		return syscall.EFBIG
	}
	if size <= int64(len(h.data)) {
		h.data = h.data[:size]
	} else {
		h.data = append(h.data, make([]byte, size-int64(len(h.data)))...)
	}
	return nil
}

func (h *handle) Sync() error {
	if err := h.stick.before("sync", h.name, true); err != nil {
		return err
	}
	h.stick.mu.Lock()
	defer h.stick.mu.Unlock()
	h.saved = bytes.Clone(h.data)
	return nil
}

func (h *handle) Close() error { return nil }
