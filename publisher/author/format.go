package author

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Formatted are the files that Format changes, with paths from the current folder.
type Formatted struct {
	FileSet
	Mistakes []error // of files that are no YAML, which stay as they are
}

// Apply writes the files: all of them or none.
func (f *Formatted) Apply() error { return (&Plan{FileSet: f.FileSet}).Apply() }

// Format returns what becomes of files, and of the YAML files in folders that a platform would read, in their canonical form.
func Format(ctx context.Context, names []string) (*Formatted, error) {
	texts := map[string][]byte{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, wrong("", "%w", err)
		}
		if !info.IsDir() {
			if texts[name], err = ReadFile(name); err != nil {
				return nil, wrong("", "%w", err)
			}
			continue
		}
		p, err := readFolder(ctx, name)
		if err != nil {
			return nil, err
		}
		if p.Settings != nil {
			p.Files = append(p.Files, p.Settings)
		}
		for _, f := range p.Files {
			if !strings.HasSuffix(f.Name, ".json") {
				texts[filepath.Join(name, filepath.FromSlash(f.Name))] = f.Data
			}
		}
	}
	done := &Formatted{}
	for name, before := range texts {
		after, err := yamltext.Format(before)
		if err != nil {
			line, text := yamltext.Mistake(before, err)
			done.Mistakes = append(done.Mistakes, fmt.Errorf("%s: %s", finding.Position{File: filepath.ToSlash(name), Line: line}, text))
		} else if string(after) != string(before) {
			done.Changes = append(done.Changes, FileChange{Name: filepath.ToSlash(name), Before: before, After: after})
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	slices.SortFunc(done.Changes, func(a, b FileChange) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(done.Mistakes, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return done, nil
}
