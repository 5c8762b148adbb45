package artifacts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// maxManifestBytes bounds a manifest. Larger files are skipped.
	maxManifestBytes = 1 << 20
	// maxManifestsBytes bounds the files of one folder. All of them may be parsed.
	maxManifestsBytes = 32 << 20
)

// sourceFolder is a folder of a source.
type sourceFolder struct {
	source sources.Source
	dir    string
}

// folderContent is the content of the manifests in a folder.
type folderContent struct {
	dir         string
	descriptors []Descriptor
	needs       []scheduler.Pinned
	version     string // of what they run; empty if they do not say it
	id          string // git's
}

// content reads a folder once.
func (p *pinning) content(at sourceFolder) (folderContent, error) {
	if known, ok := p.contents[at]; ok {
		return known, nil
	}
	var files []scheduler.File
	id := ""
	err := p.found[at.source].Read(func(fsys fs.FS) (err error) {
		if info, err := fs.Stat(fsys, at.dir); err == nil {
			id = gitrepo.ObjectOf(info)
		}
		files, err = manifestsIn(fsys, at.dir)
		return err
	})
	if err != nil {
		return folderContent{}, err
	}
	content := folderContent{dir: at.dir, id: id}
	var images []sources.Source
	content.needs, images = needsInside(files, replacedIn(files, at.dir))
	content.version = cmp.Or(chartIn(files, at.dir), VersionIn(files, images))
	content.descriptors = descriptorsOf(files)
	p.contents[at] = content
	return content, nil
}

// DescriptorsBelow returns the DeploymentDescriptors below a folder, whatever the folder holds beside them.
func DescriptorsBelow(fsys fs.FS, dir string) ([]Descriptor, error) {
	files, err := manifestsIn(fsys, dir)
	return descriptorsOf(files), err
}

func descriptorsOf(files []scheduler.File) (all []Descriptor) {
	for _, f := range files {
		found, _ := DescriptorsIn(f)
		all = append(all, found...)
	}
	return all
}

// manifestsIn reads the YAML files below dir. A dir that is not there has none: the engine says so.
func manifestsIn(fsys fs.FS, dir string) (all []scheduler.File, err error) {
	files, size := gitrepo.Guard(fsys), 0
	err = fs.WalkDir(files, dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == dir {
			return nil
		}
		if err != nil || !e.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)) {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() > maxManifestBytes {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if size += len(data); size > maxManifestsBytes {
			return fmt.Errorf("%w: the YAML files in folder %q hold more than %d bytes", gitrepo.ErrTooLarge, dir, maxManifestsBytes)
		}
		all = append(all, scheduler.File{Path: name, Data: data})
		return err
	})
	return all, err
}

// needsInside lists the references in files, unresolved, with image replacements applied. Files that are no YAML,
// such as a chart's templates, have none. Images are those among them.
func needsInside(files []scheduler.File, replaced []replacedImage) (list []scheduler.Pinned, images []sources.Source) {
	needs, _ := needsOf(&scheduler.Assignment{Files: files})
	for _, n := range needs {
		if i := slices.IndexFunc(replaced, func(r replacedImage) bool { return n.Kind == bundle.ArtifactImage && r.isFor(n.Source) }); i >= 0 {
			n.Source = replaced[i].replace(n.Source)
		}
		if n.Kind == bundle.ArtifactImage {
			images = append(images, n.Source)
		}
		if n.URL == "" || n.Kind == "" {
			continue
		}
		a := n.Artifact()
		list = append(list, scheduler.Pinned{Type: string(a.Type), Name: a.Name, Reference: a.Reference, Digest: a.Digest})
	}
	return list, images
}

// replacedImage is an entry of a kustomization's images.
type replacedImage struct {
	Name    string `yaml:"name"`
	NewName string `yaml:"newName"`
	NewTag  string `yaml:"newTag"`
	Digest  string `yaml:"digest"`
}

// replacedIn reads the images of a folder's kustomization, if it has one.
func replacedIn(files []scheduler.File, dir string) []replacedImage {
	i := slices.IndexFunc(files, func(f scheduler.File) bool {
		return f.Path == path.Join(dir, "kustomization.yaml") || f.Path == path.Join(dir, "kustomization.yml")
	})
	var k struct {
		Images []replacedImage `yaml:"images"`
	}
	if i < 0 || yamlvalues.NewDecoder(files[i].Data).Decode(&k) != nil {
		return nil // the engine says so
	}
	return k.Images
}

func (r replacedImage) isFor(image sources.Source) bool {
	name, err := sources.ParseImage(r.Name)
	return err == nil && name.URL == image.URL
}

func (r replacedImage) replace(image sources.Source) sources.Source {
	if name, err := sources.ParseImage(r.NewName); err == nil {
		image.URL = name.URL
	}
	if r.NewTag != "" {
		image.Tag, image.Revision = r.NewTag, ""
	}
	if r.Digest != "" {
		image.Tag, image.Revision = r.NewTag, r.Digest
	}
	return image
}
