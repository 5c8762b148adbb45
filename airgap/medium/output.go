package medium

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ErrFileTooLarge means that the file system does not hold a file of this size: write it in parts.
var ErrFileTooLarge = errors.New("the file system holds no file of this size")

// PartialSuffix follows the names of files that are not whole yet.
const PartialSuffix = ".partial"

// Output is a file, or the parts of one, that is being written. Nothing of it is visible under its name before Commit. It
// is used by one goroutine.
type Output struct {
	fsys  FS
	path  string
	split int64
	// files are the temporary files, each but the last of split bytes. All but the last are on disk and closed.
	files []string
	last  File
	in    int64 // bytes in the last file
	size  int64 // bytes in all

	parts      []archive.Part // of all files but the last
	part, full hash.Hash      // of the last file and of all; nil without parts
}

// Create begins to write path, in parts of split bytes if that is not zero. The error wraps fs.ErrExist if an unfinished
// Output has been left, by a process that was killed or is still at work: Reopen goes on with it, RemovePartial removes
// it. The caller ends with Commit or Close.
func Create(fsys FS, path string, split int64) (*Output, error) {
	o := newOutput(fsys, path, split)
	left, err := o.partial()
	switch {
	case err != nil:
		return nil, err
	case len(left) > 0:
		return nil, &fs.PathError{Op: "create", Path: left[0], Err: fs.ErrExist}
	}
	return o, o.nextFile()
}

// Reopen opens an unfinished Output of the same path and split. Its content may end in the middle of anything, and after a
// power cut in bytes that were never written: the caller reads it with ReadAt, and cuts it with Truncate after what it
// wants to keep, which it has to do once before it writes. The error wraps fs.ErrNotExist if there is none, and ErrBusy if
// another process is writing it.
func Reopen(fsys FS, path string, split int64) (*Output, error) {
	o := newOutput(fsys, path, split)
	left, err := o.partial()
	if err == nil && len(left) == 0 {
		err = &fs.PathError{Op: "open", Path: path + PartialSuffix, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	for i, name := range left {
		info, err := fsys.Stat(name)
		if err != nil {
			return nil, err
		}
		o.files, o.in = append(o.files, name), info.Size()
		o.size += info.Size()
		if split == 0 || info.Size() < split || i == len(left)-1 {
			break // what follows a short part is of no use
		}
	}
	o.last, err = fsys.Reopen(o.files[len(o.files)-1])
	return o, err
}

// RemovePartial removes what an unfinished Output of path has left, whatever its split. The error wraps ErrBusy if another
// process is writing it.
func RemovePartial(fsys FS, path string) error {
	for _, split := range []int64{0, 1} {
		o := newOutput(fsys, path, split)
		left, err := o.partial()
		if err != nil {
			return err
		}
		for _, name := range left {
			if err := removeUnused(fsys, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func newOutput(fsys FS, path string, split int64) *Output {
	o := &Output{fsys: fsys, path: path, split: split}
	if split > 0 {
		o.part, o.full = sha256.New(), sha256.New()
	}
	return o
}

// partial lists the temporary files, in their order, up to the first that is missing.
func (o *Output) partial() (left []string, err error) {
	for n := 1; n <= archive.MaxParts; n++ {
		name := o.temporary(n)
		_, err := o.fsys.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return left, nil
		}
		if err != nil {
			return nil, err
		}
		if left = append(left, name); o.split == 0 {
			break
		}
	}
	return left, nil
}

// temporary is the name of temporary file n, from 1 on.
func (o *Output) temporary(n int) string { return o.final(n) + PartialSuffix }

// final is the name of file n, from 1 on.
func (o *Output) final(n int) string {
	if o.split == 0 {
		return o.path
	}
	return archive.PartName(o.path, n)
}

// Size is the number of bytes written.
func (o *Output) Size() int64 { return o.size }

// Write appends to the file, and begins a new part when one is full. The error wraps ErrFileTooLarge if the file system
// holds no file that large.
func (o *Output) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b
		if o.split > 0 {
			if o.in == o.split {
				if err := o.endPart(); err != nil {
					return n, err
				}
				if err := o.nextFile(); err != nil {
					return n, err
				}
			}
			piece = b[:min(int64(len(b)), o.split-o.in)]
		}
		wrote, err := o.last.Write(piece)
		o.count(piece[:wrote])
		n, b = n+wrote, b[wrote:]
		if err != nil {
			return n, tooLarge(err)
		}
	}
	return n, nil
}

func (o *Output) count(b []byte) {
	o.in += int64(len(b))
	o.size += int64(len(b))
	if o.split > 0 {
		o.part.Write(b)
		o.full.Write(b)
	}
}

func tooLarge(err error) error {
	if errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFileTooLarge, err)
	}
	return err
}

// endPart brings the last file to disk and notes its digest.
func (o *Output) endPart() error {
	err := errors.Join(o.last.Sync(), o.last.Close())
	o.last = nil
	if err != nil {
		return err
	}
	if o.split > 0 {
		name := filepath.Base(o.final(len(o.files)))
		o.parts = append(o.parts, archive.Part{Name: name, Bytes: o.in, Digest: digest.NewDigest(digest.SHA256, o.part)})
		o.part.Reset()
	}
	return nil
}

func (o *Output) nextFile() (err error) {
	n := len(o.files) + 1
	if n > archive.MaxParts {
		return fmt.Errorf("more than %d parts of %d bytes: make larger parts", archive.MaxParts, o.split)
	}
	name := o.temporary(n)
	o.last, err = o.fsys.Create(name)
	if errors.Is(err, fs.ErrExist) && n > 1 { // of a Commit that was killed: the parts before it have their names
		if err := removeUnused(o.fsys, name); err != nil {
			return err
		}
		o.last, err = o.fsys.Create(name)
	}
	if err != nil {
		o.last = nil
		return err
	}
	o.files, o.in = append(o.files, name), 0
	return nil
}

// removeUnused removes a temporary file unless another process is writing it.
func removeUnused(fsys FS, name string) error {
	f, err := fsys.Reopen(name) // for its lock
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), fsys.Remove(name))
}

