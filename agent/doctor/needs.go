package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// adapterOf returns the adapter of an assignment.
func (e *examination) adapterOf(a bundle.Assignment) string {
	return cmp.Or(e.Adapters.Only, a.Adapter)
}

// applied lists the assignments whose adapter applies them to the cluster.
func (e *examination) applied() []bundle.Assignment {
	return slices.DeleteFunc(slices.Clone(e.content.Assignments), func(a bundle.Assignment) bool {
		return !slices.Contains([]string{"kubernetes", "flux", "argo"}, e.adapterOf(a))
	})
}

// onCluster returns the objects of assignments whose adapter applies them to the cluster, each kind and
// namespace once, and how many assignments those are.
func (e *examination) onCluster() (objects []needs.Object, assignments int) {
	return e.objectsOf(func(bundle.Assignment) bool { return true })
}

// objectsOf is onCluster for some of the assignments.
func (e *examination) objectsOf(wanted func(bundle.Assignment) bool) (objects []needs.Object, assignments int) {
	for _, a := range e.applied() {
		if !wanted(a) {
			continue
		}
		assignments++
		objects = append(objects, e.content.Objects[a.Name]...)
	}
	slices.SortFunc(objects, func(a, b needs.Object) int {
		return cmp.Or(cmp.Compare(a.Kind.Group, b.Kind.Group), cmp.Compare(a.Kind.Kind, b.Kind.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind.Version, b.Kind.Version))
	})
	return slices.Compact(objects), assignments
}

// uses reports whether an assignment is for an adapter.
func (e *examination) uses(adapter string) bool {
	return e.content != nil && slices.ContainsFunc(e.content.Assignments, func(a bundle.Assignment) bool { return e.adapterOf(a) == adapter })
}

func checkAdapters(_ context.Context, e *examination) diagnosis.Finding {
	if e.content == nil {
		return diagnosis.Skipf("no release could be read")
	}
	count, missing := map[string]int{}, []string{}
	for _, a := range e.content.Assignments {
		count[e.adapterOf(a)]++
	}
	for name, n := range count {
		if !e.Adapters.Configured[name] {
			missing = append(missing, fmt.Sprintf("%s, which %d of %d assignments are for", name, n, len(e.content.Assignments)))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return diagnosis.Failf("ansible needs --ansible-playbook, directory --directory-root, zarf --zarf, the others a cluster: --kubeconfig outside of one; --adapter takes another than the release names", "not configured: %s", strings.Join(missing, "; "))
	}
	return diagnosis.Okf("all %d assignments have one", len(e.content.Assignments))
}
