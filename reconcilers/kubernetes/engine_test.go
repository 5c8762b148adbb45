package kubernetes

import (
	"context"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oneObject is a cluster of one object, which is nil where there is none.
type oneObject struct {
	client.Client
	live    *unstructured.Unstructured
	patches []string
}

func (c *oneObject) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if c.live == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.live.DeepCopyInto(obj.(*unstructured.Unstructured))
	return nil
}

func (c *oneObject) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if c.live == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, obj.GetName())
	}
	if c.live.GetResourceVersion() != obj.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), nil)
	}
	data, err := patch.Data(obj)
	c.patches = append(c.patches, string(data))
	c.live.SetAnnotations(map[string]string{"look": "now"})
	c.live.SetResourceVersion(c.live.GetResourceVersion() + "0")
	c.live.DeepCopyInto(obj.(*unstructured.Unstructured))
	return err
}

func TestAnEngineIsToldAboutTheObjectThatWasApplied(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*oneObject)
		writes int
		agrees bool
	}{
		{"nobody has written to it", func(*oneObject) {}, 1, true},
		{"its status has changed", func(c *oneObject) { c.live.SetResourceVersion("2") }, 1, true},
		{"what is specified has changed", func(c *oneObject) { c.live.SetResourceVersion("2"); c.live.SetGeneration(2) }, 1, false},
		{"it has been asked already", func(c *oneObject) {
			c.live.SetResourceVersion("2")
			c.live.SetLabels(map[string]string{"asked": "yes"})
		}, 0, false},
		{"it was made anew", func(c *oneObject) { c.live.SetResourceVersion("2"); c.live.SetUID("b") }, 0, false},
		{"it has gone", func(c *oneObject) { c.live = nil }, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Source"})
			o.SetName("shop")
			o.SetUID("a")
			o.SetResourceVersion("1")
			o.SetGeneration(1)
			m := manifest{Unstructured: o.DeepCopy()}
			cluster := &oneObject{live: o.DeepCopy()}
			pl := newPlan(nil, nil)
			pl.objects = []manifest{m}
			p := &pass{access: access{session: newSession(cluster, pl), r: &Reconciler{seen: newSeen()}}}
			p.live[m.id()] = o
			p.r.seen.agree(m, o)
			c.change(cluster)

			replaced := cluster.live == nil || cluster.live.GetUID() != "a"
			err := p.view().Write(t.Context(), o, func(o *unstructured.Unstructured) (map[string]any, error) {
				if o.GetLabels()["asked"] != "" {
					return nil, nil
				}
				return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"look": "now"}}}, nil
			})
			require.Equal(t, replaced, err != nil, "%v", err)
			require.Len(t, cluster.patches, c.writes)
			if replaced {
				e := classify(err)
				require.Equal(t, NotApplied, e.Reason)
				require.Empty(t, e.Fault, "it may pass")
				return
			}
			require.Equal(t, cluster.live, p.live[object.UnstructuredToObjMetadata(o)])
			require.Equal(t, c.agrees, p.r.seen.same(m, cluster.live))
		})
	}
}