// ReadAt reads what has been written.
func (o *Output) ReadAt(b []byte, at int64) (n int, err error) {
	for len(b) > 0 {
		if at >= o.size {
			return n, io.EOF
		}
		i, offset, size := 0, at, o.size
		if o.split > 0 {
			i, offset = int(at/o.split), at%o.split
			size = min(o.split, o.size-int64(i)*o.split)
		}
		got, err := o.readFile(i, b[:min(int64(len(b)), size-offset)], offset)
		n, at, b = n+got, at+int64(got), b[got:]
		if err != nil && (got == 0 || !errors.Is(err, io.EOF)) {
			return n, err
		}
	}
	return n, nil
}

func (o *Output) readFile(i int, b []byte, at int64) (n int, err error) {
	if i == len(o.files)-1 {
		return o.last.ReadAt(b, at)
	}
	f, err := o.fsys.Open(o.files[i])
	if err != nil {
		return 0, err
	}
	n, err = f.ReadAt(b, at)
	return n, errors.Join(err, f.Close())
}

// Truncate keeps the first size bytes, and writes on after them. It reads them if they are in parts, for their digests.
func (o *Output) Truncate(size int64) error {
	if size > o.size || size < 0 {
		return fmt.Errorf("%s: keep %d of %d bytes: %w", o.path, size, o.size, fs.ErrInvalid)
	}
	keep := 1
	if o.split > 0 {
		keep = max(1, int((size+o.split-1)/o.split))
	}
	if err := o.last.Close(); err != nil {
		return err
	}
	left, err := o.partial()
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(left[keep:]) {
		if err := o.fsys.Remove(name); err != nil {
			return err
		}
	}
	o.files, o.parts, o.size, o.in = nil, nil, 0, 0
	if o.split > 0 {
		o.part, o.full = sha256.New(), sha256.New()
	}
	for _, name := range left[:keep] {
		if err := o.takeBack(name, size-o.size); err != nil {
			return err
		}
	}
	return nil
}

// takeBack goes on after the first size bytes of a file, or after all of a full part.
func (o *Output) takeBack(name string, size int64) (err error) {
	if o.last != nil && len(o.files) > 0 {
		if err := o.endPart(); err != nil {
			return err
		}
	}
	if o.last, err = o.fsys.Reopen(name); err != nil {
		return err
	}
	o.files, o.in = append(o.files, name), 0
	if o.split > 0 {
		size = min(size, o.split)
		read, err := io.Copy(writerFunc(o.count), io.NewSectionReader(o.last, 0, size))
		if err == nil && read != size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	} else {
		o.in, o.size = size, size
	}
	if err := o.last.Truncate(size); err != nil {
		return err
	}
	_, err = o.last.Seek(size, io.SeekStart)
	return err
}

