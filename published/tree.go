package published

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// maxInMemory bounds the trees that are held in memory, in bytes: a thousand assignments or so. Larger ones go to a
// temporary folder, which takes twenty times as long.
const maxInMemory = 16 << 20

// Tree is a bundle's tree, checked and unpacked into memory or, if it is large, into a temporary folder.
type Tree struct {
	Assignments []bundle.Assignment
	Artifacts   []bundle.Artifact
	Sources     []bundle.AssignmentSources

	files  map[string][]bundle.File // by top-level folder, with their paths below it; nil if root has them
	atRoot map[string][]byte        // in no folder
	root   *os.Root                 // nil if files has them
	folder *diskfile.Scratch        // of root
}

// Tree fetches the tree of a release and checks all of it. The error is a *bundle.Refusal if it differs from the signed content.
// The caller closes the tree.
func (t Type) Tree(ctx context.Context, v *bundle.Verified) (*Tree, error) {
	return OpenTree(ctx, t.Repo, v.Tree, v.Release.Content)
}

// Assignments is Tree for the assignments alone.
func (t Type) Assignments(ctx context.Context, v *bundle.Verified) ([]bundle.Assignment, error) {
	tree, err := t.Tree(ctx, v)
	if err != nil {
		return nil, err
	}
	return tree.Assignments, tree.Close()
}

