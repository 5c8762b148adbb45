package platform

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// environmentsFolder is the folder of Environment objects, which is read although platforms usually
// ignore it.
const environmentsFolder = ".environments"

// ignoringFS hides the files that the .sourceignore files of a source list, as Flux does when it fetches for Kalypso.
type ignoringFS struct {
	fs.FS
	files gitrepo.Ignore
}

// Ignoring returns files without those that its .sourceignore files list, as platforms are read. It serves one goroutine.
func Ignoring(files fs.FS) fs.FS { return ignoring(files) }

func ignoring(files fs.FS) *ignoringFS {
	return &ignoringFS{files, gitrepo.Ignore{FS: files}}
}

// withoutChart leaves out what belongs to a chart in the folder, which has a Chart.yaml then: its templates are no YAML.
func withoutChart(entries []fs.DirEntry) []fs.DirEntry {
	const chart = "Chart.yaml"
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == chart && e.Type().IsRegular() }) {
		return entries
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		if e.IsDir() {
			return slices.Contains([]string{"templates", "charts", "crds"}, e.Name())
		}
		return e.Name() == chart || strings.HasPrefix(e.Name(), "values") && e.Type().IsRegular()
	})
}

func (i *ignoringFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(i.FS, name)
	if err != nil {
		return nil, err
	}
	entries = withoutChart(entries)
	patterns, err := i.files.In(name)
	if err != nil || len(patterns) == 0 {
		return entries, err
	}
	matcher := gitignore.NewMatcher(patterns)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		elements := gitrepo.Elements(path.Join(name, e.Name()))
		return elements[0] != environmentsFolder && matcher.Match(elements, e.IsDir())
	}), nil
}
