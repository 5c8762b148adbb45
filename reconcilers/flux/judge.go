package flux

import (
	"context"

	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

func judgeObject(ctx context.Context, c kubernetes.Cluster, o *unstructured.Unstructured) (kubernetes.Verdict, error) {
	switch kind := o.GroupVersionKind().GroupKind(); {
	case kind.Group == sourceGroup:
		return judgeSource(o), nil
	case kind == schema.GroupKind{Group: kustomizeGroup, Kind: "Kustomization"}:
		return judgeKustomization(ctx, c, o)
	case kind == schema.GroupKind{Group: helmGroup, Kind: "HelmRelease"}:
		return judgeRelease(ctx, c, o)
	}
	return kubernetes.JudgePlain(o), nil
}

func subject(o *unstructured.Unstructured) string { return utils.FmtUnstructured(o) }
