package state

import (
	"encoding/binary"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// The format of bbolt's pages, all numbers in the machine's byte order: a header of id (8 bytes), flags (2), count (2) and overflow
// (4), and as many elements of 16 bytes. That of a branch page is pos (4), size of the key (4) and page (8); that of a leaf page is
// flags (4), pos (4), size of the key (4) and size of the value (4). A value that is a bucket begins with its root page (8) and a
// number (8). A root of 0 is a leaf page that follows in the value, and has no buckets.
const (
	pageHeader, pageElement, bucketHeader = 16, 16, 16
	branchPage, leafPage                  = 1, 2
	bucketElement                         = 1
	firstPage                             = 2 // those before are the two that say where the root is
)

// pageTree is the tree of the pages of a state file.
type pageTree struct {
	file *os.File
	size int64  // of a page
	end  uint64 // the first page that the file does not have
	seen map[uint64]bool
}

// checkPages returns an error if the pages of a transaction are no tree. bbolt follows its pages wherever they lead, so that it
// would never come to an end where damage has made one of them lead back.
func checkPages(tx *bbolt.Tx) error {
	f, err := os.Open(tx.DB().Path())
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(tx.DB().Info().PageSize)
	t := &pageTree{file: f, size: size, end: uint64(tx.Size() / size), seen: map[uint64]bool{}}
	return t.walk(uint64(tx.Cursor().Bucket().RootPage()))
}

// walk visits a page and all below it.
func (t *pageTree) walk(id uint64) error {
	header := make([]byte, pageHeader)
	if id < firstPage || id >= t.end {
		return fmt.Errorf("page %d does not exist", id)
	}
	if _, err := t.file.ReadAt(header, int64(id)*t.size); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	flags, count := binary.NativeEndian.Uint16(header[8:]), int(binary.NativeEndian.Uint16(header[10:]))
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if binary.NativeEndian.Uint64(header) != id || more >= t.end-id {
		return fmt.Errorf("page %d has the header of another page", id)
	}
	for n := id; n <= id+more; n++ {
		if t.seen[n] {
			return fmt.Errorf("page %d is at two places", n)
		}
		t.seen[n] = true
	}
	data := make([]byte, int64(more+1)*t.size)
	if _, err := t.file.ReadAt(data, int64(id)*t.size); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if pageHeader+count*pageElement > len(data) {
		return fmt.Errorf("page %d has more elements than room", id)
	}
	for i := range count {
		at := pageHeader + i*pageElement
		element := data[at : at+pageElement]
		child := uint64(0)
		switch flags {
		case branchPage:
			child = binary.NativeEndian.Uint64(element[8:])
		case leafPage:
			value := at + int(binary.NativeEndian.Uint32(element[4:])) + int(binary.NativeEndian.Uint32(element[8:]))
			if binary.NativeEndian.Uint32(element)&bucketElement == 0 {
				continue
			}
			if value+bucketHeader+pageHeader > len(data) {
				return fmt.Errorf("page %d: element %d is not on it", id, i)
			}
			if child = binary.NativeEndian.Uint64(data[value:]); child == 0 {
				if binary.NativeEndian.Uint16(data[value+bucketHeader+8:]) != leafPage {
					return fmt.Errorf("page %d: element %d is no bucket", id, i)
				}
				continue
			}
		default:
			return fmt.Errorf("page %d is of no known kind", id)
		}
		if err := t.walk(child); err != nil {
			return err
		}
	}
	return nil
}
