// Package content stores the releases in use on an agent's disk: their blobs, in an OCI layout, and their unpacked
// trees.
//
// Begin with New. Bring fetches a release's tree into the layout, Stage unpacks and checks it, and Assignments and Folder
// return its parts. Prune deletes blobs and trees that no release in use needs.
//
// Blobs are checked and synced before they get their name. Unpacked files are not synced: each process compares them with
// their digests at its first use, and unpacks them again from the layer if a power cut, or a person, has changed them. So
// a crash at any point leaves nothing incomplete that counts as complete. This package does not judge whether a release
// may run: Bring and Stage are given verified releases. Complete keeps signatures, for others that judge a release
// themselves.
package content

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// The folders beside the layout in the state folder.
const (
	TreesDir    = "trees"    // what trees have beside assignments' files, by the encoded diffID
	ContentsDir = "contents" // assignments' files, by the encoded digest of their content
	SitesDir    = "sites"    // copies of assignments' files with the values of the site
	StagingDir  = ".staging" // in TreesDir: the tree that is being unpacked
)

// BucketTrees has, by the encoded diffID of a tree that was staged, the digest of its list. Every state file has it.
const BucketTrees = "trees"

// Options configures the download of layers from a registry.
type Options struct {
	Download oci.DownloadOptions
	// Window returns a context for transfers that ends when they have to stop, and a function that says so in an error
	// that followed from that. Its error says that none may begin. Nil is always open.
	Window func(context.Context) (context.Context, func(error) error, error)
	// Deltas applies deltas, such as a delta.Command. Without it full layers are fetched.
	Deltas Deltas
	// Serving has the releases be kept and named as a follower of the agent's endpoint takes them; see Complete. Nil keeps
	// what the agent itself needs.
	Serving *Serving
	// Named are the functions that list what else the store keeps, beside releases; see Named. They are called in one
	// transaction each time that the index is written or blobs are deleted. If one fails, neither happens.
	Named []func(*bbolt.Tx) ([]Named, error)
	// Files keeps the files of assignments; nil keeps them in the state folder.
	Files Files
	Log   *slog.Logger
}

// Deltas applies deltas.
type Deltas interface {
	Apply(context.Context, delta.Job) error
}

// Store is the content of one state folder. Only one goroutine uses it.
type Store struct {
	// DownloadBlob is the layout's, but for tests of a disk that fails.
	DownloadBlob func(context.Context, oci.Target, ocispec.Descriptor, oci.DownloadOptions) error

	db     *state.DB
	opts   Options
	layout *oci.Layout
	// list is the list that was read last, by its digest.
	list struct {
		digest      digest.Digest
		assignments []bundle.Assignment
	}
	// seen is the tree that was last found here whole, with its list, by the pass that runs; see LookAgain.
	seen struct {
		tree digest.Digest
		list []bundle.Assignment
	}
	useless map[digest.Digest]bool // deltas from which no tree could be made
	unlike  map[digest.Digest]bool // layers that this program compresses in another way than the publisher
}

// New returns the store beside a state file.
func New(db *state.DB, opts Options) *Store {
	layout := oci.NewLayout(filepath.Join(db.Dir(), state.StoreDir))
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Files == nil {
		opts.Files = &folders{db: db, checked: map[digest.Digest]bool{}}
	}
	return &Store{
		db: db, opts: opts, layout: layout, useless: map[digest.Digest]bool{}, unlike: map[digest.Digest]bool{},
		DownloadBlob: layout.Download,
	}
}

// repository is where the store keeps the releases of a stream.
func (c *Store) repository(s bundle.Stream) (oci.Target, error) {
	return c.layout.Repository(s.Repository())
}

// tree is the folder of what an unpacked tree has beside assignments' files.
func (c *Store) tree(diffID digest.Digest) string {
	return filepath.Join(c.db.Dir(), TreesDir, diffID.Encoded())
}

// Folder is that of the files of an assignment whose content, a valid digest, is this. Releases share it.
func (c *Store) Folder(content digest.Digest) string { return c.opts.Files.Folder(content) }

// ErrNotStaged means that a tree is not on disk as it was unpacked.
var ErrNotStaged = errors.New("tree is not staged")

// LookAgain has the disk be looked at again, which each pass does once: somebody may have deleted something.
func (c *Store) LookAgain() { c.seen.tree, c.seen.list = "", nil }