type writerFunc func([]byte)

func (w writerFunc) Write(b []byte) (int, error) { w(b); return len(b), nil }

// Commit brings everything to disk, and gives the files their names: the parts, their sums, and then their manifest. What
// an earlier Output has left under this path goes, whether it was in parts or not. Afterwards the Output is closed.
func (o *Output) Commit() (err error) {
	defer func() { err = errors.Join(err, o.Close()) }()
	if err := o.endPart(); err != nil {
		return tooLarge(err)
	}
	old := o.previous()
	manifest := o.path + archive.PartsSuffix
	// From here to the end there is no manifest, so that old parts are never joined with these.
	if err := errors.Join(o.remove(manifest), o.remove(o.path+archive.SumsSuffix)); err != nil {
		return err
	}
	dir := filepath.Dir(o.path)
	if err := o.fsys.SyncDir(dir); err != nil {
		return err
	}
	for i, name := range o.files {
		if err := o.fsys.Rename(name, o.final(i+1)); err != nil {
			return err
		}
		old = slices.DeleteFunc(old, func(path string) bool { return strings.EqualFold(path, o.final(i+1)) })
	}
	for _, path := range old {
		if err := o.remove(path); err != nil {
			return err
		}
	}
	if err := o.fsys.SyncDir(dir); err != nil {
		return err
	}
	if o.split == 0 {
		return nil
	}
	var sums strings.Builder
	for _, p := range o.parts {
		fmt.Fprintf(&sums, "%s  %s\n", p.Digest.Encoded(), p.Name)
	}
	if err := o.writeSmall(o.path+archive.SumsSuffix, []byte(sums.String())); err != nil {
		return err
	}
	data, err := archive.Parts{
		Name: filepath.Base(o.path), Bytes: o.size, Digest: digest.NewDigest(digest.SHA256, o.full), Parts: o.parts,
	}.Marshal()
	if err != nil {
		return err
	}
	return o.writeSmall(manifest, data)
}

// previous lists what an earlier Output has left under this path: a file, or the parts in its manifest.
func (o *Output) previous() (all []string) {
	if o.split > 0 {
		all = append(all, o.path)
	}
	f, err := o.fsys.Open(o.path + archive.PartsSuffix)
	if err != nil {
		return all
	}
	defer f.Close()
	data, err := diskfile.ReadAll(o.path, f, archive.MaxPartsBytes)
	if err != nil {
		return all
	}
	p, err := archive.ParseParts(data)
	if err != nil || !strings.EqualFold(p.Name, filepath.Base(o.path)) {
		return all
	}
	for i, part := range p.Parts {
		if path := archive.PartName(o.path, i+1); strings.EqualFold(part.Name, filepath.Base(path)) {
			all = append(all, path)
		}
	}
	return all
}

func (o *Output) remove(path string) error {
	if err := o.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeSmall writes a file beside the parts.
func (o *Output) writeSmall(path string, data []byte) error {
	temporary := path + PartialSuffix
	if err := o.remove(temporary); err != nil { // of a process that was killed
		return err
	}
	f, err := o.fsys.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, o.remove(temporary))
	}
	if err := o.fsys.Rename(temporary, path); err != nil {
		return err
	}
	return o.fsys.SyncDir(filepath.Dir(path))
}

// Files lists the paths under which Commit has left the content: the file, or the parts, their manifest and their sums.
func (o *Output) Files() (all []string) {
	for i := range o.files {
		all = append(all, o.final(i+1))
	}
	if o.split > 0 {
		all = append(all, o.path+archive.PartsSuffix, o.path+archive.SumsSuffix)
	}
	return all
}

// Unfinished lists the paths of what is being written, before Commit, in the order of the parts.
func (o *Output) Unfinished() []string { return slices.Clone(o.files) }

// Close ends the writing without Commit, and keeps what was written for Reopen. After Commit it does nothing.
func (o *Output) Close() error {
	if o.last == nil {
		return nil
	}
	err := o.last.Close()
	o.last = nil
	return err
}

// Discard ends the writing and removes what was written. After Commit it does nothing.
func (o *Output) Discard() error {
	if o.last == nil {
		return nil
	}
	err := o.Close()
	for _, name := range slices.Backward(o.files) {
		err = errors.Join(err, o.remove(name))
	}
	return err
}
