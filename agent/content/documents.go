package content

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// documents are the files of a tree that an agent reads beside the list of assignments, with the largest size of each. Like
// the list they have to be those that were unpacked: files of a tree are not synced, so the state file has their digests.
var documents = map[string]int64{
	bundle.ArtifactsPath:    bundle.MaxListBytes,
	sitevalues.DocumentPath: sitevalues.MaxDocumentBytes,
	sitevalues.RowsPath:     sitevalues.MaxRowsBytes,
}

// Document returns a file of a tree that was staged: bundle.ArtifactsPath, sitevalues.DocumentPath or sitevalues.RowsPath. It
// returns nil if the tree has none, an error that wraps ErrNotStaged if the file is not as it was unpacked, and a
// *bundle.Refusal if it is too large.
func (c *Store) Document(r *state.Release, name string) ([]byte, error) {
	id := r.Release.Content.DiffID
	known, err := c.knownDocuments(id)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.tree(id))
	if err != nil {
		return nil, errors.Join(ErrNotStaged, err)
	}
	defer root.Close()
	data, err := readDocument(root, name)
	if err != nil {
		return nil, err
	}
	if digestOf(data) != known[name] {
		c.LookAgain()
		return nil, fmt.Errorf("%s: %w", name, ErrNotStaged)
	}
	return data, nil
}

// digestOf is empty for a document that does not exist.
func digestOf(data []byte) digest.Digest {
	if data == nil {
		return ""
	}
	return digest.FromBytes(data)
}

// readDocument returns nil if there is no such file.
func readDocument(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: name + " is not a file"}
	case info.Size() > documents[name]:
		return nil, bundle.Refuse(bundle.TooLarge, "%s has %d bytes, at most %d are allowed", name, info.Size(), documents[name])
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, documents[name]))
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// digestDocuments returns the digests of the documents in a tree.
func digestDocuments(root *os.Root) (map[string]digest.Digest, error) {
	found := map[string]digest.Digest{}
	for name := range documents {
		data, err := readDocument(root, name)
		if err != nil {
			return nil, err
		}
		if data != nil {
			found[name] = digest.FromBytes(data)
		}
	}
	return found, nil
}

// documentsKey is the key, in BucketTrees, of the documents of a tree.
func documentsKey(diffID digest.Digest) string { return diffID.Encoded() + "/documents" }

func (c *Store) knownDocuments(diffID digest.Digest) (known map[string]digest.Digest, err error) {
	err = c.db.View(func(tx *bbolt.Tx) (err error) {
		known, err = state.Load[map[string]digest.Digest](tx, BucketTrees, documentsKey(diffID))
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return known, nil
}

// wholeDocuments returns an error unless the documents of a tree are those that were unpacked.
func (c *Store) wholeDocuments(root *os.Root, diffID digest.Digest) error {
	known, err := c.knownDocuments(diffID)
	if err != nil {
		return err
	}
	found, err := digestDocuments(root)
	if err != nil || !maps.Equal(found, known) {
		return errors.Join(ErrNotStaged, err)
	}
	return nil
}