// Assignments returns the list of a tree that was staged, or an error that wraps ErrNotStaged. An empty list orders the removal of all, so the
// list has to be the one that the state file knows of the tree, and the files the listed ones.
func (c *Store) Assignments(r *state.Release) ([]bundle.Assignment, error) {
	id := r.Release.Content.DiffID
	if id == c.seen.tree {
		return c.seen.list, nil
	}
	var known digest.Digest
	err := c.db.View(func(tx *bbolt.Tx) (err error) {
		known, err = state.Load[digest.Digest](tx, BucketTrees, id.Encoded())
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	if known == "" {
		return nil, ErrNotStaged
	}
	root, err := os.OpenRoot(c.tree(id))
	if err != nil {
		return nil, errors.Join(ErrNotStaged, err)
	}
	defer root.Close()
	list, d, err := c.readList(root)
	if err != nil || d != known {
		return nil, errors.Join(ErrNotStaged, err)
	}
	if err := c.wholeDocuments(root, id); err != nil {
		return nil, err
	}
	for _, a := range list {
		if !c.opts.Files.Has(a.Content) {
			return nil, ErrNotStaged
		}
	}
	c.seen.tree, c.seen.list = id, list
	return list, nil
}

// readList reads the list of assignments. A tree without one has none.
func (c *Store) readList(root *os.Root) ([]bundle.Assignment, digest.Digest, error) {
	switch info, err := root.Stat(bundle.AssignmentsPath); {
	case err != nil: // reading it says so
	case !info.Mode().IsRegular():
		return nil, "", &bundle.Refusal{Reason: bundle.BadContent, Message: bundle.AssignmentsPath + " is not a file"}
	case info.Size() > bundle.MaxListBytes:
		return nil, "", bundle.Refuse(bundle.TooLarge, "%s has %d bytes, at most %d are allowed", bundle.AssignmentsPath, info.Size(), bundle.MaxListBytes)
	}
	data, err := fs.ReadFile(root.FS(), bundle.AssignmentsPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	d := digest.FromBytes(data)
	if d != c.list.digest {
		list, err := c.opts.Files.Parse(data, d)
		if err != nil {
			return nil, d, err
		}
		c.list.digest, c.list.assignments = d, list
	}
	return c.list.assignments, d, nil
}

// Stage makes the tree of r usable from its layer in the layout. The error is a *bundle.Refusal only if the signed content
// is at fault. If the stored layer is damaged, the disk is at fault: the error is a *state.LocalError, and Bring fetches
// the layer again.
func (c *Store) Stage(ctx context.Context, r *state.Release) error {
	err := c.stage(ctx, r)
	if errors.As(err, new(*bundle.Refusal)) && !c.intact(ctx, r) {
		return state.Local("stored layer %s is damaged and will be fetched again: %w", r.Tree.Digest, errors.Join(err, c.discard(r)))
	}
	return err
}

// Ready makes the tree of r usable without fetching, and reports whether it is.
func (c *Store) Ready(ctx context.Context, r *state.Release) bool {
	if _, err := c.Assignments(r); err == nil {
		return true
	}
	return c.intact(ctx, r) && c.Stage(ctx, r) == nil
}

// stage unpacks the tree of r from the store and checks it. Folders get their names when the tree is complete, and count
// once the state file has it.
func (c *Store) stage(ctx context.Context, r *state.Release) (err error) {
	temp, final := filepath.Join(c.db.Dir(), TreesDir, StagingDir), c.tree(r.Release.Content.DiffID)
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o700), os.MkdirAll(filepath.Join(c.db.Dir(), ContentsDir), 0o700)); err != nil {
		return state.Local("stage: %w", err)
	}
	c.db.At("stage: the folder is empty")
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	list, found, err := c.unpack(ctx, r, temp)
	if err != nil {
		return err
	}
	c.db.At("stage: unpacked")
	if err := errors.Join(os.RemoveAll(final), os.Rename(temp, final)); err != nil {
		return state.Local("stage: %w", err)
	}
	c.db.At("stage: renamed")
	return c.db.Update(func(tx *bbolt.Tx) error {
		id := r.Release.Content.DiffID
		return errors.Join(state.Save(tx, BucketTrees, id.Encoded(), list), state.Save(tx, BucketTrees, documentsKey(id), found))
	})
}

// unpack returns the digests of the list and of the documents. An error that is not the content's fault is a
// *state.LocalError.
func (c *Store) unpack(ctx context.Context, r *state.Release, dir string) (list digest.Digest, found map[string]digest.Digest, err error) {
	list, found, err = c.unpackTo(ctx, r, dir)
	if err != nil && !errors.As(err, new(*bundle.Refusal)) {
		err = state.Local("stage: %w", err)
	}
	return list, found, err
}

// unpackTo writes the folders that are missing, and checks all of them.
func (c *Store) unpackTo(ctx context.Context, r *state.Release, dir string) (list digest.Digest, found map[string]digest.Digest, err error) {
	tree, unpack, err := c.open(ctx, r)
	if err != nil {
		return "", nil, err
	}
	defer tree.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	var listed map[string]digest.Digest // the publisher puts the list first
	u := &bundle.Unpacker{Root: root, Have: func(folder string) bool {
		if len(listed) == 0 {
			listed = c.listed(root)
		}
		return c.opts.Files.Has(listed[folder])
	}}
	if err := unpack(u, tree, r.Release.Content); err != nil {
		return "", nil, err
	}
	assigned, d, err := c.readList(root)
	if err != nil {
		return "", nil, err
	}
	if found, err = digestDocuments(root); err != nil {
		return "", nil, err
	}
	return d, found, c.place(root, assigned, u.Passed())
}

// listed are the contents by assignment; none while there is no list.
func (c *Store) listed(root *os.Root) map[string]digest.Digest {
	contents := map[string]digest.Digest{}
	list, _, err := c.readList(root)
	if err != nil {
		return nil // a later read of the list returns the error
	}
	for _, a := range list {
		contents[a.Name] = a.Content
	}
	return contents
}

// place checks each assignment's files, of which some were passed over as they are here, and then moves the others
// to their folders.
func (c *Store) place(root *os.Root, list []bundle.Assignment, passed map[string]digest.Digest) error {
	for _, a := range list {
		d, here := passed[a.Name]
		if !here {
			var err error
			if d, err = bundle.ContentDigestOf(root.FS(), a.Name); err != nil {
				return err
			}
		}
		if d != a.Content {
			return bundle.Refuse(bundle.BadContent, "files of assignment %s have digest %s, listed is %s", a.Name, d, a.Content)
		}
	}
	for _, a := range list {
		if c.opts.Files.Has(a.Content) {
			continue
		}
		if err := root.MkdirAll(a.Name, 0o755); err != nil { // one without files has no folder in the tree
			return err
		}
		if err := c.opts.Files.Place(a.Content, filepath.Join(root.Name(), a.Name)); err != nil {
			return err
		}
		c.db.At("stage: a folder is in its place")
	}
	return nil
}
