package kubernetes

import (
	"io"
	"io/fs"
	"os"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle/manifests"
)

// manifest is one object of the assignment and where it was read.
type manifest struct {
	*unstructured.Unstructured
	origin string // such as reconciler.yaml, document 2
}

func (m manifest) id() object.ObjMetadata { return object.UnstructuredToObjMetadata(m.Unstructured) }

// subject names m as changes and messages do: Kind/namespace/name.
func (m manifest) subject() string { return utils.FmtUnstructured(m.Unstructured) }

// readManifests reads every .yaml, .yml and .json file below the folder under of dir, but those below the folder without,
// which may be empty. Its errors have the reason InvalidManifest, and never quote a value.
func readManifests(dir, under, without string) ([]manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []manifest
	err = fs.WalkDir(root.FS(), under, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name == without {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !manifests.IsFile(name) {
			return err
		}
		data, err := readBounded(root, name)
		if err != nil {
			return err
		}
		found, err := parseManifests(name, data)
		out = append(out, found...)
		return err
	})
	return out, err
}

func readBounded(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, manifests.MaxFileBytes+1))
	if len(data) > manifests.MaxFileBytes {
		return nil, invalid("%s: more than %d bytes", name, manifests.MaxFileBytes)
	}
	return data, err
}

// parseManifests is manifests.Parse for objects of an assignment.
func parseManifests(name string, data []byte) ([]manifest, error) {
	found, err := manifests.Parse(name, data)
	if err != nil {
		return nil, invalid("%w", err)
	}
	var out []manifest
	for _, o := range found {
		out = append(out, manifest{o.Unstructured, o.Origin})
	}
	return out, nil
}
