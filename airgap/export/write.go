package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
)

// FileOptions are the optional parts of WriteFile.
type FileOptions struct {
	// FS is the file system; nil means the operating system's.
	FS medium.FS
	// Split is the size of the parts in which the file is written, in bytes. Zero writes one file.
	Split int64
	// Resumed is called once, before anything is written, if there was an unfinished file.
	Resumed func(Resumed)
	// Progress is called with the bytes of the file that are written, or were written by an earlier WriteFile and are right,
	// each time that there are more. Nil is silent.
	Progress func(written int64)
	// Check is called with the finished files, in their order and under their temporary names, before they get their own.
	// Its error deletes them.
	Check func(ctx context.Context, files []string) error
}

// Resumed says what WriteFile found of an unfinished file.
type Resumed struct {
	// Kept is the length of the part that was kept, in bytes.
	Kept int64
	// Dropped is the length of what was not: a torn entry, or all of another package, in bytes.
	Dropped int64
}

// SpaceError means that a package does not fit on its medium.
type SpaceError struct {
	Dir        string
	Need, Free int64 // in bytes
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("no space in %s: needs %s; only %s are free", e.Dir, show.Size(e.Need), show.Size(e.Free))
}

// FileSizeError means that the file system holds no file of the package's size. It can be written in parts.
type FileSizeError struct {
	Dir       string
	Need, Max int64 // in bytes
}

func (e *FileSizeError) Error() string {
	return fmt.Sprintf("the file system of %s holds files of at most %d bytes, and the package has %d", e.Dir, e.Max, e.Need)
}

// Write writes the package to w.
func (p *Plan) Write(ctx context.Context, w io.Writer) error {
	out := airgap.NewWriter(w)
	if err := out.Index(p.refs); err != nil {
		return err
	}
	return p.writeBlobs(ctx, out)
}

// writeBlobs writes the blobs that out does not have, and the end.
func (p *Plan) writeBlobs(ctx context.Context, out *airgap.Writer) error {
	for _, b := range p.blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := out.Blob(b.Descriptor, func() (io.ReadCloser, error) { return b.open(ctx) }); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	return out.Close()
}

// WriteFile writes the package to path, in parts if opts say so, and returns the paths. They appear once they are whole and
// on disk. If ctx ends, or a registry does not answer, the unfinished files stay, and the next WriteFile of the same plan goes
// on after their last whole entry; other errors remove them. The error is a *SpaceError or a *FileSizeError before anything is
// written, or that of opts.Check, of a registry or of the file system. It wraps medium.ErrBusy if another process writes
// the file.
func (p *Plan) WriteFile(ctx context.Context, path string, opts FileOptions) ([]string, error) {
	if opts.FS == nil {
		opts.FS = medium.OS{}
	}
	out, err := p.open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	if err := p.fill(ctx, out, opts); err != nil {
		if resumable(ctx, err) {
			return nil, errors.Join(err, out.Close())
		}
		return nil, errors.Join(err, out.Discard())
	}
	if err := out.Commit(); err != nil {
		return nil, err
	}
	return out.Files(), nil
}

// unfinished is a file whose end is to be written.
type unfinished struct {
	*medium.Output
	whole int // of the blobs are in it
}

// open opens the file for what is missing of it, if there is room for that.
func (p *Plan) open(ctx context.Context, path string, opts FileOptions) (*unfinished, error) {
	out, err := medium.Reopen(opts.FS, path, opts.Split)
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.hasRoom(path, 0, opts); err != nil {
			return nil, err
		}
		if out, err = medium.Create(opts.FS, path, opts.Split); err != nil {
			return nil, err
		}
		return &unfinished{Output: out}, nil
	}
	if err != nil {
		return nil, err
	}
	u, err := p.resume(ctx, out, path, opts)
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return u, nil
}

// resume keeps what is whole of an unfinished file of the same package.
func (p *Plan) resume(ctx context.Context, out *medium.Output, path string, opts FileOptions) (*unfinished, error) {
	before := out.Size()
	whole, end, err := airgap.Kept(&reading{ctx, io.NewSectionReader(out, 0, before), 0, opts.Progress}, p.refs, p.descriptors())
	if err != nil {
		return nil, err
	}
	if opts.Resumed != nil {
		opts.Resumed(Resumed{end, before - end})
	}
	if err := out.Truncate(end); err != nil {
		return nil, err
	}
	return &unfinished{out, whole}, p.hasRoom(path, end, opts)
}

// hasRoom returns an error unless the rest of the file fits.
func (p *Plan) hasRoom(path string, kept int64, opts FileOptions) error {
	dir := filepath.Dir(path)
	space := opts.FS.Space(dir)
	largest := p.Bytes
	if opts.Split > 0 {
		largest = min(largest, opts.Split)
	}
	switch need := p.Bytes - kept; {
	case space.Known && space.Free < need:
		return &SpaceError{dir, need, space.Free}
	case space.MaxFile > 0 && largest > space.MaxFile:
		return &FileSizeError{dir, largest, space.MaxFile}
	}
	return nil
}

// fill writes what is missing, and has it checked.
func (p *Plan) fill(ctx context.Context, out *unfinished, opts FileOptions) (err error) {
	w := &counter{w: out, n: out.Size(), report: opts.Progress}
	if out.Size() == 0 {
		err = p.Write(ctx, w)
	} else {
		err = p.writeBlobs(ctx, airgap.Continue(w, p.descriptors()[:out.whole]))
	}
	if err == nil && opts.Check != nil {
		err = opts.Check(ctx, out.Unfinished())
	}
	return err
}

// resumable reports whether trying again goes on with what is written.
func resumable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, oci.ErrUnreachable) || errors.Is(err, oci.ErrUnauthorized)
}

// reading reads what is written already, until ctx ends.
type reading struct {
	ctx    context.Context
	r      io.Reader
	n      int64
	report func(int64)
}

func (r *reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	if r.n += int64(n); r.report != nil {
		r.report(r.n)
	}
	return n, err
}

// counter reports how many bytes were written.
type counter struct {
	w      io.Writer
	n      int64
	report func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if c.report != nil {
		c.report(c.n)
	}
	return n, err
}

// Bundle writes the newest bundle of one cluster type to w, without its artifacts: the smallest package.
func Bundle(ctx context.Context, from oci.Location, environment, clusterType string, w io.Writer) error {
	p, err := Choose(ctx, Request{From: from, Environment: environment, ClusterTypes: []string{clusterType}, Artifacts: None})
	if err != nil {
		return err
	}
	return p.Write(ctx, w)
}
