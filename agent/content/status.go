package content

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Status is what an agent has on disk beside its state.
type Status struct {
	// Releases are the names in the store's index, such as bundles/dev/drone/s0-5: what runs or is to run, what ran
	// well last, and before that.
	Releases []string
	// Damaged says what is wrong with the index, which the agent makes again when it needs it.
	Damaged error
	// Blobs and Trees are the bytes of the releases, and of their unpacked trees. Parts are those of downloads
	// that go on.
	Blobs, Trees, Parts int64
}

// Source returns what the state folder dir has of a stream's releases, by their digests. Their signatures are not
// there: they were verified when the releases came.
func Source(dir string, s bundle.Stream) (bundle.Source, error) {
	return oci.NewLayout(filepath.Join(dir, state.StoreDir)).Repository(s.Repository())
}

// ReadStatus reads what is in the state folder dir, also beside a running agent. A folder without a store has none
// of it.
func ReadStatus(dir string) (s Status, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer root.Close()
	var index ocispec.Index
	if err := readJSON(root, path.Join(state.StoreDir, ocispec.ImageIndexFile), &index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Damaged = err
	}
	for _, d := range index.Manifests {
		s.Releases = append(s.Releases, d.Annotations[ocispec.AnnotationRefName])
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a running agent has removed it
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		switch {
		case strings.HasPrefix(name, state.StoreDir+"/parts/"):
			s.Parts += info.Size()
		case strings.HasPrefix(name, state.StoreDir+"/"+ocispec.ImageBlobsDir+"/"):
			s.Blobs += info.Size()
		case strings.HasPrefix(name, TreesDir+"/"), strings.HasPrefix(name, ContentsDir+"/"):
			s.Trees += info.Size()
		}
		return nil
	})
	return s, err
}
