package kubernetestest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Objects is a kubernetes.Cluster of the few objects that a test has.
type Objects []*unstructured.Unstructured

// Get returns nil where there is no such object.
func (os Objects) Get(_ context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	for _, o := range os {
		if o.GroupVersionKind().GroupKind() == kind && o.GetNamespace() == key.Namespace && o.GetName() == key.Name {
			return o, nil
		}
	}
	return nil, nil
}

// Parse reads an object.
func Parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, o.UnmarshalJSON(data))
	return o
}
