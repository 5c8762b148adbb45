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

// judgeInventory judges what a Kustomization has put on the cluster. With wait, Flux has done so itself;
// without, its Ready means no more than that the API server has taken the objects.
func judgeInventory(ctx context.Context, c cluster, o *unstructured.Unstructured) (verdict, error) {
	if waits, _, _ := unstructured.NestedBool(o.Object, "spec", "wait"); waits {
		return verdict{state: bundle.Compliant}, nil
	}
	worst := verdict{state: bundle.Compliant}
	entries, _, _ := unstructured.NestedSlice(o.Object, "status", "inventory", "entries")
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		text, _ := entry["id"].(string)
		id, err := object.ParseObjMetadata(text)
		if err != nil {
			return verdict{}, fmt.Errorf("%s: status.inventory: %w", subject(o), err)
		}
		live, err := c.Get(ctx, id.GroupKind, types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
		if err != nil {
			return verdict{}, err
		}
		v := progressing(kubernetes.NotReady, "%s is missing", utils.FmtObjMetadata(id))
		if live != nil {
			v = judgePlain(live)
		}
		if v.state == bundle.Failed {
			return v, nil
		}
		if v.state != bundle.Compliant && worst.state == bundle.Compliant {
			worst = v
		}
	}
	return worst, nil
}
