package platform

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// ownSources reads the sources of workloads again, as they were loaded, for the folders beside the workloads.
type ownSources struct {
	places map[string]location
	mu     sync.Mutex // a git tree is read by one goroutine at a time
	git    *gitrepo.Reader
}

func newOwnSources(src Source, loaded *Loaded) *ownSources {
	o := &ownSources{places: loaded.places, git: gitrepo.NewReader(src.timeout(), src.Mirrors, loaded.Access)}
	o.git.Use(src.Clone)
	return o
}

func (o *ownSources) close() { _ = o.git.Close() } // removes temporary files only

// read calls do with the folder that a registration's workloads were read from; an empty name is the platform itself.
func (o *ownSources) read(ctx context.Context, registration string, do func(fs.FS) error) error {
	place, ok := o.places[registration]
	if !ok {
		return fmt.Errorf("the source of registration %q was not read", registration)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if place.folder != "" {
		root, err := os.OpenRoot(place.folder)
		if err != nil {
			return cause(err)
		}
		defer func() { _ = root.Close() }()
		files, err := fs.Sub(root.FS(), filepath.ToSlash(filepath.Clean(place.path)))
		if err != nil {
			return err
		}
		return do(files)
	}
	tree, err := o.git.Tree(ctx, place.repo)
	if err != nil {
		return err
	}
	path, err := gitrepo.CleanPath(place.path)
	if err != nil {
		return err
	}
	files, err := fs.Sub(tree.FS, path)
	if err != nil {
		return err
	}
	return do(files)
}
