package artifacts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// CheckCarry makes the assignments of ct failures whose artifacts agents could not bring to their stores, though the
// annotation wherry.dev/carry asks for it: those without a digest, and those that are in no registry. Unless final is true,
// it passes over assignments that are to be pinned or embedded. Without the annotation it costs nothing.
func (f *Finder) CheckCarry(ct *scheduler.ClusterTypeResult, final bool) {
	problems := f.uncarried(ct, final)
	if len(problems) == 0 {
		return
	}
	var kept []scheduler.Assignment
	for _, a := range ct.Assignments {
		if err := problems[a.Name]; err != nil {
			ct.Failures = append(ct.Failures, scheduler.Failure{Name: a.Name, ClusterType: ct.Name, Reason: scheduler.CarryFailed, Err: fmt.Errorf("carry: %w", err)})
			continue
		}
		kept = append(kept, a)
	}
	ct.Assignments = kept
	slices.SortStableFunc(ct.Failures, func(a, b scheduler.Failure) int { return strings.Compare(a.Name, b.Name) })
}

// uncarried returns why the artifacts of assignments cannot be carried, by their names.
func (f *Finder) uncarried(ct *scheduler.ClusterTypeResult, final bool) map[string]error {
	asks := slices.DeleteFunc(slices.Clone(ct.Assignments), func(a scheduler.Assignment) bool {
		return a.Carry == "" || !final && (IsPinned(*ct) || IsEmbedded(a))
	})
	if len(asks) == 0 {
		return nil
	}
	needs, problems := f.Of(asks), map[string]error{}
	for _, a := range asks {
		var errs []error
		for _, n := range bundle.ArtifactsOf(needs, a.Name) {
			if err := uncarried(a, n); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			problems[a.Name] = errors.Join(errs...)
		}
	}
	return problems
}

const howToResolve = "annotate the cluster type with " + scheduler.PinAnnotation + ": " + scheduler.PinCommit + ", use wherry.dev/delivery: embedded, or name a digest"

func uncarried(a scheduler.Assignment, n bundle.Artifact) error {
	line := bundle.Assignment{Carry: a.Carry, Delivery: a.Delivery}
	switch {
	case line.Carries(n) && n.Unresolved && IsEmbedded(a): // else it would have been resolved
		return fmt.Errorf("%s %s has no digest, as its registry could not be asked, or lacks it: see that the registry answers here, or name a digest", n.Type, n.Reference)
	case line.Carries(n) && n.Unresolved:
		return fmt.Errorf("%s %s has no digest: %s", n.Type, n.Reference, howToResolve)
	case IsEmbedded(a), line.Carries(n):
		return nil
	case a.Carry == bundle.CarryAll:
		return fmt.Errorf("%s %s is in no registry, and cannot be carried: use wherry.dev/delivery: embedded", n.Type, n.Reference)
	case n.Unresolved && (n.Type == bundle.ArtifactGit || n.Type == bundle.ArtifactOCI):
		return fmt.Errorf("the images in %s %s are not known: %s", n.Type, n.Reference, howToResolve)
	}
	return nil
}
