package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// Changes writes the changes of one cluster type's assignments for a terminal: a line for each of them, removals first, then
// the values that differ, or with patches the differences of the files.
func Changes(w io.Writer, clusterType string, changes []diff.AssignmentDifference, patches bool) error {
	var b bytes.Buffer
	for _, part := range []struct {
		change diff.Change
		mark   string
	}{{diff.ChangeRemoved, "-"}, {diff.ChangeAdded, "+"}, {diff.ChangeChanged, "~"}} {
		for _, a := range changes {
			if a.Change != part.change {
				continue
			}
			if a.Change == diff.ChangeChanged || patches {
				b.WriteByte('\n') // what follows belongs together
			}
			fmt.Fprintf(&b, "%s %s %s/%s\n", part.mark, a.Change, show.Line(clusterType), show.Line(a.Name))
			if a.Change == diff.ChangeChanged {
				for _, l := range linesOf(a) {
					if !patches || l.key == "" {
						fmt.Fprintf(&b, "    %s\n", show.Line(l.String()))
					}
				}
			}
			if patches {
				writePatches(&b, a)
			}
		}
	}
	_, err := w.Write(bytes.TrimLeft(b.Bytes(), "\n"))
	return err
}

func writePatches(b *bytes.Buffer, a diff.AssignmentDifference) {
	for _, f := range a.Files {
		name := show.Line(a.Name + "/" + f.Path)
		old, now := "a/"+name, "b/"+name
		switch f.Change {
		case diff.ChangeAdded:
			old = "/dev/null"
		case diff.ChangeRemoved:
			now = "/dev/null"
		}
		fmt.Fprintf(b, "--- %s\n+++ %s\n%s", old, now, f.Patch)
		if f.PatchLeft > 0 {
			fmt.Fprintf(b, "… and %s\n", show.Count(f.PatchLeft, "more line"))
		}
	}
}

// SiteChanges writes the site values of one cluster type that differ for a terminal; nothing for nil.
func SiteChanges(w io.Writer, clusterType string, s *diff.SitesDifference) error {
	var b bytes.Buffer
	marks := map[diff.Change]string{diff.ChangeAdded: "+", diff.ChangeRemoved: "-", diff.ChangeChanged: "~"}
	for _, g := range siteChanges(clusterType, s) {
		fmt.Fprintf(&b, "\n%s %s %s\n", marks[g.change], g.change, show.Line(strings.Join(g.names, ", ")))
		for _, l := range g.lines {
			fmt.Fprintf(&b, "    %s\n", show.Line(l.String()))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ChangeCounts sums changes up: "1 added, 0 removed, 2 changed, 5 unchanged".
func ChangeCounts(changes []diff.AssignmentDifference, unchanged int) string {
	n := (&diff.TypeDifference{Changes: changes}).Count()
	return strings.Join([]string{
		fmt.Sprintf("%d added", n.Added), fmt.Sprintf("%d removed", n.Removed), fmt.Sprintf("%d changed", n.Changed), fmt.Sprintf("%d unchanged", unchanged),
	}, ", ")
}
