package desired

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
)

// Reads reports whether there are locations from which Ledger reads.
func (f *Follower) Reads() bool { return len(f.opts.Locations) > 0 }

// Ledger reads what a stored record of an environment says of workloads, from the locations that are followed. The record was verified when
// it was stored, and its digest covers the ledger's. It is nil if no location has it.
func (f *Follower) Ledger(ctx context.Context, environment string, record digest.Digest) (*ledger.Ledger, error) {
	if err := f.load(ctx); err != nil {
		return nil, err
	}
	if !f.known.hasRecord(record) {
		return nil, nil
	}
	for _, l := range f.opts.Locations {
		at, err := f.open(l)
		if err != nil {
			return nil, err
		}
		e, err := at.place().Environment(environment)
		if err != nil {
			return nil, err
		}
		v, _, err := e.Read(ctx, record.String())
		if published.IgnoreRefused(err) != nil {
			return nil, fmt.Errorf("ledger of environment %s: %w", environment, err)
		}
		if v == nil || err != nil || v.Descriptor.Digest != record {
			continue
		}
		if found, err := e.Ledger(ctx, v); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}
