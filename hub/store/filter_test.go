package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFilterWithANameThatNothingHasIsRefused(t *testing.T) {
	clusters := []ClusterStatus{{Identity: Identity{Name: "plant-7", Environment: "prod", Type: "drone"}}, {Identity: Identity{Name: "plant-8", Environment: "dev", Type: "drone"}}}
	deployments := []DeploymentStatus{{Cluster: "plant-7", Workload: "web"}}
	require.NoError(t, Filter{}.CheckNames(clusters, deployments))
	require.NoError(t, Filter{Environment: "dev", Type: "drone", Workload: "web"}.CheckNames(clusters, deployments))
	require.Equal(t, &UnknownNameError{"environment", "prd", []string{"dev", "prod"}}, Filter{Environment: "prd", Workload: "wbe"}.CheckNames(clusters, deployments))
	require.Equal(t, &UnknownNameError{"cluster type", "dron", []string{"drone"}}, Filter{Type: "dron"}.CheckNames(clusters, deployments))
	require.EqualError(t, Filter{Workload: "wbe"}.CheckNames(clusters, nil), `the hub knows no workload "wbe"`)
}
