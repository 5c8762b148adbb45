package content

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// Prune deletes the blobs, refs and trees of releases that are not among keep. Only those of unpacked have
// a tree: that of others is unpacked again from its blob when it is needed.
func (c *Store) Prune(unpacked, keep []*state.Release) error {
	trees, folders := map[string]bool{}, map[string]bool{}
	for _, r := range unpacked {
		if r != nil {
			trees[r.Release.Content.DiffID.Encoded()] = true
			list, err := c.Assignments(r)
			if err != nil && !errors.Is(err, ErrNotStaged) {
				return err
			}
			for _, a := range list {
				folders[a.Content.Encoded()] = true
			}
		}
	}
	err := errors.Join(retainFolders(c.db, TreesDir, trees), c.opts.Files.Retain(folders))
	retained, err1 := c.retained(keep)
	if err1 == nil {
		err1 = c.layout.Retain(retained, c.db.At)
	}
	if err = errors.Join(err, c.forgetTrees(trees), c.forgetSignatures(keep), err1); err != nil {
		return state.Local("clean up: %w", err)
	}
	return nil
}

func (c *Store) forgetTrees(keep map[string]bool) error {
	return c.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		b, gone := tx.Bucket([]byte(BucketTrees)), []string{}
		err := b.ForEach(func(k, _ []byte) error {
			if id, _, _ := strings.Cut(string(k), "/"); !keep[id] {
				gone = append(gone, string(k))
			}
			return nil
		})
		for _, name := range gone {
			err = errors.Join(err, state.Drop(tx, BucketTrees, name))
		}
		return len(gone) > 0, err
	})
}

// forgetSignatures forgets the signatures of releases that are not kept.
func (c *Store) forgetSignatures(keep []*state.Release) error {
	return c.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		b, gone := tx.Bucket([]byte(BucketSignatures)), []string{}
		if b == nil { // none was ever kept
			return false, nil
		}
		err := b.ForEach(func(k, _ []byte) error {
			if !slices.ContainsFunc(keep, func(r *state.Release) bool { return r != nil && r.Digest().Encoded() == string(k) }) {
				gone = append(gone, string(k))
			}
			return nil
		})
		for _, name := range gone {
			err = errors.Join(err, state.Drop(tx, BucketSignatures, name))
		}
		return len(gone) > 0, err
	})
}

func readJSON(root *os.Root, name string, into any) error {
	data, err := fs.ReadFile(root.FS(), name)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
