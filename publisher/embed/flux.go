package embed

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// fluxDefaults are the patterns of files that Flux leaves out of every source, unless other patterns include them.
var fluxDefaults = gitrepo.ParseIgnore(`.git/
.gitignore
.gitmodules
.gitattributes
*.jpg
*.jpeg
*.gif
*.png
*.wmv
*.flv
*.tar.gz
*.zip
.github/
.circleci/
.travis.yml
.gitlab-ci.yml
appveyor.yml
.drone.yml
cloudbuild.yaml
codeship-services.yml
codeship-steps.yml
**/.goreleaser.yml
**/.sops.yaml
**/.flux.yaml
`, ".")

// fluxFS has the files of a source that Flux takes: without those that are left out by default, by .sourceignore files and
// by the source object's spec.ignore, of which the last that matches counts. Folders stay, because Flux leaves out files one
// by one: a file can be included again below a folder that is left out.
type fluxFS struct {
	fs.FS
	files   gitrepo.Ignore
	ignore  []gitignore.Pattern
	leftOut bool // something
}

// asFlux returns files as Flux takes them, with the text of spec.ignore. It serves one goroutine.
func asFlux(files fs.FS, ignore string) *fluxFS {
	return &fluxFS{FS: files, files: gitrepo.Ignore{FS: files}, ignore: gitrepo.ParseIgnore(ignore, ".")}
}

// leavesOut reports whether Flux leaves a file out.
func (f *fluxFS) leavesOut(name string) (bool, error) {
	patterns, err := f.files.In(path.Dir(name))
	out := err == nil && gitignore.NewMatcher(slices.Concat(fluxDefaults, patterns, f.ignore)).Match(gitrepo.Elements(name), false)
	f.leftOut = f.leftOut || out
	return out, err
}

// Open returns an error that wraps fs.ErrNotExist for a file that Flux leaves out.
func (f *fluxFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		var out bool
		if out, err = f.leavesOut(name); out {
			err = fmt.Errorf("%w for Flux: .sourceignore, spec.ignore or Flux's defaults leave it out", fs.ErrNotExist)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// ReadDir skips the files that Flux leaves out, and keeps all folders.
func (f *fluxFS) ReadDir(name string) (kept []fs.DirEntry, err error) {
	entries, err := fs.ReadDir(f.FS, name)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out := false
		if e.Type().IsRegular() {
			if out, err = f.leavesOut(path.Join(name, e.Name())); err != nil {
				return nil, err
			}
		}
		if !out {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// fluxSource are the fields of a GitRepository or OCIRepository that change the files that Flux takes of it.
type fluxSource struct {
	Ignore            string   `yaml:"ignore"`
	Include           []any    `yaml:"include"`
	RecurseSubmodules bool     `yaml:"recurseSubmodules"`
	SparseCheckout    []string `yaml:"sparseCheckout"`
	LayerSelector     struct {
		MediaType string `yaml:"mediaType"`
	} `yaml:"layerSelector"`
}

// check returns an error if Flux takes other files than the publisher reads.
func (s fluxSource) check(kind, name, dir string) error {
	inSparse := func(folder string) bool {
		folder, err := gitrepo.CleanPath(folder)
		return err == nil && isBelow(dir, folder)
	}
	field, advice := "", ""
	switch media := s.LayerSelector.MediaType; {
	case len(s.Include) > 0:
		field, advice = "include", "put the files into one repository"
	case s.RecurseSubmodules:
		field, advice = "recurseSubmodules", "remove it if the folder needs no submodule, else copy the submodule's files into the repository"
	case len(s.SparseCheckout) > 0 && !slices.ContainsFunc(s.SparseCheckout, inSparse):
		field, advice = "sparseCheckout", fmt.Sprintf("add the folder %q to it, or remove it", dir)
	case media != "" && !strings.HasPrefix(media, "application/vnd.cncf.flux.content.") && !strings.HasPrefix(media, "application/vnd.cncf.helm.chart.content."):
		field, advice = "layerSelector", `push the files with "flux push artifact", and remove it`
	default:
		return nil
	}
	return fmt.Errorf("the %s %q has spec.%s, which embedded delivery does not follow: %s", kind, name, field, advice)
}
