package content

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Shared is a folder of the files of assignments, with the parsed lists of these, for several stores of one process: for many agents that a simulation runs on
// one machine, which would otherwise each write the same files. Nothing in it is ever deleted. Make it with NewShared.
type Shared struct {
	dir string

	mu     sync.RWMutex
	placed map[digest.Digest]bool
	lists  map[digest.Digest][]bundle.Assignment // by the digest of their encoded forms
}

// NewShared returns a Shared in dir, an empty folder that exists. Stores move their files into it, so that it has to be on their
// file system.
func NewShared(dir string) *Shared {
	return &Shared{dir: dir, placed: map[digest.Digest]bool{}, lists: map[digest.Digest][]bundle.Assignment{}}
}

func (s *Shared) folder(content digest.Digest) string { return filepath.Join(s.dir, content.Encoded()) }

// has reports whether a store has placed the content, whose digest it has checked.
func (s *Shared) has(content digest.Digest) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.placed[content]
}

// place moves the folder from, whose content was checked, to its place, unless another store was faster.
func (s *Shared) place(content digest.Digest, from string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placed[content] {
		return os.RemoveAll(from)
	}
	if err := os.Rename(from, s.folder(content)); err != nil {
		return err
	}
	s.placed[content] = true
	return nil
}

// parse returns the assignments of an encoded list, whose digest is d. The slice belongs to all stores: it is to be read only.
func (s *Shared) parse(data []byte, d digest.Digest) ([]bundle.Assignment, error) {
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
