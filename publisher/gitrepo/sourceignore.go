package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

const (
	// File is the name of such a file.
	File = ".sourceignore"
	// MaxBytes bounds such a file: each of its lines is compared with each name.
	MaxBytes = 16 << 10
)

// Ignore reads the .sourceignore files of FS, each once. It serves one goroutine. FS is required.
type Ignore struct {
	FS    fs.FS
	known map[string][]gitignore.Pattern // by folder: those of the folders above it, and its own
}

// In returns the patterns that hold in a folder, those of the folders above it first. It fails if a file cannot be read or
// is larger than [MaxBytes], which wraps [gitrepo.ErrTooLarge].
func (r *Ignore) In(folder string) ([]gitignore.Pattern, error) {
	if known, ok := r.known[folder]; ok {
		return known, nil
	}
	var all []gitignore.Pattern
	if folder != "." {
		above, err := r.In(path.Dir(folder))
		if err != nil {
			return nil, err
		}
		all = slices.Clone(above)
	}
	own, err := r.read(path.Join(folder, File))
	if err != nil {
		return nil, err
	}
	if r.known == nil {
		r.known = map[string][]gitignore.Pattern{}
	}
	r.known[folder] = append(all, ParseIgnore(own, folder)...)
	return r.known[folder], nil
}

// Asked lists the paths of all files that were looked for, whether they exist or not, sorted.
func (r *Ignore) Asked() []string {
	var all []string
	for _, folder := range slices.Sorted(maps.Keys(r.known)) {
		all = append(all, path.Join(folder, File))
	}
	return all
}

// read returns the text of a file, which is empty if there is none.
func (r *Ignore) read(name string) (string, error) {
	file, err := r.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, name, MaxBytes)
	}
	return string(data), err
}

// ParseIgnore returns the patterns of a text, which hold in a folder and below it.
func ParseIgnore(text, folder string) (patterns []gitignore.Pattern) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, gitignore.ParsePattern(line, Elements(folder)))
		}
	}
	return patterns
}

// Elements splits a path into the names that a pattern is matched with.
func Elements(name string) []string {
	if name == "." {
		return nil
	}
	return strings.Split(name, "/")
}
