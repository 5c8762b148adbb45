package serve

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	maxKnown       = 100_000 // blobs whose comparison is remembered
	comparedAtOnce = 1 << 20 // bytes of a blob that is compared beside others
)

// errDamaged means that a blob's content does not have its digest.
var errDamaged = errors.New("blob is damaged")

// blobs opens the blobs of a layout. It may be used by several goroutines.
type blobs struct {
	dir string
	log *slog.Logger

	// comparing is held while a large blob is compared with its digest: one at a time, so that requests for many of them
	// do not take the processor from the agent.
	comparing sync.Mutex

	mu      sync.Mutex
	known   map[digest.Digest]compared
	damaged []digest.Digest // since takeDamaged
}

// compared is a file that was compared with its digest.
type compared struct {
	info fs.FileInfo
	same bool
}

// open opens a blob that has its digest. The caller closes it. The error wraps fs.ErrNotExist for one that is missing, or
// not a file, and is errDamaged for one that is damaged.
func (b *blobs) open(d digest.Digest) (*os.File, fs.FileInfo, error) {
	f, info, err := b.openFile(d)
	if err != nil {
		return nil, nil, err
	}
	if err := b.compare(d, f, info); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openFile opens a blob without comparing it. No link in the layout leads out of it.
func (b *blobs) openFile(d digest.Digest) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	name := path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() { // a pipe would block
		return nil, nil, errors.Join(fs.ErrNotExist, err)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// compare returns errDamaged unless the file has the digest. It does not read a file again until the file changes.
func (b *blobs) compare(d digest.Digest, f *os.File, info fs.FileInfo) error {
	same, known := b.lookUp(d, info)
	if !known {
		if info.Size() > comparedAtOnce {
			b.comparing.Lock()
			defer b.comparing.Unlock()
		}
		if same, known = b.lookUp(d, info); !known {
			verifier := d.Verifier()
			if _, err := io.Copy(verifier, f); err != nil {
				return err
			}
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			same = verifier.Verified()
			b.note(d, info, same)
		}
	}
	if !same {
		return errDamaged
	}
	return nil
}

func (b *blobs) lookUp(d digest.Digest, info fs.FileInfo) (same, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.known[d]
	if !ok || !os.SameFile(c.info, info) || c.info.Size() != info.Size() || !c.info.ModTime().Equal(info.ModTime()) {
		return false, false
	}
	return c.same, true
}

func (b *blobs) note(d digest.Digest, info fs.FileInfo, same bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= maxKnown {
		clear(b.known)
	}
	b.known[d] = compared{info, same}
	if !same {
		b.damaged = append(b.damaged, d)
		b.log.Warn("a blob of the store is damaged, and is not served", "digest", d)
	}
}

// here reports whether a blob is on the disk with this size, and was not found to be damaged.
func (b *blobs) here(desc ocispec.Descriptor) bool {
	f, info, err := b.openFile(desc.Digest)
	if err != nil {
		return false
	}
	defer f.Close()
	same, known := b.lookUp(desc.Digest, info)
	return info.Size() == desc.Size && (same || !known)
}

func (b *blobs) takeDamaged() []digest.Digest {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.damaged
	b.damaged = nil
	return all
}
