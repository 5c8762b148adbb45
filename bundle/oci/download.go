package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// DownloadOptions tune a Download to a link. The zero value suits most links.
type DownloadOptions struct {
	// Chunk is the number of bytes after which the download is synced to disk: a crash or power cut loses at most
	// so many. Zero means 1 MiB.
	Chunk int64
	// Window and MinProgress define a stall: fewer than MinProgress bytes arrive while the download has waited for
	// Window. Zero means a minute and 256 bytes.
	Window      time.Duration
	MinProgress int64
	// Retries is the number of retries in a row that may bring no progress. Zero means 5, a negative number none.
	Retries int
	// Wait and MaxWait bound the pauses between retries, which grow and have full jitter. Zero means half a second
	// and half a minute.
	Wait, MaxWait time.Duration
	// Throttle, if set, caps the bandwidth: it is called after each n bytes and returns when more may come. The time
	// spent in it is no stall. It returns the context's error when the context ends.
	Throttle func(ctx context.Context, n int) error
	// Progress, if set, is called with the number of bytes that have arrived, of blob.Size.
	Progress func(have int64)
	// Moment, if set, is called before each step, for tests.
	Moment Moment
}

func (o DownloadOptions) orDefault() DownloadOptions {
	o.Chunk = cmp.Or(o.Chunk, 1<<20)
	o.Window, o.MinProgress = cmp.Or(o.Window, stallTime), cmp.Or(o.MinProgress, minProgress)
	o.Retries = cmp.Or(o.Retries, 5)
	o.Wait, o.MaxWait = cmp.Or(o.Wait, 500*time.Millisecond), cmp.Or(o.MaxWait, 30*time.Second)
	return o
}

// Download brings a blob of a registry into the layout, across lost connections, stalls and restarts: the bytes that have
// arrived stay beside the blobs until this or a later call has the rest. The file becomes a blob only after its digest
// was checked; neither an ETag nor another header of the registry counts. A blob that the layout has is not fetched.
//
// The error wraps ErrUnreachable if another try can help, as after Retries without progress;
// content.ErrMismatchedDigest if the registry has other content; and is a *DiskError if the disk is at fault, which is
// not retried. Downloads into one layout run one at a time, across all processes.
func (l *Layout) Download(ctx context.Context, from Target, blob ocispec.Descriptor, opts DownloadOptions) error {
	return l.download(ctx, from, blob, opts, openPart)
}

func (l *Layout) download(ctx context.Context, from Target, blob ocispec.Descriptor, opts DownloadOptions, open openFunc) error {
	if err := blob.Digest.Validate(); err != nil {
		return err
	}
	repo, ok := from.(*remoteRepository)
	if !ok {
		return l.copy(ctx, from, blob)
	}
	unlock, err := l.lockParts(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = l.withRoot(func(root *os.Root) error {
		if statBlob(root, blob) == nil {
			return nil
		}
		d := &download{repo: repo, blob: blob, opts: opts.orDefault(), root: root, parts: l.partsDir(), open: open, room: RoomIn}
		return d.run(ctx)
	})
	if err != nil {
		return fmt.Errorf("download %s: %w", repo.ref(blob.Digest.String()), err)
	}
	return nil
}

// copy copies a blob from another layout, which is on a disk already.
func (l *Layout) copy(ctx context.Context, from Target, blob ocispec.Descriptor) error {
	r, err := from.Fetch(ctx, blob)
	if err != nil {
		return err
	}
	defer r.Close()
	err = l.push(blob, r)
	switch {
	case err == nil, errors.Is(err, errdef.ErrAlreadyExists):
		return nil
	case errors.As(err, new(*DiskError)), errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// download is the state of one call for a blob that the layout lacks.
type download struct {
	repo *remoteRepository
	blob ocispec.Descriptor
	opts DownloadOptions
	root *os.Root
	// parts is the folder of the part.
	parts string
	open  openFunc
	room  func(dir string) (int64, bool)

	part    part
	hash    hash.Hash
	have    int64 // bytes in the part
	synced  int64 // bytes of the part that were synced to disk
	resumed bool  // the part came in more than one response
	whole   bool  // request the whole blob, without a range
}

func (d *download) run(ctx context.Context) (err error) {
	defer func() {
		if d.part != nil {
			err = errors.Join(err, onDisk(errors.Join(d.keep(), d.part.Close())))
		}
	}()
	if err := d.begin(); err != nil {
		return onDisk(err)
	}
	if err := d.hasRoom(); err != nil {
		return onDisk(err)
	}
	for again := false; ; again = true {
		for d.have < d.blob.Size {
			if err := d.bring(ctx); err != nil {
				return err
			}
		}
		if digest.NewDigest(d.blob.Digest.Algorithm(), d.hash) == d.blob.Digest {
			return onDisk(d.finish())
		}
		pieced := d.resumed
		if err := onDisk(d.restart()); err != nil || !pieced || again {
			return errors.Join(content.ErrMismatchedDigest, err)
		}
		// The pieces did not belong together, or the disk has damaged one: fetch the whole blob once more.
		d.resumed, d.whole = false, false
	}
}

// bring sends requests until one brings progress or the retries are used up.
func (d *download) bring(ctx context.Context) error {
	for try := 0; ; try++ {
		before := d.have
		err := d.request(ctx)
		if errors.Is(err, errNoParts) && !d.whole {
			d.whole = true
			err = nil
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, ErrUnreachable):
			return err
		}
		if kept := d.keep(); kept != nil {
			return onDisk(kept)
		}
		if d.have-before >= d.opts.MinProgress {
			try = 0
		}
		if try >= d.opts.Retries {
			return err
		}
		if err := pause(ctx, d.pauseBefore(try, err)); err != nil {
			return err
		}
	}
}

// pauseBefore returns the pause before a retry. It has full jitter, so that a fleet that lost its connections at the same
// moment does not return at the same moment.
func (d *download) pauseBefore(try int, err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) && busy.after > 0 {
		return min(busy.after, d.opts.MaxWait)
	}
	most := d.opts.MaxWait
	if shift := min(try, 30); d.opts.Wait<<shift < most && d.opts.Wait<<shift > 0 {
		most = d.opts.Wait << shift
	}
	return rand.N(most + 1)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take appends the bytes of body, which starts at byte start of the blob.
func (d *download) take(ctx context.Context, body io.Reader, start, end int64) error {
	buffer := make([]byte, 32<<10)
	for at := start; at < end; {
		n, err := body.Read(buffer[:min(int64(len(buffer)), end-at, d.untilSync(at))])
		if at += int64(n); at > d.have {
			if err := d.append(buffer[int64(n)-(at-d.have) : n]); err != nil {
				return onDisk(err)
			}
		}
		if n > 0 && d.opts.Throttle != nil {
			if err := d.opts.Throttle(ctx, n); err != nil {
				return err
			}
		}
		if err != nil && at < end {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: %w", ErrUnreachable, causeOf(ctx, err))
		}
	}
	return nil
}

// untilSync returns the end of a read at byte at, such that no read crosses the end of a chunk.
func (d *download) untilSync(at int64) int64 {
	if at < d.have {
		return d.have - at
	}
	return d.opts.Chunk - at%d.opts.Chunk
}

func (d *download) append(p []byte) error {
	if _, err := d.part.WriteAt(p, d.have); err != nil {
		return err
	}
	d.hash.Write(p) // never an error
	d.have += int64(len(p))
	if d.opts.Progress != nil {
		d.opts.Progress(d.have)
	}
	if d.have%d.opts.Chunk == 0 {
		return d.keep()
	}
	return nil
}
