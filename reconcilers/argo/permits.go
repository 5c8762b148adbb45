package argo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// permits returns an error if the AppProject of an embedded Application does not let it take content from the agent's
// endpoint. Argo CD itself would say so only after the old source is gone. A project that cannot be read is left to Argo CD.
func (e engine) permits(ctx context.Context, c kubernetes.Cluster, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() != applicationKind || !rewrite.IsServed(o) {
			continue
		}
		a, err := parse(o)
		if err != nil {
			return err
		}
		repository := text(a.Spec.Source, "repoURL")
		project, own, err := e.projectOf(ctx, c, a, objects)
		switch {
		case apierrors.IsForbidden(err):
			continue
		case err != nil:
			return err
		case project == nil:
			continue
		}
		patterns, _, _ := unstructured.NestedStringSlice(project.Object, "spec", "sourceRepos")
		if rewrite.Permits(patterns, repository) {
			continue
		}
		line := repository[:strings.LastIndex(repository, "/")] + "/*"
		denied := fmt.Errorf("%s: AppProject %s does not permit the agent's endpoint as a source: add %q to its spec.sourceRepos", a.subject(), a.project(), line)
		fault := reconcilers.FaultSite
		if own {
			fault = reconcilers.FaultRelease
		}
		return &reconcilers.Error{Reason: SourceNotPermitted, Fault: fault, Err: denied}
	}
	return nil
}

// projectOf returns the AppProject of an Application as it will be, or nil if there is none. Own is true for one of the
// assignment's objects. Argo CD looks for projects in its own namespace.
func (e engine) projectOf(ctx context.Context, c kubernetes.Cluster, a *application, objects []*unstructured.Unstructured) (project *unstructured.Unstructured, own bool, err error) {
	key := types.NamespacedName{Namespace: cmp.Or(e.Namespace, a.Metadata.Namespace), Name: a.project()}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == projectKind && o.GetNamespace() == key.Namespace && o.GetName() == key.Name
	})
	if i >= 0 {
		return objects[i], true, nil
	}
	project, err = c.Get(ctx, projectKind, key)
	return project, false, err
}
