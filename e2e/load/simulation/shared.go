package simulation

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// shared is a folder of the files of assignments, with the parsed lists of these, for many agents: a content.Files.
// Each of them would otherwise write the same files. Nothing in it is ever deleted.
type shared struct {
	dir string

	mu     sync.RWMutex
	placed map[digest.Digest]bool
	lists  map[digest.Digest][]bundle.Assignment // by the digest of their encoded forms
}

// newShared returns a shared in dir, an empty folder that exists. Stores move their files into it, so that it has to be on their
// file system.
func newShared(dir string) *shared {
	return &shared{dir: dir, placed: map[digest.Digest]bool{}, lists: map[digest.Digest][]bundle.Assignment{}}
}

func (s *shared) Folder(content digest.Digest) string { return filepath.Join(s.dir, content.Encoded()) }

// Has reports whether a store has placed the content, whose digest it has checked.
func (s *shared) Has(content digest.Digest) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.placed[content]
}

// Place moves the folder from, whose content was checked, to its place, unless another store was faster.
func (s *shared) Place(content digest.Digest, from string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placed[content] {
		return os.RemoveAll(from)
	}
	if err := os.Rename(from, s.Folder(content)); err != nil {
		return err
	}
	s.placed[content] = true
	return nil
}

// Parse returns the assignments of an encoded list, whose digest is d. The slice belongs to all stores: it is to be read only.
func (s *shared) Parse(data []byte, d digest.Digest) ([]bundle.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, ok := s.lists[d]; ok {
		return list, nil
	}
	list, err := bundle.ParseAssignments(data)
	if err == nil {
		s.lists[d] = list
	}
	return list, err
}

// Retain deletes nothing: other agents may need it.
func (s *shared) Retain(map[string]bool) error { return nil }
