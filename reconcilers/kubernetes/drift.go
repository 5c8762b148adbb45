package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/api/equality"
)

// drift names the objects that are missing or differ from their manifests, with the paths of their fields and without
// values. It is empty if there are none.
func (a *access) drift(ctx context.Context) (string, error) {
	var found []string
	for _, m := range a.plan.objects {
		live, err := a.look(ctx, m.Unstructured)
		if err != nil {
			return "", err
		}
		if live == nil {
			found = append(found, m.subject()+" is missing")
			continue
		}
		if a.r.seen.same(m, live) {
			continue
		}
		change, was, would, err := a.manager.Diff(ctx, m.Unstructured, ssa.DefaultDiffOptions())
		switch {
		case err != nil:
			return "", err
		case change.Action == ssa.UnchangedAction:
			a.r.seen.agree(m, live)
		case change.Action == ssa.CreatedAction: // it was deleted just now
			found = append(found, m.subject()+" is missing")
		case change.Action == ssa.ConfiguredAction:
			found = append(found, m.subject()+" differs in "+strings.Join(differences(was.Object, would.Object), ", "))
		}
	}
	for _, s := range a.shared {
		differs, err := a.shareDiffers(ctx, s)
		if err != nil {
			return "", err
		}
		if differs != "" {
			found = append(found, differs)
		}
	}
	return List(found, "; "), nil
}

// unpersonal lists the parts of an object that no manifest determines.
var unpersonal = []string{".status", ".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields"}

// differences returns the paths of the fields, at most three, in which two objects differ.
func differences(a, b map[string]any) []string {
	const most = 3
	paths := slices.DeleteFunc(walk("", a, b), func(path string) bool { return slices.Contains(unpersonal, path) })
	if len(paths) > most {
		paths = append(paths[:most:most], fmt.Sprintf("and %d more", len(paths)-most))
	}
	return paths
}

func walk(path string, a, b any) []string {
	left, ok := a.(map[string]any)
	right, alsoOK := b.(map[string]any)
	if !ok || !alsoOK {
		if equality.Semantic.DeepEqual(a, b) {
			return nil
		}
		return []string{path}
	}
	keys := map[string]bool{}
	for _, side := range []map[string]any{left, right} {
		for key := range side {
			keys[key] = true
		}
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := path + "." + key
		if strings.ContainsAny(key, "./") {
			at = fmt.Sprintf("%s[%s]", path, key)
		}
		out = append(out, walk(at, left[key], right[key])...)
	}
	return out
}
