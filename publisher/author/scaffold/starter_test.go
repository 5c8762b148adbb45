package scaffold

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example is the one that is tested on an API server.
func TestTheExampleHasTheSameFiles(t *testing.T) {
	for name, text := range map[string][]byte{"main/templates/namespace-service.yaml": NamespaceService, "cluster-role.yaml": ClusterRole} {
		example, err := os.ReadFile("../../../examples/namespaces/" + name)
		require.NoError(t, err)
		require.Equal(t, string(example), string(text), name)
	}
	require.True(t, bytes.Contains(NamespaceService, []byte("\n  name: "+NamespaceServiceName+"\n")))
}
