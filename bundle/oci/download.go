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

// DownloadOptions are how a Download bears with a link. The zero value is right for most.
type DownloadOptions struct {
	// Chunk is how many bytes are on the disk at a time, and so what a crash or a power cut may cost at most.
	// Zero means 1 MiB.
	Chunk int64
	// Window and MinProgress say what a stall is: fewer than MinProgress bytes in so much time of waiting for
	// them. Zero means a minute and 256 bytes.
	Window      time.Duration
	MinProgress int64
	// Retries is how often in a row a request is sent again that has brought no progress. Zero means 5, less
	// than zero none.
	Retries int
	// Wait and MaxWait bound the pauses between them, which grow with each, and of which chance takes a part.
	// Zero means half a second and half a minute.
	Wait, MaxWait time.Duration
	// Throttle, if set, is called after each n bytes and returns when more may come: a bandwidth cap. The
	// time in it is no stall. It returns the context's error when that ends.
	Throttle func(ctx context.Context, n int) error
	// Progress, if set, is called with the bytes that are there, of blob.Size.
	Progress func(have int64)
	// Moment is told of each step.
	Moment Moment
}

func (o DownloadOptions) orDefault() DownloadOptions {
	o.Chunk = cmp.Or(o.Chunk, 1<<20)
	o.Window, o.MinProgress = cmp.Or(o.Window, stallTime), cmp.Or(o.MinProgress, minProgress)
	o.Retries = cmp.Or(o.Retries, 5)
	o.Wait, o.MaxWait = cmp.Or(o.Wait, 500*time.Millisecond), cmp.Or(o.MaxWait, 30*time.Second)
	return o
}

// Download brings a blob of a registry into the layout, over cuts, stalls and restarts: what has arrived is kept
// beside the blobs until the rest has, by whichever call. It is content by its digest only when it has that
// digest; an ETag or a registry's word decides nothing.
//
// The error wraps ErrUnreachable where trying again can help, as after Retries without progress,
// content.ErrMismatchedDigest where the registry has something else, and an *fs.PathError where the disk is at
// fault, which is not tried again. What is there already is not fetched. Downloads into one layout take turns, in
// whatever processes.
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
		d := &download{repo: repo, blob: blob, opts: opts.orDefault(), root: root, open: open, room: RoomIn}
		return d.run(ctx)
	})
	if err != nil {
		return fmt.Errorf("download %s: %w", repo.ref(blob.Digest.String()), err)
	}
	return nil
}

// copy is for content that is on a disk already.
func (l *Layout) copy(ctx context.Context, from Target, blob ocispec.Descriptor) error {
	r, err := from.Fetch(ctx, blob)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := l.push(blob, foreign{r}); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return err
	}
	return nil
}

// foreign gives the errors of a place that content comes from their kind, so that they are not taken for this one's.
type foreign struct{ io.Reader }

func (f foreign) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return n, err
}

// download is one call for a blob that is not there.
type download struct {
	repo *remoteRepository
	blob ocispec.Descriptor
	opts DownloadOptions
	root *os.Root
	open openFunc
	room func(dir string) (int64, bool)

	part    part
	hash    hash.Hash
	have    int64 // bytes in the part, of which
	synced  int64 // so many are on the disk
	resumed bool  // the part is of more than one answer
	whole   bool  // no parts are asked for: answers begin with the first byte
}

func (d *download) run(ctx context.Context) (err error) {
	defer func() {
		if d.part != nil {
			err = errors.Join(err, d.keep(), d.part.Close())
		}
	}()
	if err := d.begin(); err != nil {
		return err
	}
	if err := d.hasRoom(); err != nil {
		return err
	}
	for again := false; ; again = true {
		for d.have < d.blob.Size {
			if err := d.bring(ctx); err != nil {
				return err
			}
		}
		if digest.NewDigest(d.blob.Digest.Algorithm(), d.hash) == d.blob.Digest {
			return d.finish()
		}
		pieced := d.resumed
		if err := d.restart(); err != nil || !pieced || again {
			return errors.Join(content.ErrMismatchedDigest, err)
		}
		// The pieces did not belong together, or the disk has damaged one: all of it once more may be right.
		d.resumed, d.whole = false, false
	}
}

// bring sends requests until one has brought progress, or none does any more.
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
			return kept
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

// pauseBefore is the time before a try: full jitter, so that a fleet which was cut off at once does not come
// back at once.
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

// take appends what body yields, from the byte at which it starts.
func (d *download) take(ctx context.Context, body io.Reader, start, end int64) error {
	buffer := make([]byte, 32<<10)
	for at := start; at < end; {
		n, err := body.Read(buffer[:min(int64(len(buffer)), end-at, d.untilSync(at))])
		if at += int64(n); at > d.have {
			if err := d.append(buffer[int64(n)-(at-d.have) : n]); err != nil {
				return err
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

// untilSync ends a read where a chunk ends.
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
