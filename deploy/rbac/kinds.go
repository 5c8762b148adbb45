package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// kinds holds the resource of each kind without asking the cluster, which may not exist yet, or not be reachable from the
// machine that writes its permissions.
type kinds struct {
	defined map[schema.GroupKind]needs.Resource
	guessed map[schema.GroupKind]needs.Resource
}

func newKinds(bundles []*needs.Needs, more map[schema.GroupKind]needs.Resource) *kinds {
	k := &kinds{defined: map[schema.GroupKind]needs.Resource{}, guessed: map[schema.GroupKind]needs.Resource{}}
	for _, n := range bundles {
		maps.Copy(k.defined, n.Defined)
	}
	maps.Copy(k.defined, more)
	return k
}

// engines lists the groups whose kinds are all namespaced and have regular plurals.
var engines = []string{".toolkit.fluxcd.io", argoGroup}

// resource returns the resource of o's kind: from its definition, from Kubernetes' own kinds, or by
// a guess, which is recorded.
func (k *kinds) resource(o needs.Object) needs.Resource {
	kind := o.Kind.GroupKind()
	if r, ok := k.defined[kind]; ok {
		return r
	}
	plural, _ := meta.UnsafeGuessKindToResource(o.Kind)
	r := needs.Resource{Plural: plural.Resource, Namespaced: true}
	namespaced, builtIn := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind})
	switch {
	case builtIn:
		r.Namespaced = namespaced
	case !slices.ContainsFunc(engines, func(group string) bool { return strings.HasSuffix(kind.Group, group) }):
		k.guessed[kind] = r
	}
	return r
}

// guesses returns the recorded guesses, each with advice to replace it.
func (k *kinds) guesses() []string {
	var all []string
	for kind, r := range k.guessed {
		all = append(all, fmt.Sprintf("%s of %s is guessed to be %s, in namespaces: give its CustomResourceDefinition by --crd FILE", kind.Kind, kind.Group, r.Plural))
	}
	return all
}
