package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
)

// prune deletes the blobs, refs and trees of releases that are not among keep. Only those of unpacked have
// a tree: that of others is unpacked again from its blob when it is needed.
func (c *contents) prune(unpacked, keep []*release) error {
	used, trees, folders := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range keep {
		if r != nil {
			used[r.digest().Encoded()], used[r.Tree.Digest.Encoded()], used[r.Release.Content.DiffID.Encoded()] = true, true, true
		}
	}
	for _, r := range unpacked {
		if r != nil {
			trees[r.Release.Content.DiffID.Encoded()] = true
			list, err := c.assignments(r)
			if err != nil && !errors.Is(err, errNotStaged) {
				return err
			}
			for _, a := range list {
				folders[a.Content.Encoded()] = true
			}
		}
	}
	err := errors.Join(c.keepFolders(treesDir, trees), c.keepFolders(contentsDir, folders))
	maps.DeleteFunc(c.checked, func(content digest.Digest, _ bool) bool { return !folders[content.Encoded()] })
	// The index first, so that a crash leaves blobs too many and never a ref without its content.
	if err = errors.Join(err, c.forgetTrees(trees), c.index(keep...), c.pruneBlobs(used)); err != nil {
		return local("clean up: %w", err)
	}
	return nil
}

// keepFolders deletes what is in a folder of the state folder and not among keep.
func (c *contents) keepFolders(name string, keep map[string]bool) error {
	dir := filepath.Join(c.state.dir, name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			c.state.at("prune: a folder is gone")
		}
	}
	return err
}

func (c *contents) forgetTrees(keep map[string]bool) error {
	return c.state.updateIf(func(tx *bbolt.Tx) (bool, error) {
		b, gone := tx.Bucket([]byte(bucketTrees)), []string{}
		err := b.ForEach(func(k, _ []byte) error {
			if !keep[string(k)] {
				gone = append(gone, string(k))
			}
			return nil
		})
		for _, name := range gone {
			err = errors.Join(err, drop(tx, bucketTrees, name))
		}
		return len(gone) > 0, err
	})
}

// pruneBlobs deletes all blobs but those in used, and the release documents that manifests among them name.
func (c *contents) pruneBlobs(used map[string]bool) error {
	root, err := os.OpenRoot(filepath.Join(c.state.dir, storeDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	var index ocispec.Index
	if err := readJSON(root, ocispec.ImageIndexFile, &index); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // killed before the first release was stored
		}
		return err
	}
	for _, d := range index.Manifests {
		var m ocispec.Manifest
		if err := readJSON(root, path.Join(ocispec.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded()), &m); err == nil {
			used[m.Config.Digest.Encoded()] = true
		}
	}
	err = fs.WalkDir(root.FS(), ocispec.ImageBlobsDir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || used[d.Name()] {
			return err
		}
		err = root.Remove(p)
		c.state.at("prune: a blob is gone")
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func readJSON(root *os.Root, name string, into any) error {
	data, err := fs.ReadFile(root.FS(), name)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// replaceJSON writes v under name, whole or not at all.
func replaceJSON(root *os.Root, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	temp := name + ".new"
	f, err := root.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return syncDir(root.Name())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
