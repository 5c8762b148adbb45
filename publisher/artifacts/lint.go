package artifacts

import (
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

// Lint says, in one note at the first cluster type that is concerned, what assignments need
// without naming it by digest or commit. Types that ask for pins are not: publishing finds those out.
func Lint(report *lint.Report) []finding.Finding {
	var first, used string
	var example bundle.Artifact
	artifacts, types := map[string]bool{}, 0
	for _, ct := range report.Rendered.ClusterTypes {
		if IsPinned(ct) {
			continue
		}
		concerned := false
		for _, a := range Of(ct.Assignments) {
			if !a.Unresolved {
				continue
			}
			if first == "" {
				first, example, used = ct.Name, a, a.UsedBy[0]
			}
			concerned, artifacts[string(a.Type)+" "+a.Reference] = true, true
		}
		if concerned {
			types++
		}
	}
	if types == 0 {
		return nil
	}
	return []finding.Finding{{
		Code: finding.CodeMovingReference, Note: true, Position: report.ClusterTypes[first],
		Message: fmt.Sprintf("artifacts without digest or commit: %d, on %d of the cluster types, such as %s %s for %s/%s",
			len(artifacts), types, example.Type, example.Reference, first, used),
		Hint: fmt.Sprintf("name them by digest or commit, or have publishing do so with the annotation %s: %s", scheduler.PinAnnotation, scheduler.PinCommit),
	}}
}
