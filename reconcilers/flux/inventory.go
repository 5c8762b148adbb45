package flux

import (
	"context"
	"fmt"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

// judgeInventory judges the objects that a Kustomization has applied. With spec.wait, Flux has done so itself;
// without it, Ready only means that the API server has accepted the objects.
func judgeInventory(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (kubernetes.Verdict, error) {
	if waits, _, _ := unstructured.NestedBool(o.Object, "spec", "wait"); waits {
		return kubernetes.Verdict{State: bundle.Compliant}, nil
	}
	worst := kubernetes.Verdict{State: bundle.Compliant}
	entries, _, _ := unstructured.NestedSlice(o.Object, "status", "inventory", "entries")
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		text, _ := entry["id"].(string)
		id, err := object.ParseObjMetadata(text)
		if err != nil {
			return kubernetes.Verdict{}, fmt.Errorf("%s: status.inventory: %w", subject(o), err)
		}
		live, err := c.Get(ctx, id.GroupKind, types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
		if err != nil {
			return kubernetes.Verdict{}, err
		}
		v := kubernetes.Progressing(kubernetes.NotReady, "%s is missing", utils.FmtObjMetadata(id))
		if live != nil {
			v = kubernetes.JudgePlain(live)
		}
		if v.State == bundle.Failed {
			return v, nil
		}
		if v.State != bundle.Compliant && worst.State == bundle.Compliant {
			worst = v
		}
	}
	return worst, nil
}
