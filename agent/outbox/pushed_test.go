package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestArtifactsOfAnAgentWithoutAHubAreBounded(t *testing.T) {
	done := map[string]pushed{}
	for i := range uint64(keptArtifacts + 20) {
		done[bundle.ReportTag(1, int64(i+1))] = pushed{Seq: i + 1, Heartbeat: i%10 == 0}
	}
	keepStored(done)
	require.Len(t, done, 20+keptArtifacts/10)
	require.Contains(t, done, "r1-20")
	require.NotContains(t, done, "r1-22")
	require.NotContains(t, done, "r1-1020")
}
