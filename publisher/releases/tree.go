package releases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/wherry-dev/wherry/bundle"
)

// Tree is a bundle's tree, checked and unpacked into a temporary folder.
type Tree struct {
	Assignments []bundle.Assignment
	Artifacts   []bundle.Artifact
	Root        *os.Root
}

// OpenTree fetches a layer and checks all of it against want. The error is a *bundle.Refusal if the layer
// differs from the signed content. The caller closes the tree.
func OpenTree(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content) (_ *Tree, err error) {
	dir, err := os.MkdirTemp("", "wherry-tree-")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	t := &Tree{Root: root}
	if err := t.fill(ctx, src, layer, want); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tree) fill(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content) error {
	body, err := src.Fetch(ctx, layer)
	if err != nil {
		return err
	}
	defer body.Close()
	checked := content.NewVerifyReader(body, layer)
	if err := bundle.Unpack(checked, t.Root, want); err != nil {
		return err
	}
	// What other tools would read beyond the archive counts for the layer's own digest.
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return err
	}
	if err := checked.Verify(); err != nil {
		return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: fmt.Sprintf("layer %s: %v", layer.Digest, err)}
	}
	data, err := t.Root.ReadFile(bundle.AssignmentsPath)
	if err != nil {
		return &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("tree: %v", err)}
	}
	if t.Assignments, err = bundle.ParseAssignments(data); err != nil {
		return err
	}
	data, err = t.Root.ReadFile(bundle.ArtifactsPath)
	if errors.Is(err, fs.ErrNotExist) { // nothing is needed
		return nil
	}
	if err == nil {
		t.Artifacts, err = bundle.ParseArtifacts(data)
	}
	return err
}

// Close removes the folder.
func (t *Tree) Close() error { return errors.Join(t.Root.Close(), os.RemoveAll(t.Root.Name())) }

// Files returns the files of one assignment, by their paths below its folder.
func (t *Tree) Files(a bundle.Assignment) ([]bundle.File, error) {
	var files []bundle.File
	err := fs.WalkDir(t.Root.FS(), a.Name, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == a.Name { // an assignment may have no files
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := t.Root.ReadFile(name)
		files = append(files, bundle.File{Path: name[len(a.Name)+1:], Executable: info.Mode()&0o100 != 0, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	if d := bundle.ContentDigest(files); d != a.Content {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("files of assignment %s have digest %s, listed is %s", a.Name, d, a.Content)}
	}
	return files, nil
}

// ArtifactsOf lists what one assignment needs.
func (t *Tree) ArtifactsOf(assignment string) []bundle.Artifact {
	var list []bundle.Artifact
	for _, a := range t.Artifacts {
		if slices.Contains(a.UsedBy, assignment) {
			a.UsedBy = []string{assignment}
			list = append(list, a)
		}
	}
	return list
}

// ReadTree checks a layer and returns its assignments.
func ReadTree(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content) ([]bundle.Assignment, error) {
	t, err := OpenTree(ctx, src, layer, want)
	if err != nil {
		return nil, err
	}
	return t.Assignments, t.Close()
}
