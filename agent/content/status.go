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
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Status is what an agent has on disk beside its state.
type Status struct {
	// Releases are the names in the store's index, such as bundles/dev/drone/s0-5: the release that runs or is to run,
	// the last good one, and the good one before that.
	Releases []string
	// Others is the number of further names in the index: trust documents, derived artifacts, and those that were carried.
	Others int
	// Damaged is the error of a damaged index, which the agent makes again when it needs it.
	Damaged error
	// Blobs and Trees are sizes in bytes: of the blobs of releases, derived artifacts and all else in the store, and of
	// unpacked trees with their copies for the values of the site. Parts is the size of unfinished downloads.
	Blobs, Trees, Parts int64
}

// releaseName matches the name of a release in the index: not a moving tag, nor that of a signature.
var releaseName = lazyregexp.New(`^bundles/.*/s[0-9]+-[0-9]+$`)

// CarriedParts is the folder in the store of unfinished downloads of artifacts that assignments have carried.
const CarriedParts = "carried-parts"

// Source returns a stream's releases in the state folder dir, by their digests. It has no signatures:
// they were verified when the releases came.
func Source(dir string, s bundle.Stream) (bundle.Source, error) {
	return oci.NewLayout(filepath.Join(dir, state.StoreDir)).Repository(s.Repository())
}

// Releases lists the names of releases in the index of the store in the state folder dir, such as bundles/dev/drone/s0-5.
func Releases(dir string) (names []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var index ocispec.Index
	if err := readJSON(root, path.Join(state.StoreDir, ocispec.ImageIndexFile), &index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range index.Manifests {
		if name := d.Annotations[ocispec.AnnotationRefName]; releaseName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ReadStatus reads the status of the store in the state folder dir, even while an agent runs. It is zero for a folder
// without a store.
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
		switch name := d.Annotations[ocispec.AnnotationRefName]; {
		case releaseName.MatchString(name):
			s.Releases = append(s.Releases, name)
		case !strings.HasPrefix(name, "bundles/"):
			s.Others++
		}
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
		case strings.HasPrefix(name, state.StoreDir+"/parts/"), strings.HasPrefix(name, state.StoreDir+"/"+CarriedParts+"/"):
			s.Parts += info.Size()
		case strings.HasPrefix(name, state.StoreDir+"/"+ocispec.ImageBlobsDir+"/"):
			s.Blobs += info.Size()
		case strings.HasPrefix(name, TreesDir+"/"), strings.HasPrefix(name, ContentsDir+"/"), strings.HasPrefix(name, SitesDir+"/"):
			s.Trees += info.Size()
		}
		return nil
	})
	return s, err
}
