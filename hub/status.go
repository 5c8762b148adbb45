package hub

import (
	"encoding/json"

	"github.com/wherry-dev/wherry/hub/store"
)

// ParseStatus reads the output of "wherry-agent status -o json". It returns the cluster as the agent knows it, without
// a key, and the agent's report key in PEM, for ParseReportKey. Values that the agent does not have are empty.
func ParseStatus(data []byte) (c store.Cluster, reportKey []byte, err error) {
	var s struct {
		Platform  string `json:"platform"`
		ReportKey string `json:"reportKey"`
		Cluster   struct {
			UID         string            `json:"uid"`
			Name        string            `json:"name"`
			Type        string            `json:"type"`
			Environment string            `json:"environment"`
			Ring        string            `json:"ring"`
			Labels      map[string]string `json:"labels"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return c, nil, err
	}
	c.Identity = store.Identity{
		UID: s.Cluster.UID, Name: s.Cluster.Name, Platform: s.Platform, Type: s.Cluster.Type,
		Environment: s.Cluster.Environment, Ring: s.Cluster.Ring, Labels: s.Cluster.Labels,
	}
	return c, []byte(s.ReportKey), nil
}
