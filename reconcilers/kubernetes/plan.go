package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// plan is the desired state of an assignment: its manifests, in the namespaces and versions in which they are
// applied, and its health conditions. It has no live state.
type plan struct {
	engine     *Engine                // nil if the objects are the purpose themselves
	scheme     func() *runtime.Scheme // of Kubernetes' own kinds
	objects    []manifest
	defined    map[schema.GroupKind]bool // kinds that the assignment itself defines; true: namespaced
	origins    map[object.ObjMetadata]string
	adapted    map[object.ObjMetadata]string // to the version that their manifest names
	conditions map[object.ObjMetadata][]manifests.HealthCondition
}

func newPlan(engine *Engine, scheme func() *runtime.Scheme) *plan {
	return &plan{
		engine: engine, scheme: scheme,
		defined: map[schema.GroupKind]bool{}, origins: map[object.ObjMetadata]string{}, adapted: map[object.ObjMetadata]string{},
		conditions: map[object.ObjMetadata][]manifests.HealthCondition{},
	}
}

// mapper returns the cluster's mapping of a kind; see Reconciler.mapping.
type mapper func(ctx context.Context, kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error)

// place puts objects without a namespace into the assignment's, and returns an error for duplicates.
func (p *plan) place(ctx context.Context, mapping mapper, namespace string) error {
	for _, m := range p.objects {
		if utils.IsCRD(m.Unstructured) {
			group, _, _ := unstructured.NestedString(m.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(m.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(m.Object, "spec", "scope")
			p.defined[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
		}
	}
	for _, m := range p.objects {
		from, err := p.adapt(ctx, mapping, m)
		if err != nil {
			return err
		}
		namespaced, err := p.namespaced(ctx, mapping, m)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s: %w", m.origin, m.subject(), err)
		case !namespaced:
			m.SetNamespace("")
		case m.GetNamespace() == "" && p.engines(m.GroupVersionKind().GroupKind()) && p.engine.Namespace != "":
			m.SetNamespace(p.engine.Namespace)
		case m.GetNamespace() == "" && namespace == "":
			return invalid("%s: %s names no namespace, and neither does its assignment", m.origin, m.subject())
		case m.GetNamespace() == "":
			m.SetNamespace(namespace)
		}
		if first, twice := p.origins[m.id()]; twice {
			return invalid("%s: %s is also in %s", m.origin, m.subject(), first)
		}
		p.origins[m.id()] = m.origin
		if from != "" {
			p.adapted[m.id()] = from
		}
	}
	return nil
}

func (p *plan) namespaced(ctx context.Context, mapping mapper, m manifest) (bool, error) {
	gvk := m.GroupVersionKind()
	if namespaced, ok := p.defined[gvk.GroupKind()]; ok {
		return namespaced, nil
	}
	mapped, err := mapping(ctx, gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	return mapped.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// engines reports whether a kind is the engine's, where there is one.
func (p *plan) engines(kind schema.GroupKind) bool {
	_, here := p.defined[kind]
	return p.engine != nil && !here && p.engine.Owns(kind)
}

// adapt changes an object of the engine to the version that the cluster serves, and returns the manifest's version if that
// differs.
func (p *plan) adapt(ctx context.Context, mapping mapper, m manifest) (from string, err error) {
	gvk := m.GroupVersionKind()
	if !p.engines(gvk.GroupKind()) {
		return "", nil
	}
	served, err := mapping(ctx, gvk.GroupKind(), gvk.Version) // a preference for that version
	if meta.IsNoMatchError(err) {
		served, err = mapping(ctx, gvk.GroupKind())
	}
	switch {
	case meta.IsNoMatchError(err):
		return "", reconcilers.ReleaseError(KindNotServed, "%s: %s: the cluster does not serve %s: %s", m.origin, m.subject(), gvk.GroupKind(), p.engine.Install)
	case err != nil:
		return "", err
	case served.GroupVersionKind == gvk:
		return "", nil
	}
	m.SetGroupVersionKind(served.GroupVersionKind)
	return gvk.Version, nil
}

// held reports whether the engine needs an object until the engine's other objects are gone.
func (p *plan) held(e entry) bool {
	return p.engines(e.groupKind()) && p.engine.Holds != nil && p.engine.Holds(e.groupKind())
}

// occupied reports whether the assignment still has objects in a namespace.
func (p *plan) occupied(namespace string) bool {
	return slices.ContainsFunc(p.objects, func(m manifest) bool { return m.GetNamespace() == namespace })
}

// has reports whether the plan holds an object.
func (p *plan) has(id object.ObjMetadata) bool {
	return slices.ContainsFunc(p.objects, func(m manifest) bool { return m.id() == id })
}

// adaptedNote lists the kinds that are applied in another version than that of their manifests, or "".
func (p *plan) adaptedNote() string {
	kinds := map[string]bool{}
	for _, m := range p.objects {
		if from, ok := p.adapted[m.id()]; ok {
			kinds[fmt.Sprintf("%s applied as %s, not %s", m.GetKind(), m.GroupVersionKind().Version, from)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), "; ")
}
