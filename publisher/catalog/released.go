package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// Released is a published bundle and its files, which Close removes.
type Released struct {
	Reference string
	Digest    digest.Digest
	// Keys names the keys that signed it; empty where nobody asked.
	Keys    []string
	Release bundle.Release
	// Message is that of the publication; empty if there is none.
	Message     string
	Assignments []bundle.Assignment
	// Sites are the site values; zero if the cluster type declares none.
	Sites diff.Sites
	tree  *published.Tree
}

// OpenReleased fetches the bundle that ref names, judged by signers. An old or expired one is as good as the newest. The caller
// closes it.
func OpenReleased(ctx context.Context, ref oci.Reference, signers published.Signers, opts oci.Options) (*Released, error) {
	at, desc, err := published.Resolve(ctx, ref, opts, signers)
	if err != nil {
		return nil, err
	}
	v, _, err := at.ReadAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	r := &Released{Reference: ref.String(), Digest: desc.Digest, Keys: v.KeyIDs, Release: v.Release, Message: bundle.MessageOf(v.Manifest)}
	if r.tree, err = at.Tree(ctx, v); err != nil {
		return nil, err
	}
	r.Assignments = r.tree.Assignments
	if r.Sites.Document, r.Sites.Rows, err = r.tree.Sites(); err != nil {
		return nil, errors.Join(err, r.tree.Close())
	}
	return r, nil
}

// Name is the release's short name, such as "12 (68846e7d)".
func (r *Released) Name() string { return bundle.ReleaseName(r.Release.Number, r.Digest) }

// Tree returns the release's assignments and files, for a comparison.
func (r *Released) Tree() *diff.Tree {
	return &diff.Tree{Listed: r.Assignments, Sources: r.tree.Sources, Sites: r.Sites, Read: func(a bundle.Assignment) (map[string][]byte, error) {
		list, err := r.tree.Files(a)
		files := map[string][]byte{}
		for _, f := range list {
			files[f.Path] = f.Data
		}
		return files, err
	}}
}

// File is a file of a release.
type File struct {
	// Path is that below the root of the tree, which has a folder for each assignment.
	Path       string `json:"path"`
	Size       int64  `json:"size"` // in bytes
	Executable bool   `json:"executable,omitempty"`
}

// Files lists the files at or below a path of the tree, sorted; "." stands for all of them. The error wraps fs.ErrNotExist
// if there is no such path.
func (r *Released) Files(below string) ([]File, error) {
	all, err := r.tree.List()
	if err != nil {
		return nil, err
	}
	files := []File{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if below == "." || name == below || strings.HasPrefix(name, below+"/") {
			files = append(files, File{name, all[name].Size, all[name].Executable})
		}
	}
	if len(files) == 0 && below != "." {
		return nil, fmt.Errorf("%s: %w", below, fs.ErrNotExist)
	}
	return files, nil
}

// ReadFile returns the content of a file of the tree, as it was verified. The error wraps fs.ErrNotExist if there is none.
func (r *Released) ReadFile(name string) ([]byte, error) { return r.tree.ReadFile(name) }

// Close removes the files.
func (r *Released) Close() error { return r.tree.Close() }

// Assignment returns the line of an assignment; nil where the bundle has none of that name.
func (r *Released) Assignment(name string) *bundle.Assignment {
	for i := range r.Assignments {
		if r.Assignments[i].Name == name {
			return &r.Assignments[i]
		}
	}
	return nil
}

// ReleasedValue is a configuration value in a bundle. A value that looks like a secret is masked.
type ReleasedValue struct {
	// Key is the configuration key, with the path below it where the value is structured.
	Key    string `json:"key"`
	Value  string `json:"value"`
	Secret bool   `json:"secret,omitempty"`

	top string // the configuration key without the path below it
}

// Config lists the configuration values of an assignment, as they were rendered.
func (r *Released) Config(assignment string) ([]ReleasedValue, error) {
	line := r.Assignment(assignment)
	if line == nil {
		return nil, nil
	}
	files, err := r.tree.Files(*line)
	if err != nil {
		return nil, err
	}
	var all []ReleasedValue
	for _, f := range files {
		if !strings.HasPrefix(f.Path, diff.ConfigFile) || strings.Contains(f.Path, "/") {
			continue
		}
		for _, v := range diff.ConfigValues(f.Path, f.Data) {
			all = append(all, ReleasedValue{Key: v.Key, Value: v.Text, Secret: v.Secret, top: v.Top})
		}
	}
	return all, nil
}
