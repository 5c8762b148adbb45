package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	"github.com/rogpeppe/go-internal/lockedfile"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/show"
)

const (
	// partsDir holds the files of unfinished downloads, named ALGORITHM-HEX. Beside each, a file with the suffix
	// syncedSuffix holds the number of its bytes that were synced to disk.
	partsDir     = "parts"
	syncedSuffix = ".synced"
	partsLock    = "lock"
)

// part is the open file of an unfinished download.
type part interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

type openFunc func(root *os.Root, name string) (part, error)

func openPart(root *os.Root, name string) (part, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err // and no part that is a nil file
	}
	return f, nil
}

func partBase(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() }

func (l *Layout) partsDir() string { return cmp.Or(l.parts, partsDir) }

func (d *download) name() string { return path.Join(d.parts, partBase(d.blob.Digest)) }

// begin opens the part that an earlier call left, if any. It truncates the part to the bytes that were synced, since after
// a power cut the rest may hold anything, and digests the synced bytes again.
func (d *download) begin() error {
	if err := makeDir(d.root, d.parts); err != nil {
		return err
	}
	if _, err := regular(d.root, d.name()); err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return err
	}
	var err error
	if d.part, err = d.open(d.root, d.name()); err != nil {
		return err
	}
	d.hash = d.blob.Digest.Algorithm().Hash()
	note, err := readFile(d.root, d.name()+syncedSuffix, 64)
	if n, bad := strconv.ParseInt(strings.TrimSpace(string(note)), 10, 64); err == nil && bad == nil && n > 0 && n <= d.blob.Size {
		read, err := io.Copy(d.hash, io.NewSectionReader(d.part, 0, n))
		if err != nil || read < n {
			return errors.Join(err, d.restart())
		}
		d.have, d.synced, d.resumed = n, n, true
	}
	return d.part.Truncate(d.have)
}

// reserve is the number of free bytes that a download leaves on the disk: a process that fills the disk of its own state
// file cannot record that the disk is full.
const reserve = 1 << 20

// hasRoom returns an error if the disk has no room for the missing bytes, before any of them is fetched.
func (d *download) hasRoom() error {
	room, known := d.room(d.root.Name())
	if !known || room >= d.blob.Size-d.have+reserve {
		return nil
	}
	full := &fs.PathError{Op: "write", Path: path.Join(d.root.Name(), d.name()), Err: syscall.ENOSPC}
	return fmt.Errorf("%w: needs %s and keeps %d MiB free; only %s are free", full, show.Size(d.blob.Size-d.have), reserve>>20, show.Size(room))
}

// keep syncs the part to disk, and then writes down its length.
func (d *download) keep() error {
	if d.have == d.synced {
		return nil
	}
	d.opts.Moment.at("fetch: sync of a chunk")
	if err := d.part.Sync(); err != nil {
		return err
	}
	d.opts.Moment.at("fetch: note of a chunk")
	if err := writeFile(d.root, d.name()+syncedSuffix, bytes.NewReader(fmt.Appendln(nil, d.have))); err != nil {
		return err
	}
	d.synced = d.have
	return nil
}

// restart discards the part. It removes the recorded length first, which must never exceed the length of the part.
func (d *download) restart() error {
	d.have, d.synced = 0, 0
	d.hash.Reset()
	if err := d.root.Remove(d.name() + syncedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.part.Truncate(0)
}

// finish renames the part, whose digest was checked, to the blob.
func (d *download) finish() error {
	d.opts.Moment.at("fetch: sync of the whole")
	if err := d.part.Sync(); err != nil {
		return err
	}
	to := blobPath(d.blob.Digest)
	if err := makeDir(d.root, path.Dir(to)); err != nil {
		return err
	}
	err := d.part.Close()
	d.part = nil
	if err == nil {
		d.opts.Moment.at("fetch: rename")
		err = d.root.Rename(d.name(), to)
	}
	if err == nil {
		err = syncDir(d.root, path.Dir(to))
	}
	if err != nil {
		return err
	}
	d.opts.Moment.at("fetch: end of the note")
	if err := d.root.Remove(d.name() + syncedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockParts creates the layout if there is none, and takes the lock on its parts. The error is a *DiskError, or ctx's.
func (l *Layout) lockParts(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(l.dir, 0o777); err != nil {
		return nil, onDisk(err)
	}
	err = l.withRoot(func(root *os.Root) error {
		if err := l.create(root); err != nil {
			return err
		}
		return makeDir(root, l.partsDir())
	})
	if err != nil {
		return nil, onDisk(err)
	}
	type turn struct {
		unlock func()
		err    error
	}
	turns := make(chan turn, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(filepath.Join(l.dir, l.partsDir(), partsLock)).Lock()
		turns <- turn{unlock, err}
	}()
	select {
	case t := <-turns:
		return t.unlock, onDisk(t.err)
	case <-ctx.Done():
		go func() { // release the lock once it was taken
			if t := <-turns; t.err == nil {
				t.unlock()
			}
		}()
		return nil, ctx.Err()
	}
}

// DropParts removes the files of all unfinished downloads except those of the blobs in keep. It waits while a Download
// runs.
func (l *Layout) DropParts(ctx context.Context, keep ...digest.Digest) error {
	unlock, err := l.lockParts(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return onDisk(l.withRoot(func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), l.partsDir())
		if err != nil {
			return err
		}
		for _, e := range entries {
			kept := func(d digest.Digest) bool {
				return partBase(d) == strings.TrimSuffix(e.Name(), syncedSuffix)
			}
			if e.Name() != partsLock && !slices.ContainsFunc(keep, kept) {
				err = errors.Join(err, root.Remove(path.Join(l.partsDir(), e.Name())))
			}
		}
		return err
	}))
}
