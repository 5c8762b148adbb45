// Package kindconfig checks the configuration of kind in deploy/kind with kind's own types. It is here
// because those should not be in the go.mod of wherry.
package kindconfig

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

func TestTheClustersAreWhatKindReads(t *testing.T) {
	for _, file := range []string{"cluster.yaml", "fleet.yaml"} {
		data, err := os.ReadFile("../../deploy/kind/" + file)
		require.NoError(t, err)
		var cluster v1alpha4.Cluster
		decoder := yaml.NewDecoder(bytes.NewReader(data))
		decoder.KnownFields(true) // as kind does it
		require.NoError(t, decoder.Decode(&cluster), file)
		require.Equal(t, v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"}, cluster.TypeMeta)
		v1alpha4.SetDefaultsCluster(&cluster)
		require.Equal(t, "127.0.0.1", cluster.Networking.APIServerAddress)
		require.Len(t, cluster.Nodes, 1)
		require.Equal(t, v1alpha4.ControlPlaneRole, cluster.Nodes[0].Role)
		require.NotEmpty(t, cluster.Nodes[0].Image)
	}
}
