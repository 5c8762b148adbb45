package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

const (
	storeDir   = "store" // an OCI layout with the blobs of the releases in use, see store.go
	treesDir   = "trees" // their trees, unpacked, by the encoded diffID
	stagingDir = ".staging"
)

// contents is what the agent has on disk of the releases in use. Blobs are checked and synced before
// they get their name. Trees are not synced: a tree is compared with digests when a process uses it for
// the first time, and unpacked again from its layer where a power cut, or a person, has changed it.
type contents struct {
	state  *State
	layout *oci.Layout
	// checked names the trees that this process has compared.
	checked map[digest.Digest]bool
	// download is the layout's, but for tests of a disk that fails.
	download func(context.Context, oci.Target, ocispec.Descriptor, oci.DownloadOptions) error
}

func newContents(s *State) *contents {
	layout := oci.NewLayout(filepath.Join(s.dir, storeDir))
	return &contents{state: s, layout: layout, checked: map[digest.Digest]bool{}, download: layout.Download}
}

// repository is where the store keeps the releases of a stream.
func (c *contents) repository(s bundle.Stream) (oci.Target, error) {
	return c.layout.Repository(s.Repository())
}

// tree is the folder of the unpacked tree.
func (c *contents) tree(diffID digest.Digest) string {
	return filepath.Join(c.state.dir, treesDir, diffID.Encoded())
}

// errNotStaged means that the tree is not on disk as it was unpacked.
var errNotStaged = errors.New("tree is not staged")

// assignments returns the list of a tree that was staged. An empty list orders the removal of all, so the
// list has to be the one that the state file knows of the tree, and the files the listed ones.
func (c *contents) assignments(r *release) ([]bundle.Assignment, error) {
	id := r.Release.Content.DiffID
	var known digest.Digest
	err := c.state.view(func(tx *bbolt.Tx) (err error) {
		known, err = load[digest.Digest](tx, bucketTrees, id.Encoded())
		return err
	})
	if err != nil {
		return nil, local("read state: %w", err)
	}
	if known == "" {
		return nil, errNotStaged
	}
	root, err := os.OpenRoot(c.tree(id))
	if err != nil {
		return nil, errors.Join(errNotStaged, err)
	}
	defer root.Close()
	list, d, err := readList(root)
	if err != nil || d != known {
		return nil, errors.Join(errNotStaged, err)
	}
	if !c.checked[id] {
		if err := checkFiles(root, list); err != nil {
			return nil, errors.Join(errNotStaged, err)
		}
		c.checked[id] = true
	}
	return list, nil
}

// readList reads the list of assignments. A tree without one has none.
func readList(root *os.Root) ([]bundle.Assignment, digest.Digest, error) {
	switch info, err := root.Stat(bundle.AssignmentsPath); {
	case err != nil: // reading it says so
	case !info.Mode().IsRegular():
		return nil, "", &bundle.Refusal{Reason: bundle.BadContent, Message: bundle.AssignmentsPath + " is no file"}
	case info.Size() > bundle.MaxListBytes:
		return nil, "", &bundle.Refusal{Reason: bundle.TooLarge, Message: fmt.Sprintf("%s has %d bytes, at most %d are allowed", bundle.AssignmentsPath, info.Size(), bundle.MaxListBytes)}
	}
	data, err := fs.ReadFile(root.FS(), bundle.AssignmentsPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	list, err := bundle.ParseAssignments(data)
	return list, digest.FromBytes(data), err
}

// checkFiles compares each assignment's files with the digest that the list gives them.
func checkFiles(root *os.Root, list []bundle.Assignment) error {
	for _, a := range list {
		d, err := bundle.ContentDigestOf(root.FS(), a.Name)
		if err != nil {
			return err
		}
		if d != a.Content {
			return &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("files of assignment %s have digest %s, listed is %s", a.Name, d, a.Content)}
		}
	}
	return nil
}

// stage unpacks the tree of r from the store and checks it. The folder gets its name when it is whole,
// and counts once the state file knows it.
func (c *contents) stage(ctx context.Context, r *release) (err error) {
	trees := filepath.Join(c.state.dir, treesDir)
	temp, final := filepath.Join(trees, stagingDir), c.tree(r.Release.Content.DiffID)
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o700)); err != nil {
		return local("stage: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	list, err := c.unpack(ctx, r, temp)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(final), os.Rename(temp, final)); err != nil {
		return local("stage: %w", err)
	}
	c.checked[r.Release.Content.DiffID] = true
	return c.state.update(func(tx *bbolt.Tx) error {
		return save(tx, bucketTrees, r.Release.Content.DiffID.Encoded(), list)
	})
}

// unpack returns the digest of the list. What is not the content's fault is this machine's.
func (c *contents) unpack(ctx context.Context, r *release, dir string) (digest.Digest, error) {
	list, err := c.unpackTo(ctx, r, dir)
	if err != nil && !errors.As(err, new(*bundle.Refusal)) {
		err = local("stage: %w", err)
	}
	return list, err
}

func (c *contents) unpackTo(ctx context.Context, r *release, dir string) (digest.Digest, error) {
	tree, unpack, err := c.open(ctx, r)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := unpack(tree, root, r.Release.Content); err != nil {
		return "", err
	}
	list, d, err := readList(root)
	if err != nil {
		return "", err
	}
	for _, a := range list { // one without files has no folder in the tree
		if err := root.MkdirAll(a.Name, 0o755); err != nil {
			return "", err
		}
	}
	return d, checkFiles(root, list)
}
