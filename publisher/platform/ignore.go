package platform

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

const (
	// ignoreFile lists, in the form of a .gitignore, the files that Flux leaves out when it fetches for Kalypso.
	ignoreFile = ".sourceignore"
	// maxIgnoreBytes bounds such a file: each of its lines is compared with each name.
	maxIgnoreBytes = 16 << 10
	// environmentsFolder is the folder of Environment objects, which is read although platforms usually
	// ignore it.
	environmentsFolder = ".environments"
)

// ignoringFS hides what the .sourceignore files of a source leave out.
type ignoringFS struct {
	fs.FS
	patterns map[string][]gitignore.Pattern // of a folder: its parents' and its own
}

// Ignoring returns files without those that its .sourceignore files list, as platforms are read. It serves one goroutine.
func Ignoring(files fs.FS) fs.FS { return ignoring(files) }

func ignoring(files fs.FS) *ignoringFS {
	return &ignoringFS{FS: files, patterns: map[string][]gitignore.Pattern{}}
}

func (i *ignoringFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(i.FS, name)
	if err != nil {
		return nil, err
	}
	patterns, err := i.of(name)
	if err != nil || len(patterns) == 0 {
		return entries, err
	}
	matcher := gitignore.NewMatcher(patterns)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		elements := elementsOf(path.Join(name, e.Name()))
		return elements[0] != environmentsFolder && matcher.Match(elements, e.IsDir())
	}), nil
}

// of returns the patterns that hold in a folder.
func (i *ignoringFS) of(folder string) ([]gitignore.Pattern, error) {
	if known, ok := i.patterns[folder]; ok {
		return known, nil
	}
	var all []gitignore.Pattern
	if folder != "." {
		parents, err := i.of(path.Dir(folder))
		if err != nil {
			return nil, err
		}
		all = slices.Clone(parents)
	}
	own, err := i.read(folder)
	if err != nil {
		return nil, err
	}
	i.patterns[folder] = append(all, own...)
	return i.patterns[folder], nil
}

// read returns what a folder's own .sourceignore says, if there is one.
func (i *ignoringFS) read(folder string) ([]gitignore.Pattern, error) {
	name := path.Join(folder, ignoreFile)
	file, err := i.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxIgnoreBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxIgnoreBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", gitrepo.ErrTooLarge, name, maxIgnoreBytes)
	}
	var patterns []gitignore.Pattern
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, gitignore.ParsePattern(line, elementsOf(folder)))
		}
	}
	return patterns, nil
}

func elementsOf(name string) []string {
	if name == "." {
		return nil
	}
	return strings.Split(name, "/")
}