// OpenTree fetches a layer and checks all of it against want. The error is a *bundle.Refusal if the layer
// differs from the signed content. The caller closes the tree.
func OpenTree(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content) (_ *Tree, err error) {
	body, err := src.Fetch(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	checked := content.NewVerifyReader(body, layer)
	t, err := ReadLayer(checked, want)
	if err != nil {
		return nil, err
	}
	// What other tools would read beyond the archive counts for the layer's own digest.
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := checked.Verify(); err != nil {
		return nil, errors.Join(bundle.Refuse(bundle.DigestMismatch, "layer %s: %v", layer.Digest, err), t.Close())
	}
	return t, nil
}

// ReadLayer is OpenTree for a layer that is at hand. Bytes of it after the archive are not read.
func ReadLayer(layer io.Reader, want bundle.Content) (*Tree, error) {
	t, u := &Tree{}, bundle.Unpacker{}
	if want.Size <= maxInMemory {
		t.files, t.atRoot = map[string][]bundle.File{}, map[string][]byte{}
		u.Take = t.take
	} else {
		var err error
		if t.folder, err = diskfile.NewScratch(); err != nil {
			return nil, err
		}
		if t.root, err = os.OpenRoot(t.folder.Path); err != nil {
			return nil, errors.Join(err, t.folder.Close())
		}
		u.Root = t.root
	}
	err := u.Gzip(layer, want)
	if err == nil {
		err = t.readLists()
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// ListLayer returns the assignments of a layer at hand, whose digest was checked. It reads no more than it has to, so that the rest is
// not checked against want.
func ListLayer(layer []byte, want bundle.Content) ([]bundle.Assignment, error) {
	var list []byte
	found := errors.New("found")
	u := bundle.Unpacker{Take: func(f bundle.File) error {
		if f.Path != bundle.AssignmentsPath {
			return nil
		}
		list = f.Data
		return found
	}}
	if err := u.Gzip(bytes.NewReader(layer), want); err != nil && !errors.Is(err, found) {
		return nil, err
	}
	if list == nil {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: "tree: there is no " + bundle.AssignmentsPath}
	}
	return bundle.ParseAssignments(list)
}

func (t *Tree) take(f bundle.File) error {
	folder, below, found := strings.Cut(f.Path, "/")
	if !found {
		t.atRoot[f.Path] = f.Data
		return nil
	}
	f.Path = below
	t.files[folder] = append(t.files[folder], f)
	return nil
}

// readLists reads what the tree says of itself.
func (t *Tree) readLists() error {
	data, err := t.ReadFile(bundle.AssignmentsPath)
	if err != nil {
		return bundle.Refuse(bundle.BadContent, "tree: %v", err)
	}
	if t.Assignments, err = bundle.ParseAssignments(data); err != nil {
		return err
	}
	data, err = t.ReadFile(bundle.ArtifactsPath)
	if err == nil {
		t.Artifacts, err = bundle.ParseArtifacts(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // where there is none, nothing is needed
		return err
	}
	data, err = t.ReadFile(bundle.SourcesPath)
	if err == nil {
		t.Sources, err = bundle.ParseSources(data)
	}
	if errors.Is(err, fs.ErrNotExist) { // nothing is embedded
		return nil
	}
	return err
}

// SourcesOf returns where the embedded files of an assignment came from; nil if it has none.
func (t *Tree) SourcesOf(assignment string) []bundle.ContentSource {
	for _, s := range t.Sources {
		if s.Assignment == assignment {
			return s.Sources
		}
	}
	return nil
}

// Close removes the temporary folder, if there is one.
func (t *Tree) Close() error {
	if t.root == nil {
		return nil
	}
	return errors.Join(t.root.Close(), t.folder.Close())
}

// ReadFile returns the content of the file with that path in the tree. The error wraps fs.ErrNotExist if there is none.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	if t.root != nil {
		return t.root.ReadFile(name)
	}
	folder, below, found := strings.Cut(name, "/")
	if data, ok := t.atRoot[name]; ok && !found {
		return data, nil
	}
	for _, f := range t.files[folder] {
		if f.Path == below {
			return f.Data, nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Files returns the files of one assignment, by their paths below its folder.
func (t *Tree) Files(a bundle.Assignment) ([]bundle.File, error) {
	files, err := t.below(a.Name)
	if err != nil {
		return nil, err
	}
	if d := bundle.ContentDigest(files); d != a.Content {
		return nil, bundle.Refuse(bundle.BadContent, "files of assignment %s have digest %s, listed is %s", a.Name, d, a.Content)
	}
	return files, nil
}

// Entry is a file of a tree without its content.
type Entry struct {
	Size       int64 // in bytes
	Executable bool
}

// List returns all files of the tree by their paths.
func (t *Tree) List() (map[string]Entry, error) {
	all := map[string]Entry{}
	if t.root == nil {
		for name, data := range t.atRoot {
			all[name] = Entry{Size: int64(len(data))}
		}
		for folder, files := range t.files {
			for _, f := range files {
				all[folder+"/"+f.Path] = Entry{int64(len(f.Data)), f.Executable}
			}
		}
		return all, nil
	}
	err := fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[name] = Entry{info.Size(), info.Mode()&0o100 != 0}
		}
		return err
	})
	return all, err
}

// below returns the files of a top-level folder; none if it does not exist, since an assignment may have no files.
func (t *Tree) below(folder string) ([]bundle.File, error) {
	if t.root == nil {
		return slices.Clone(t.files[folder]), nil
	}
	var files []bundle.File
	err := fs.WalkDir(t.root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == folder {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := t.root.ReadFile(name)
		files = append(files, bundle.File{Path: name[len(folder)+1:], Executable: info.Mode()&0o100 != 0, Data: data})
		return err
	})
	return files, err
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

// Sites returns the site values of the tree: nothing if it has none. The error is a *bundle.Refusal for files that cannot be
// read.
func (t *Tree) Sites() (*sitevalues.Document, []sitevalues.Row, error) {
	data, err := t.ReadFile(sitevalues.DocumentPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	var document *sitevalues.Document
	if err == nil {
		document, err = sitevalues.ParseDocument(data)
	}
	if err != nil {
		return nil, nil, err
	}
	data, err = t.ReadFile(sitevalues.RowsPath)
	if errors.Is(err, fs.ErrNotExist) { // no cluster has values of its own
		return document, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	rows, err := sitevalues.ParseRows(data)
	return document, rows, err
}
