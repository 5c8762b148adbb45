package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/reconcilers"
)

// claim tells engines which assignments they were given by an agent of an earlier version, which had them note
// nothing of that themselves. It took over whatever was there; so all that it had begun is theirs.
//
// Only the first pass of this version can tell, before it begins anything: from then on a record may be of a first
// Apply, which has not taken anything over yet. So what an engine could not note at once, as where a disk is not
// mounted, is kept in its ledger, under no assignment's name.
func (p *pass) claim(ctx context.Context) error {
	for adapter, engine := range p.opts.Reconcilers {
		if c, ok := engine.(reconcilers.Claimer); ok {
			if err := p.claimFor(ctx, adapter, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) claimFor(ctx context.Context, adapter string, engine reconcilers.Claimer) error {
	ledger := p.state.Ledger(adapter)
	entry, err := ledger.Load("")
	var names []string
	first := len(entry) == 0
	if err == nil && !first {
		err = json.Unmarshal(entry, &names)
	}
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if !first && len(names) == 0 {
		return nil
	}
	all, err := p.records()
	if err != nil {
		return err
	}
	var theirs []string
	for _, r := range all {
		if r.Adapter == adapter && (first || slices.Contains(names, r.Spec.Name)) {
			theirs = append(theirs, r.Spec.Name)
		}
	}
	next, err := json.Marshal(append([]string{}, engine.Claim(ctx, theirs)...))
	if err != nil || bytes.Equal(next, entry) {
		return err
	}
	return ledger.Save("", next)
}
