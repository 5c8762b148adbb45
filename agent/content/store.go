package content

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// The store has a release's tree in one of two forms: the full layer, or the uncompressed tar, under its own
// digest, where a delta has made it.

// forms describes the two, the tar first. A layer that is no gzip is no other form of the tar.
func forms(r *state.Release) []ocispec.Descriptor {
	c := r.Release.Content
	if c.DiffID == r.Tree.Digest {
		return []ocispec.Descriptor{r.Tree}
	}
	return []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: c.DiffID, Size: c.Size}, r.Tree}
}

// blob is the path of a blob. The digest was validated.
func (c *Store) blob(d digest.Digest) string {
	return filepath.Join(c.db.Dir(), state.StoreDir, ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// unpacking is Unpacker's method for one form of a tree.
type unpacking func(*bundle.Unpacker, io.Reader, bundle.Content) error

// open opens the tree of r in the form that is here, and returns what unpacks it.
func (c *Store) open(ctx context.Context, r *state.Release) (io.ReadCloser, unpacking, error) {
	repo, err := c.repository(r.Release.Stream())
	if err != nil {
		return nil, nil, err
	}
	var tree io.ReadCloser
	for _, form := range forms(r) {
		if tree, err = repo.Fetch(ctx, form); err == nil && form.Digest != r.Tree.Digest {
			return tree, (*bundle.Unpacker).Tar, nil
		}
		if err == nil {
			break
		}
	}
	return tree, (*bundle.Unpacker).Gzip, err
}

// intact reports whether a tree is here in the form in which open finds it, and has its digest.
func (c *Store) intact(ctx context.Context, r *state.Release) bool {
	repo, err := c.repository(r.Release.Stream())
	if err != nil {
		return false
	}
	for _, form := range forms(r) {
		f, err := repo.Fetch(ctx, form)
		if err != nil {
			continue
		}
		defer f.Close()
		verifier := form.Digest.Verifier()
		_, err = io.Copy(verifier, f)
		return err == nil && verifier.Verified()
	}
	return false
}

// discard deletes the stored tree of r in both forms, so that it is fetched again.
func (c *Store) discard(r *state.Release) error {
	return errors.Join(c.remove(r.Tree.Digest), c.remove(r.Release.Content.DiffID))
}

// remove deletes a blob, if it is there.
func (c *Store) remove(d digest.Digest) error {
	if err := os.Remove(c.blob(d)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// base returns the tree with that digest, if one of releases has it, as the base of a delta. It does not check the
// content: a delta on a damaged base fails, since the result does not have the signed digest.
func (c *Store) base(diffID digest.Digest, releases ...*state.Release) (delta.Tree, bool) {
	for _, r := range releases {
		if r == nil || r.Release.Content.DiffID != diffID {
			continue
		}
		for _, form := range forms(r) {
			info, err := os.Stat(c.blob(form.Digest))
			if err == nil && info.Size() == form.Size {
				return delta.Tree{Path: c.blob(form.Digest), Gzip: form.Digest == r.Tree.Digest, Size: r.Release.Content.Size}, true
			}
		}
	}
	return delta.Tree{}, false
}

// made returns the file into which a delta's process writes the tree. The leftover of a killed process is overwritten, or
// removed with the leftovers of other writers.
func (c *Store) made(diffID digest.Digest) string {
	return filepath.Join(c.db.Dir(), state.StoreDir, "ingest", diffID.Encoded()+".tar")
}

// keepMade renames a file with this digest, which is synced to disk, to a blob.
func (c *Store) keepMade(file string, d digest.Digest) error {
	if err := os.Rename(file, c.blob(d)); err != nil {
		return err
	}
	return diskfile.SyncDir(filepath.Dir(c.blob(d)))
}

// Has reports whether the tree of r is in the layout, going by its size.
func (c *Store) Has(r *state.Release) bool {
	for _, form := range forms(r) {
		if info, err := os.Stat(c.blob(form.Digest)); err == nil && info.Size() == form.Size {
			return true
		}
	}
	return false
}
