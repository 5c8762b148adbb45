package kustomization_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
)

// One build of a small kustomization with a base; the first one of a process also reads the schemas of Kubernetes.
func BenchmarkBuild(b *testing.B) {
	source := tree(map[string]string{
		"app/kustomization.yaml":  "resources: [../base]\nnamePrefix: eu-\nimages: [{name: nginx, newTag: '2'}]\nconfigMapGenerator: [{name: settings, literals: [a=b]}]",
		"base/kustomization.yaml": "resources: [pod.yaml, one.yaml]",
		"base/pod.yaml":           "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: a, image: nginx, envFrom: [{configMapRef: {name: settings}}]}]}",
		"base/one.yaml":           object,
	})
	for b.Loop() {
		_, err := kustomization.Build(source, "app", kustomization.Options{})
		require.NoError(b, err)
	}
}
