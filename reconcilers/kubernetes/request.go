package kubernetes

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Applied is what an apply has done, as Engine.Request sees it.
type Applied struct {
	// Fresh is true until all objects of this content have been applied once.
	Fresh bool

	pass *pass
}

// Has reports whether the assignment holds an object.
func (a Applied) Has(id object.ObjMetadata) bool {
	return slices.ContainsFunc(a.pass.objects, func(m manifest) bool { return m.id() == id })
}

// Changed reports whether this apply has created or changed an object.
func (a Applied) Changed(id object.ObjMetadata) bool {
	return slices.ContainsFunc(a.pass.changes, func(c reconcilers.Change) bool { return c.Object == utils.FmtObjMetadata(id) })
}

// request has the engine look again at objects of its own that stay as they were, where what they depend on
// did not. The annotations are no part of the manifests, so that they are no drift, whoever changes them.
func (p *pass) request(ctx context.Context, fresh bool) error {
	if p.r.engine == nil || p.r.engine.Request == nil {
		return nil
	}
	done := Applied{Fresh: fresh, pass: p}
	for _, m := range p.objects {
		if !p.engines(m.GroupVersionKind().GroupKind()) || done.Changed(m.id()) {
			continue
		}
		if annotations := p.r.engine.Request(p.live[m.id()], done); len(annotations) > 0 {
			if err := p.annotate(ctx, m, annotations); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) annotate(ctx context.Context, m manifest, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.live[m.id()].GetUID(), "annotations": annotations}})
	if err != nil {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(m.GroupVersionKind())
	live.SetNamespace(m.GetNamespace())
	live.SetName(m.GetName())
	err = p.acting(m.id()).Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager(p.owner)))
	if err != nil {
		return &objectError{origin: m.origin, err: err}
	}
	p.live[m.id()] = live
	p.r.seen.agree(m, live)
	return nil
}
