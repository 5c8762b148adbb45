package hub

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Acks are acknowledgements for the way back by media.
type Acks struct {
	// Envelopes holds one signed bundle.Ack or more for each cluster.
	Envelopes [][]byte
	// Reports is the number of reports that they name, and Clusters that of the clusters whose these are.
	Reports, Clusters int

	ids []digest.Digest
}

// maxAckReports bounds the reports that one acknowledgement names, so that its envelope stays below
// bundle.MaxReportBytes.
const maxAckReports = 5000

// owed implements Hub.Acks.
func (in intake) owed(ctx context.Context, only []string) (*Acks, error) {
	all, err := in.store.Owed(ctx)
	if err != nil {
		return nil, err
	}
	a := &Acks{}
	for _, cluster := range all {
		if len(only) > 0 && !slices.Contains(only, cluster.UID) {
			continue
		}
		for ids := range slices.Chunk(cluster.IDs, maxAckReports) {
			envelope, err := in.sign.ack(cluster.UID, ids)
			if err != nil {
				return nil, err
			}
			a.Envelopes = append(a.Envelopes, envelope)
			a.Reports += len(ids)
		}
		a.Clusters++
		a.ids = append(a.ids, cluster.IDs...)
	}
	return a, nil
}

// markExported implements Hub.MarkExported.
func (in intake) markExported(ctx context.Context, a *Acks) error {
	for ids := range slices.Chunk(a.ids, maxAckReports) {
		if err := in.store.Settle(ctx, ids); err != nil {
			return fmt.Errorf("note acknowledgements as exported: %w", err)
		}
	}
	return nil
}
