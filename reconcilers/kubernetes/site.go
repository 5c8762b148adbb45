package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// withValues adds the ConfigMaps that an assignment with site values needs, and has the engine's objects read them.
func (r *Reconciler) withValues(a reconcilers.Assignment, objects []manifest, shared []rewrite.Shared) []rewrite.Shared {
	if len(a.Values) == 0 {
		return shared
	}
	namespaces := map[string]bool{a.Namespace: a.Namespace != ""}
	for _, m := range objects {
		if r.engine == nil || r.engine.Substitute == nil || !r.engine.Substitute(m.Unstructured, a.Assignment) {
			continue
		}
		namespace := m.GetNamespace()
		for _, other := range []string{r.engine.Namespace, a.Namespace} {
			if namespace == "" {
				namespace = other
			}
		}
		namespaces[namespace] = namespace != ""
	}
	data := map[string]any{}
	for key, text := range a.Values {
		data[sitevalues.Variable(key)] = text
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if !namespaces[namespace] {
			continue
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}}
		u.SetNamespace(namespace)
		u.SetName(rewrite.SiteConfigMap)
		shared = append(shared, rewrite.Shared{Unstructured: u, Union: true})
	}
	return shared
}

// namespaceThere reports whether a namespace exists. An agent that may not know takes it for granted.
func (a *access) namespaceThere(ctx context.Context, name string) (bool, error) {
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(namespaceKind)
	namespace.SetName(name)
	if live, known := a.live[object.UnstructuredToObjMetadata(namespace)]; known {
		return live != nil, nil
	}
	err := a.r.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	}
	return err == nil, err
}

// shareUnion brings the assignment's keys to a shared object. An object in a namespace that does not exist yet comes with a
// later apply: nothing can use it before.
func (a *access) shareUnion(ctx context.Context, s rewrite.Shared, live *unstructured.Unstructured) error {
	manager := fieldManager(a.owner)
	data, _, _ := unstructured.NestedMap(s.Object, "data")
	if live != nil && holds(live, s) && usedBySelf(live, a.owner) && slices.Equal(managedData(live, manager), slices.Sorted(maps.Keys(data))) {
		return nil
	}
	base := entryOf(manifest{s.Unstructured, ""}, false).bare()
	if live == nil {
		if there, err := a.namespaceThere(ctx, s.GetNamespace()); err != nil || !there {
			return err
		}
		labelled := base.DeepCopy()
		labelled.SetLabels(map[string]string{SharedLabel: "true"})
		var err error
		if live, err = a.applyShared(ctx, labelled, SharedManager, false); err != nil {
			return err
		}
	}
	base.SetAnnotations(map[string]string{userPrefix + a.owner: ""})
	base.SetUID(live.GetUID()) // another assignment may have deleted it just now
	base.Object["data"] = data
	live, err := a.applyShared(ctx, base, manager, true)
	a.live[object.UnstructuredToObjMetadata(s.Unstructured)] = live
	return err
}

// managedData lists the keys of data that a manager owns, sorted.
func managedData(live *unstructured.Unstructured, manager string) []string {
	var keys []string
	for _, f := range live.GetManagedFields() {
		if f.Manager != manager || f.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Data {
			if name, ok := strings.CutPrefix(key, "f:"); ok {
				keys = append(keys, name)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// claimedByAssignments reports whether err is a conflict with other assignments alone, which get the same value of the site
// as soon as they are applied.
func claimedByAssignments(err error) bool {
	found := claims(err)
	for _, c := range found {
		if c.applied && !strings.HasPrefix(c.manager, fieldManager("")) {
			return false
		}
	}
	return len(found) > 0
}
