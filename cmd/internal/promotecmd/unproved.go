package promotecmd

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
)

// unproved is how gate list shows what an environment has by wherry publish --unproved. No envelope has this action: the ledger says so,
// which the release keys have signed.
const unproved bundle.Action = "unproved"

// unproved lists what the environment has without a proof. What a group has overridden is a decision of its own.
func (f *subject) unproved(cmd *cobra.Command) ([]decisions.Listed, error) {
	from := facts.Facts{
		Location: f.loc, Options: f.registry.Options(), Signers: f.trust.Releases, Warn: warner(cmd), Now: func() time.Time { return f.trust.Now },
	}
	l, err := from.Ledger(cmd.Context(), f.trust.Platform, f.policy.Environment)
	if err != nil || l == nil {
		return nil, failure.At(err, f.loc)
	}
	var all []decisions.Listed
	add := func(d bundle.Decision) {
		d.Action, d.Platform, d.Environment, d.By = unproved, f.trust.Platform, f.policy.Environment, "release keys"
		all = append(all, decisions.Listed{Decision: d, Valid: true})
	}
	if l.Base.Unproved != "" {
		add(bundle.Decision{BaseCommit: l.Base.Commit, Reason: l.Base.Unproved, IssuedAt: l.Base.Since})
	}
	for _, w := range l.Workloads {
		for _, r := range w.Revisions {
			for _, stay := range r.In {
				if stay.Unproved != "" && stay.From == (ledger.From{}) && !strings.HasPrefix(stay.Unproved, facts.OverriddenBy) {
					add(bundle.Decision{
						Workload: bundle.DecisionWorkload{Registration: w.Registration, Name: w.Workload, Revision: r.Revision},
						Ring:     stay.Ring, Reason: stay.Unproved, IssuedAt: stay.Since,
					})
				}
			}
		}
	}
	return all, nil
}
