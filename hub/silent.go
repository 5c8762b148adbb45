package hub

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// SilentCluster is a cluster that the hub has not heard of for long.
type SilentCluster struct {
	UID         string `json:"uid"`
	Name        string `json:"name"`
	Type        string `json:"type"`
	Environment string `json:"environment"`
	// LastSeen is when the newest report was received, or was written if it came by media; zero if there is none.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Since is LastSeen, or when the cluster was registered.
	Since time.Time `json:"since"`
	// SilentSeconds is the time since then.
	SilentSeconds int64 `json:"silentSeconds"`
}

// silent implements Hub.Silent.
func silent(ctx context.Context, from store.Store, now time.Time, limit time.Duration) ([]SilentCluster, error) {
	all := []SilentCluster{}
	err := from.Scan(ctx, store.Scope{WithoutDeployments: true}, func(c store.ClusterState) error {
		s := SilentCluster{UID: c.UID, Name: c.Name, Type: c.Type, Environment: c.Environment, LastSeen: c.LastSeen, Since: c.LastSeen}
		if s.LastSeen.IsZero() {
			s.Since = c.AddedAt
		}
		away := now.Sub(s.Since)
		s.SilentSeconds = max(0, int64(away/time.Second))
		state := c.StateAt(now)
		missed := state == store.Stale || state == store.Unreported
		if limit > 0 {
			missed = away >= limit
		}
		if missed {
			all = append(all, s)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b SilentCluster) int {
		if never := a.LastSeen.IsZero(); never != b.LastSeen.IsZero() {
			if never {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}
