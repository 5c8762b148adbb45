package gitrepo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/wherry-dev/wherry/publisher/meter"
)

// Bounds on the objects of a pack, as they are once unpacked and once deltas are applied.
const (
	maxPackObjects   = 1_000_000
	maxObjectBytes   = 128 << 20
	maxUnpackedBytes = 4 << 30  // of all objects
	maxMetadataBytes = 16 << 20 // of a commit, tag or tree that is read
)

// receive stores a pack in a store that has not been read yet. The pack is on the disk, and the size of each object known, before
// any delta is applied. It ends with ctx.
func receive(ctx context.Context, store *filesystem.Storage, pack io.Reader) error {
	folder := filepath.Join(store.Filesystem().Root(), "objects", "pack")
	file, err := os.CreateTemp(folder, "received-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // unless it has another name by then
	defer file.Close()
	if err := checkPack(io.TeeReader(bound{ctx, pack}, meter.Writer(ctx, file))); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	checksum, index, err := indexOf(boundFile{bound{ctx, file}, file})
	if err != nil {
		return err
	}
	if err := meter.From(ctx).Disk(int64(len(index))); err != nil {
		return err
	}
	name := filepath.Join(folder, "pack-"+checksum.String())
	if err := os.WriteFile(name+".idx", index, 0o600); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name+".pack")
}

// indexOf applies the deltas of a pack and returns its checksum and its index.
func indexOf(pack io.ReadSeeker) (checksum plumbing.Hash, index []byte, err error) {
	var objects idxfile.Writer
	parser, err := packfile.NewParser(packfile.NewScanner(pack), &objects)
	if err != nil {
		return checksum, nil, err
	}
	if checksum, err = parser.Parse(); err != nil {
		return checksum, nil, err
	}
	made, err := objects.Index()
	if err != nil {
		return checksum, nil, err
	}
	var data bytes.Buffer
	_, err = idxfile.NewEncoder(&data).Encode(made)
	return checksum, data.Bytes(), err
}

// bound is a reader that ends with a context. Deltas are applied to what is read again, so that they end too.
type bound struct {
	ctx context.Context // of the call that reads
	io.Reader
}

func (b bound) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.Reader.Read(p)
}

type boundFile struct {
	bound
	io.Seeker
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
