package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Claim tells the engines which assignments an agent of an earlier version gave them. They kept no note of that then.
// The earlier agent took over existing files and objects, so each assignment that it had begun belongs to its engine.
// Claim calls records only if an engine has to be told.
//
// Only the first pass of this version can tell, before it begins anything: from then on a record may be of a first
// Apply, which has not taken anything over yet. So what an engine could not note at once, as where a disk is not
// mounted, is kept in its ledger, under no assignment's name.
func (s *Set) Claim(ctx context.Context, records func() ([]assignments.Record, error)) error {
	for adapter, engine := range s.opts.Reconcilers {
		if c, ok := engine.(reconcilers.Claimer); ok {
			if err := s.claimFor(ctx, adapter, c, records); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Set) claimFor(ctx context.Context, adapter string, engine reconcilers.Claimer, records func() ([]assignments.Record, error)) error {
	ledger := assignments.LedgerOf(s.db, adapter)
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
	all, err := records()
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
