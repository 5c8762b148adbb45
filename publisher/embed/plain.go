package embed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Bounds on the content of one assignment. The limits of its registration come on top.
const (
	maxFileBytes = 4 << 20
	maxBytes     = 16 << 20
	maxFiles     = 5_000
)

// add adds a file, within the bounds.
func (b *built) add(f scheduler.File) error {
	b.bytes += len(f.Data)
	switch {
	case len(b.Files) == maxFiles:
		return fmt.Errorf("%w: more than %d files", gitrepo.ErrTooLarge, maxFiles)
	case b.bytes > maxBytes:
		return fmt.Errorf("%w: more than %d bytes of manifests", gitrepo.ErrTooLarge, maxBytes)
	}
	if b.decoded += manifests.Size(f.Path, f.Data, manifests.DefaultBudget-b.decoded); b.decoded > manifests.DefaultBudget {
		return fmt.Errorf("%s: %w for agents: the manifests come to more than %d bytes, with each YAML alias counted as what it stands for and each value as some more: embed them as several targets",
			f.Path, gitrepo.ErrTooLarge, manifests.DefaultBudget)
	}
	b.Files = append(b.Files, f)
	return nil
}

// plain takes the files of objects below the folder, as they are. A subfolder with a kustomization is built, as Flux does.
// DeploymentDescriptors are for the platform, and left out where a file has nothing else.
func (b *built) plain(ctx context.Context, r *reader, t *tree, q request) error {
	extensions, recurse := []string{".yaml", ".yml", ".json"}, true
	if q.adapter == "flux" {
		extensions = []string{".yaml", ".yml"}
	}
	if q.argo != nil {
		var err error
		if recurse, err = q.argo.recurses(); err != nil {
			return err
		}
	}
	left := maxBytes
	return fs.WalkDir(t.FS, q.dir, func(name string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if e.IsDir() {
			if name != q.dir && (!recurse || path.Base(name)[0] == '.') {
				return fs.SkipDir
			}
			if name == q.dir || q.argo != nil || !hasKustomization(t.FS, name) {
				return nil
			}
			if err := b.kustomizeFolder(ctx, r, t, q, name, below(q.dir, name), nil); err != nil {
				return err
			}
			return fs.SkipDir
		}
		if !e.Type().IsRegular() || !slices.Contains(extensions, path.Ext(name)) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() > maxFileBytes {
			return fmt.Errorf("%s: %w: %d bytes, at most %d are embedded", name, gitrepo.ErrTooLarge, info.Size(), maxFileBytes)
		}
		if left -= int(info.Size()); left < 0 {
			return fmt.Errorf("folder %q: %w: more than %d bytes of manifests", q.dir, gitrepo.ErrTooLarge, maxBytes)
		}
		data, err := fs.ReadFile(t.FS, name)
		if err != nil {
			return err
		}
		f := scheduler.File{Path: name, Data: data}
		if _, only := artifacts.DescriptorsIn(f); only {
			return nil
		}
		if err := checkObjects(name, data); err != nil {
			return err
		}
		f.Path = below(q.dir, name)
		return b.add(f)
	})
}

// hasKustomization reports whether a folder has a kustomization.
func hasKustomization(files fs.FS, dir string) bool {
	return slices.ContainsFunc(kustomizations, func(name string) bool {
		info, err := fs.Stat(files, path.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
}

// recurses reports whether an Application's directory includes the folders below it.
func (s *argoSource) recurses() (recurse bool, err error) {
	for key, value := range s.Directory {
		switch key {
		case "recurse":
			recurse, _ = value.(bool)
		default:
			return false, fmt.Errorf("the Application %q has directory.%s, which is not embedded: move the files to a folder of their own", s.application, key)
		}
	}
	return recurse, nil
}

// checkObjects returns an error if a file is not made of Kubernetes objects, which no engine takes.
func checkObjects(name string, data []byte) error {
	if manifests.Size(name, data, manifests.DefaultBudget) > manifests.DefaultBudget {
		return nil // add refuses it
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, root := range n.Content {
			if root.ShortTag() == "!!null" {
				continue
			}
			if kinds.StringField(root, "apiVersion") == "" || kinds.StringField(root, "kind") == "" {
				return fmt.Errorf("%s:%d: no Kubernetes object: it has no apiVersion or no kind", name, root.Line)
			}
		}
	}
}
