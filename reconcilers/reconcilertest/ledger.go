package reconcilertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Ledger is a ledger in memory, for tests of reconcilers that need one. Its zero value is empty.
type Ledger struct {
	mu      sync.Mutex
	entries map[string][]byte
}

// Load returns the entry of an assignment.
func (l *Ledger) Load(assignment string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[assignment]), nil
}

// Save keeps the entry of an assignment.
func (l *Ledger) Save(assignment string, entry []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[string][]byte{}
	}
	l.entries[assignment] = slices.Clone(entry)
	return nil
}

// DiskLedger is a ledger in a folder that exists, for several processes that take turns. A process that is
// killed leaves the old entry or the new one.
type DiskLedger string

// Load returns the entry of an assignment.
func (l DiskLedger) Load(assignment string) ([]byte, error) {
	entry, err := os.ReadFile(filepath.Join(string(l), assignment))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entry, err
}

// Save keeps the entry of an assignment.
func (l DiskLedger) Save(assignment string, entry []byte) error {
	path := filepath.Join(string(l), assignment)
	if len(entry) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.WriteFile(path+".part", entry, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
