package author

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

// Plan is a change of a platform that has been checked and not yet made.
type Plan struct {
	FileSet
	// Edits lists the places that change, for people.
	Edits []Edit
	// Notes name places that the plan does not reach, and its consequences for clusters.
	Notes []string
	// Warnings are errors of lint that the platform would have and does not have yet.
	Warnings []finding.Finding
}

// Edit is a place that changes.
type Edit struct {
	finding.Position
	Text string // such as: ClusterType "drone": spec.reconciler
}

// Apply writes the plan: all of it or nothing.
func (p *Plan) Apply() error {
	err := p.FileSet.Apply()
	switch {
	case errors.Is(err, ErrChanged):
		return wrong("run the command again", "%w", err)
	case errors.Is(err, fs.ErrExist):
		return wrong("choose another name", "%w", err)
	}
	return err
}

// contents returns the files as they are, by name.
func (p *Platform) contents() map[string][]byte {
	all := map[string][]byte{}
	for _, f := range p.Files {
		all[f.Name] = f.Data
	}
	return all
}

// after returns the files as a set of changes makes them.
func (p *Platform) after(set FileSet) map[string][]byte {
	all := p.contents()
	for _, c := range set.Changes {
		if delete(all, c.Name); c.After != nil && isObjectFile(c.Name) {
			all[c.Name] = c.After
		}
	}
	for _, m := range set.Moves {
		for name, data := range maps.Clone(all) {
			if rest, below := strings.CutPrefix(name, m.From+"/"); below {
				delete(all, name)
				all[path.Join(m.To, rest)] = data
			} else if name == m.From {
				delete(all, name)
				all[m.To] = data
			}
		}
	}
	return all
}

func isObjectFile(name string) bool {
	ext := path.Ext(name)
	return name != SettingsFile && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// check loads the platform as it is and as the plan makes it. Mistakes that only the second has are an error.
func (p *Platform) check(ctx context.Context, plan *Plan) error {
	plan.Root = p.Root
	before, err := p.mistakes(ctx, p.contents())
	if err != nil {
		return err
	}
	after, err := p.mistakes(ctx, p.after(plan.FileSet))
	if err != nil {
		return err
	}
	if added := slices.Concat(difference(after.load, before.load), difference(after.checks, before.checks), difference(after.unread, before.unread)); len(added) > 0 {
		var errs []error
		for _, f := range added {
			errs = append(errs, finding.Errorf(f.Code, f.Position, f.Hint, "%s", f.Message))
		}
		return &Error{Err: finding.Join(errs), Hint: "nothing was written"}
	}
	plan.Warnings = difference(after.lint, before.lint)
	return nil
}

// difference returns the findings that only the first list has. Lines do not count, since they move.
func difference(after, before []finding.Finding) []finding.Finding {
	key := func(f finding.Finding) string { return f.Code + "\x00" + f.File + "\x00" + f.Message }
	known := map[string]bool{}
	for _, f := range before {
		known[key(f)] = true
	}
	var added []finding.Finding
	for _, f := range after {
		if !known[key(f)] {
			known[key(f)] = true
			added = append(added, f)
		}
	}
	return added
}

// mistakes are those of a platform: load keeps it from being read, and checks from being rendered, unread are fields and annotations
// without an effect, and lint holds findings in it.
type mistakes struct{ load, checks, unread, lint []finding.Finding }

// unread are the codes of what somebody writes and nothing reads, most probably because of a typo.
var unread = []string{finding.CodeUnknownField, finding.CodeUnknownAnnotation, finding.CodeAnnotationValue, finding.CodeSelectorField}

// Mistakes returns what keeps the platform from being loaded.
func (p *Platform) Mistakes(ctx context.Context) ([]finding.Finding, error) {
	m, err := p.mistakes(ctx, p.contents())
	return m.load, err
}

func (p *Platform) mistakes(ctx context.Context, content map[string][]byte) (mistakes, error) {
	var all mistakes
	tree := newMemory(content)
	m := scheduler.NewModel("")
	if err := m.Load(ctx, scheduler.Source{FS: tree, OnlyEnvironments: true}); err != nil && ctx.Err() != nil {
		return all, ctx.Err()
	}
	folders := map[string]string{} // of environments, by name
	for _, e := range m.Environments() {
		if folder, err := gitrepo.CleanPath(e.ControlPlane.Path); err == nil && folder != "." {
			if _, ok := tree.folders[folder]; ok {
				folders[e.Name] = folder
			}
		}
	}
	hidden := slices.Sorted(maps.Values(folders))
	environments := slices.Sorted(maps.Keys(folders))
	if len(environments) == 0 {
		environments = []string{p.Own}
	}
	for _, e := range environments {
		model := scheduler.NewModel(e)
		var errs []error
		if folder := folders[e]; folder != "" {
			own, err := fs.Sub(tree, folder)
			if err != nil {
				return all, err
			}
			errs = append(errs, model.Load(ctx, scheduler.Source{FS: own, Name: p.display(folder)}))
		}
		errs = append(errs, model.Load(ctx, scheduler.Source{FS: gitrepo.Guard(tree, hidden...), Name: p.display(".")}))
		if p.shared != nil {
			errs = append(errs, model.Load(ctx, scheduler.Source{FS: newMemory(p.shared.contents()), Name: p.shared.Root, Base: scheduler.MainBase}))
		}
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		ok := true
		for _, err := range errs {
			found := finding.In(err)
			if err != nil && len(found) == 0 {
				return all, err
			}
			all.load, ok = append(all.load, found...), ok && err == nil
		}
		for _, f := range model.Findings() {
			if slices.Contains(unread, f.Code) {
				all.unread = append(all.unread, f)
			}
		}
		if !ok {
			continue
		}
		all.checks = append(all.checks, finding.In(model.CheckErrors())...)
		if e == "" {
			continue
		}
		report, err := lint.Run(ctx, model, lint.Options{})
		if err != nil {
			return all, err
		}
		for _, f := range report.Findings {
			if slices.Contains(unread, f.Code) {
				all.unread = append(all.unread, f)
				continue
			}
			if f.Severity() == "error" && !slices.Contains([]string{finding.CodeUnreadSource, finding.CodeNoRegistration, finding.CodeCheck}, f.Code) {
				all.lint = append(all.lint, f)
			}
		}
	}
	return all, nil
}

// display returns the prefix of file names in messages.
func (p *Platform) display(folder string) string {
	name := filepath.ToSlash(filepath.Join(p.Root, filepath.FromSlash(folder)))
	if name == "." {
		return ""
	}
	return name
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
