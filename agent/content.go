package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

const (
	storeDir   = "store" // an OCI layout with the blobs of the releases in use
	treesDir   = "trees" // their trees, unpacked, by the encoded diffID
	stagingDir = ".staging"
)

// contents is what the agent has on disk of the releases in use. Blobs are checked before they get their
// name, trees before they get theirs.
type contents struct {
	dir    string
	layout *oci.Layout
	// checked names the trees that this process has compared with their assignments' digests.
	checked map[digest.Digest]bool
}

func newContents(dir string) *contents {
	return &contents{dir: dir, layout: oci.NewLayout(filepath.Join(dir, storeDir)), checked: map[digest.Digest]bool{}}
}

// repository is where the store keeps the releases of a stream.
func (c *contents) repository(s bundle.Stream) (oci.Target, error) {
	return c.layout.Repository(s.Repository())
}

// tree is the folder of the unpacked tree.
func (c *contents) tree(diffID digest.Digest) string {
	return filepath.Join(c.dir, treesDir, diffID.Encoded())
}

// assignments reads and checks a tree: each assignment's files must have the digest that the signed
// list gives them. A power cut can leave files without their content, and people can edit them.
func (c *contents) assignments(r *release) ([]bundle.Assignment, error) {
	root, err := os.OpenRoot(c.tree(r.Release.Content.DiffID))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	list, err := readList(root)
	if err != nil || c.checked[r.Release.Content.DiffID] {
		return list, err
	}
	for _, a := range list {
		d, err := contentDigest(root, a.Name)
		if err != nil {
			return nil, err
		}
		if d != a.Content {
			return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("files of assignment %s have digest %s, listed is %s", a.Name, d, a.Content)}
		}
	}
	c.checked[r.Release.Content.DiffID] = true
	return list, nil
}

// readList reads the list of assignments. A tree without one has none.
func readList(root *os.Root) ([]bundle.Assignment, error) {
	data, err := fs.ReadFile(root.FS(), bundle.AssignmentsPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bundle.ParseAssignments(data)
}

// contentDigest digests the files below name as bundle.ContentDigest does.
func contentDigest(root *os.Root, name string) (digest.Digest, error) {
	var files []bundle.File
	err := fs.WalkDir(root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) && p == name {
				return nil // an assignment without files
			}
			return err
		}
		data, err := fs.ReadFile(root.FS(), p)
		files = append(files, bundle.File{Path: p[len(name)+1:], Data: data})
		return err
	})
	if err != nil {
		return "", err
	}
	slices.SortFunc(files, func(a, b bundle.File) int { return strings.Compare(a.Path, b.Path) })
	return bundle.ContentDigest(files), nil
}

// stage unpacks the tree of r from the store. The folder gets its name when it is whole and on disk.
func (c *contents) stage(ctx context.Context, r *release) (err error) {
	repo, err := c.repository(r.Release.Stream())
	if err != nil {
		return err
	}
	trees := filepath.Join(c.dir, treesDir)
	temp := filepath.Join(trees, stagingDir)
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o700)); err != nil {
		return local("stage: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	if err := unpack(ctx, repo, r, temp); err != nil {
		return err
	}
	final := c.tree(r.Release.Content.DiffID)
	if err := errors.Join(syncTree(temp), os.RemoveAll(final), os.Rename(temp, final), syncDir(trees)); err != nil {
		return local("stage: %w", err)
	}
	delete(c.checked, r.Release.Content.DiffID)
	return nil
}

func unpack(ctx context.Context, src bundle.Source, r *release, dir string) error {
	layer, err := src.Fetch(ctx, r.Tree)
	if err != nil {
		return local("stage: %w", err)
	}
	defer layer.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return local("stage: %w", err)
	}
	defer root.Close()
	if err := bundle.Unpack(layer, root, r.Release.Content); err != nil {
		return stageError(err)
	}
	list, err := readList(root)
	for _, a := range list { // one without files has no folder in the tree
		err = errors.Join(err, root.MkdirAll(a.Name, 0o755))
	}
	return stageError(err)
}

// stageError takes whatever is not the content's fault for this machine's.
func stageError(err error) error {
	if err == nil || errors.As(err, new(*bundle.Refusal)) {
		return err
	}
	return local("stage: %w", err)
}

// intact says whether the stored layer is what its descriptor says.
func (c *contents) intact(ctx context.Context, r *release) bool {
	repo, err := c.repository(r.Release.Stream())
	if err != nil {
		return false
	}
	layer, err := repo.Fetch(ctx, r.Tree)
	if err != nil {
		return false
	}
	defer layer.Close()
	verifier := r.Tree.Digest.Verifier()
	_, err = io.Copy(verifier, layer)
	return err == nil && verifier.Verified()
}

// discard deletes the stored layer, if there is one, so that it is fetched again.
func (c *contents) discard(r *release) error {
	d := r.Tree.Digest
	err := os.Remove(filepath.Join(c.dir, storeDir, ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
