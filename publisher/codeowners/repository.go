package codeowners

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Repository is a platform's folder on this machine, in a work tree of git or alone.
type Repository struct {
	folder string
	top    string // of the work tree; folder if there is none
	below  string // folder below top, "." for the same
}

// Open looks for the work tree around folder. An empty folder stands for the work tree around the current one.
func Open(folder string) (*Repository, error) {
	if folder == "" {
		folder = cmp.Or(gitrepo.WorkTreeOf("."), ".")
	}
	if gitrepo.IsRemote(folder) {
		return nil, fmt.Errorf("%s is no folder of this machine", gitrepo.Redact(folder))
	}
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", folder)
	}
	if err != nil {
		return nil, err
	}
	r := &Repository{folder: folder, top: folder, below: "."}
	if top := gitrepo.WorkTreeOf(folder); top != "" {
		below, err := relative(top, folder)
		if err != nil {
			return nil, err
		}
		r.top, r.below = top, below
	}
	return r, nil
}

// relative returns the path of folder below top, through links.
func relative(top, folder string) (string, error) {
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", err
	}
	if real, err = filepath.Abs(real); err != nil {
		return "", err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return "", err
	}
	below, err := filepath.Rel(top, real)
	return filepath.ToSlash(below), err
}

// Derive derives the owners of the repository's files. Elsewhere is called if they have no Platform object; it may return
// nil.
func (r *Repository) Derive(elsewhere func() (*kinds.Platform, error)) (Owned, error) {
	root, err := os.OpenRoot(r.folder)
	if err != nil {
		return Owned{}, err
	}
	defer func() { _ = root.Close() }()
	owned, err := Derive(root.FS(), r.below, nil)
	if !errors.Is(err, ErrNoPlatform) {
		return owned, err
	}
	platform, err := elsewhere()
	if err != nil {
		return Owned{}, err
	}
	return Derive(root.FS(), r.below, platform)
}

// Existing returns the path of the file that the forge reads, or of the one that it looks for first.
func (r *Repository) Existing(format Format) string {
	places := format.Places()
	i := slices.IndexFunc(places, func(place string) bool {
		info, err := os.Stat(filepath.Join(r.top, filepath.FromSlash(place)))
		return err == nil && info.Mode().IsRegular()
	})
	return filepath.Join(r.top, filepath.FromSlash(places[max(0, i)]))
}

// Replaceable returns an error unless the file does not exist or is of this package.
func Replaceable(name string) error {
	text, err := read(name)
	if err == nil && text != nil && !bytes.HasPrefix(text, []byte(Header)) {
		err = fmt.Errorf("%s exists, and \"wherry codeowners\" has not written it", name)
	}
	return err
}

// maxDifferences bounds the lines of Compare.
const maxDifferences = 1000

// Compare returns the lines by which the file differs from want, each after a "- " or "+ "; none if it does not.
func Compare(name string, want []byte) ([]string, error) {
	got, err := read(name)
	if err != nil || bytes.Equal(got, want) {
		return nil, err
	}
	before, after := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	lines := slices.Concat(missingFrom(after, before, "- "), missingFrom(before, after, "+ "))
	if len(lines) == 0 {
		lines = []string{"  the same lines in another order"}
	}
	return lines[:min(len(lines), maxDifferences)], nil
}

// missingFrom returns the lines that others lacks.
func missingFrom(others, lines []string, sign string) (missing []string) {
	known := map[string]bool{}
	for _, l := range others {
		known[l] = true
	}
	for _, l := range lines {
		if !known[l] {
			missing = append(missing, sign+l)
		}
	}
	return missing
}

// read returns the content of a file, nil if there is none. More than a forge reads is not read either.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}
