package diff

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/scheduler"
)

// Right is a kind of objects in a namespace, or in the whole cluster if that is empty.
type Right struct {
	Kind      string `json:"kind"` // such as Service, or Job.batch
	Namespace string `json:"namespace,omitempty"`
}

func (r Right) String() string {
	if r.Namespace == "" {
		return r.Kind + " in the cluster"
	}
	return r.Kind + " in namespace " + r.Namespace
}

// lacking returns the rights that agents need for what is added or changed, and needed for nothing in the old release: those
// that were installed with the rights for that release lack them. Files that no agent could read need nothing.
func lacking(now []scheduler.Assignment, changes []AssignmentDifference, old *Tree) ([]Right, error) {
	wanted := map[Right]bool{}
	for _, a := range now {
		i, found := slices.BinarySearchFunc(changes, a.Name, func(d AssignmentDifference, name string) int { return strings.Compare(d.Name, name) })
		if !found || changes[i].Change == ChangeRemoved {
			continue
		}
		for _, f := range a.Files {
			add(wanted, a.Adapter, a.Namespace, f.Path, f.Data)
		}
	}
	for _, a := range old.Listed {
		if len(wanted) == 0 {
			return nil, nil
		}
		files, err := old.Read(a)
		if err != nil {
			return nil, err
		}
		had := map[Right]bool{}
		for path, data := range files {
			add(had, a.Adapter, a.Namespace, path, data)
		}
		for r := range had {
			delete(wanted, r)
		}
	}
	var all []Right
	for r := range wanted {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Right) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

// add adds the rights that an agent needs for a file of an assignment.
func add(rights map[Right]bool, adapter, namespace, path string, data []byte) {
	if !slices.Contains([]string{"kubernetes", "flux", "argo"}, adapter) || adapter != "kubernetes" && isEmbedded(path) || !manifests.IsFile(path) {
		return
	}
	objects, err := manifests.Decode(path, data)
	if err != nil && !errors.As(err, new(*manifests.Mistake)) {
		return
	}
	for _, o := range objects {
		rights[rightFor(o, namespace)] = true
	}
}

func rightFor(o *unstructured.Unstructured, namespace string) Right {
	kind := o.GroupVersionKind()
	r := Right{Kind: strings.TrimSuffix(kind.Kind+"."+kind.Group, "."), Namespace: cmp.Or(o.GetNamespace(), namespace)}
	switch namespaced, known := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: kind.Kind}); {
	case kind.Kind == "Namespace" && kind.Group == "":
		r.Namespace = o.GetName() // a Role in it holds the right to change it
	case known && !namespaced:
		r.Namespace = ""
	}
	return r
}
