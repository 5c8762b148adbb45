package hubcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

func TestDeploymentsSayWhatTheyWaitFor(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var b strings.Builder
	deploymentTable(&b, []store.DeploymentStatus{
		{Cluster: "plant-7", Workload: "web", Target: "main", State: bundle.Pending, Reason: "DependencyNotReady", Message: "waits for db-main (failed: Unhealthy)", Since: now},
		{Cluster: "plant-7", Workload: "db", Target: "main", State: bundle.Failed, Reason: "Unhealthy", Message: "many words", Since: now},
	}, now)
	require.Equal(t, "CLUSTER\tWORKLOAD\tTARGET\tSTATE\tREASON\tVERSION\tSINCE\n"+
		"plant-7\tweb\tmain\tpending\tDependencyNotReady: waits for db-main (failed: Unhealthy)\t-\tnow\n"+
		"plant-7\tdb\tmain\tfailed\tUnhealthy: many words\t-\tnow\n", b.String())
}
