package gitrepo

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/wherry-dev/wherry/publisher/meter"
)

// Bounds on the objects of a pack, as they are once unpacked and once deltas are applied.
const (
	maxPackObjects   = 1_000_000
	maxObjectBytes   = 128 << 20
	maxUnpackedBytes = 4 << 30  // of all objects
	maxMetadataBytes = 16 << 20 // of a commit, tag or tree that is read
)

// receive stores the objects of a pack. The pack is on the disk, and the size of each object known, before any delta is
// applied.
func receive(ctx context.Context, store storer.Storer, pack io.Reader) error {
	file, err := os.CreateTemp("", "wherry-pack-")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	if err := checkPack(io.TeeReader(pack, meter.Writer(ctx, file))); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return packfile.UpdateObjectStorage(store, file)
}

// checkPack reads a pack to its end, and returns an error for one beyond the bounds, or with an object that is there twice: all
// deltas of an object would be applied to each of its copies.
func checkPack(pack io.Reader) error {
	scanner := packfile.NewScanner(pack)
	_, count, err := scanner.Header()
	if err != nil {
		return err
	}
	if count > maxPackObjects {
		return fmt.Errorf("%w: a pack of %d objects, at most %d are read", ErrTooLarge, count, maxPackObjects)
	}
	seen := map[plumbing.Hash]bool{}
	left := int64(maxUnpackedBytes)
	for range count {
		header, err := scanner.NextObjectHeader()
		if err != nil {
			return err
		}
		size := header.Length
		if err := checkObjectSize(size); err != nil { // also of a delta itself
			return err
		}
		if header.Type.IsDelta() {
			var begin prefix
			if _, _, err := scanner.NextObject(&begin); err != nil {
				return err
			}
			if size, err = begin.target(); err != nil {
				return err
			}
			if err := checkObjectSize(size); err != nil {
				return err
			}
		} else {
			hasher := plumbing.NewHasher(header.Type, size)
			if _, _, err := scanner.NextObject(hasher); err != nil {
				return err
			}
			hash := hasher.Sum()
			if seen[hash] {
				return fmt.Errorf("%w: object %s is there twice", packfile.ErrMalformedPackFile, hash)
			}
			seen[hash] = true
		}
		if left -= size + header.Length; left < 0 {
			return fmt.Errorf("%w: the objects of the pack have more than %d bytes", ErrTooLarge, int64(maxUnpackedBytes))
		}
	}
	_, err = io.Copy(io.Discard, pack)
	return err
}

func checkObjectSize(size int64) error {
	if size < 0 || size > maxObjectBytes {
		return fmt.Errorf("%w: an object of %d bytes, at most %d are read", ErrTooLarge, uint64(size), maxObjectBytes)
	}
	return nil
}

// prefix keeps the first bytes that are written to it.
type prefix struct {
	data [2 * binary.MaxVarintLen64]byte
	n    int
}

func (p *prefix) Write(data []byte) (int, error) {
	p.n += copy(p.data[p.n:], data)
	return len(data), nil
}

// target returns the size of the object that a delta makes, which stands after that of its base.
func (p *prefix) target() (int64, error) {
	_, n := binary.Uvarint(p.data[:p.n])
	size, m := binary.Uvarint(p.data[max(n, 0):p.n])
	if n <= 0 || m <= 0 {
		return 0, fmt.Errorf("%w: a delta without sizes", packfile.ErrMalformedPackFile)
	}
	return int64(size), nil
}

// boundedObjects refuses large commits, tags and trees before they are parsed.
type boundedObjects struct{ storer.EncodedObjectStorer }

func (b boundedObjects) EncodedObject(kind plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	if kind != plumbing.BlobObject {
		if size, err := b.EncodedObjectSize(hash); err == nil && size > maxMetadataBytes {
			return nil, fmt.Errorf("%w: the %s %s has %d bytes, at most %d are read", ErrTooLarge, kind, hash, size, maxMetadataBytes)
		}
	}
	return b.EncodedObjectStorer.EncodedObject(kind, hash)
}
