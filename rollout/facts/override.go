package facts

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// OverriddenBy begins what a ledger says of a revision that a group of the policy let in: who did it, and why.
const OverriddenBy = "overridden by "

// override is what people let into the environment that no environment below it can prove.
type override struct {
	revision digest.Digest
	by       string // and why
}

// NotOverriddenError means that a person asks to have a workload without a proof, and that the group which may override the policy's gate
// has not overridden it for the revision that was rendered. No environment below can have that.
type NotOverriddenError struct {
	Policy   promotion.Policy
	Workload ledger.Key
	Revision digest.Digest
	Waits    string
}

func (e *NotOverriddenError) Error() string {
	return fmt.Sprintf("--unproved: %d of group %q has to override the rule content for %s first: %s", e.Policy.Gate.Override.Required, e.Policy.Gate.Override.Group, e.Workload, e.Waits)
}

// Command returns the command by which a member of the group does so.
func (e *NotOverriddenError) Command() string {
	return fmt.Sprintf("wherry gate override -e %s --workload %s --revision %s --rule content --reason \"REASON\" --key FILE", e.Policy.Environment, e.Workload, e.Revision.Encoded())
}

// Override is for publisher.Admission: the group of the policy may let in what waits and no environment below can prove. Such a decision is
// about the revision that was rendered, from the environment itself.
func (e *Entry) Override(ctx context.Context, rendered map[ledger.Key]ledger.Revision, waiting map[ledger.Key]string) (map[ledger.Key]string, error) {
	if e.overridden = nil; e.ask.Policy.Gate.Override.Required == 0 {
		return waiting, nil
	}
	var open []content.Subject
	for _, k := range slices.SortedFunc(maps.Keys(waiting), ledger.Key.Compare) {
		if made, is := rendered[k]; is && e.Overridable(k, made) && !e.isUndone(k, made.Revision) {
			open = append(open, content.Subject{Key: k, Revision: made.Revision})
		}
	}
	said, err := e.overrides(ctx, e.facts, open)
	if err != nil {
		return nil, err
	}
	left := maps.Clone(waiting)
	for _, s := range open {
		if by := said[s]; by != "" {
			if !e.Open() && !(e.ask.Unproved != "" && e.ask.lets(s.Key)) { // what overrides the proof overrides no schedule
				left[s.Key] += "; overridden, and waits: " + e.asked.Closed
				continue
			}
			if e.overridden == nil {
				e.overridden = map[ledger.Key]override{}
			}
			e.overridden[s.Key] = override{s.Revision, by}
			delete(left, s.Key)
			continue
		}
		no := &NotOverriddenError{e.ask.Policy, s.Key, s.Revision, waiting[s.Key]}
		if e.ask.Unproved != "" && len(e.ask.Only) > 0 && e.ask.lets(s.Key) {
			return nil, no
		}
		left[s.Key] += "; group " + e.ask.Policy.Gate.Override.Group + " may let it in: " + no.Command()
	}
	return left, nil
}

// isUndone reports whether the environment took a revision of its own back, which nobody overrides.
func (e *Entry) isUndone(k ledger.Key, revision digest.Digest) bool {
	own := e.asked.Own
	return own != nil && slices.ContainsFunc(own.Rejected(e.asked.OwnRing, e.asked.Again), func(u ledger.Undone) bool { return u.Key == k && u.Revision == revision })
}

// overrides returns who let in these revisions of the environment itself, and why.
func (e *Entry) overrides(ctx context.Context, f *Facts, about []content.Subject) (map[content.Subject]string, error) {
	if len(about) == 0 {
		return nil, nil
	}
	policy, now := e.ask.Policy, e.asked.Now
	found, trust, err := f.decidedOf(ctx, policy, e.name, policy.Environment, about)
	if err != nil {
		return nil, err
	}
	of := map[content.Subject][]gate.Decided{}
	for _, d := range decisions.Of(found, trust) {
		if d.IsContent() && d.From == policy.Environment {
			s := content.SubjectOf(d.Workload)
			of[s] = append(of[s], d)
		}
	}
	said := map[content.Subject]string{}
	for _, s := range about {
		_, rejected := gate.Rejected(policy, of[s])
		if !rejected && gate.ContentApprovals(policy, s.String(), of[s], now).Result == gate.Pass {
			said[s] = gate.ContentOverridden(policy, of[s], now)
		}
	}
	return said, nil
}

// stillOverridden reports whether nobody has taken an override back meanwhile, as now says.
func (e *Entry) stillOverridden(ctx context.Context, now *Facts) (bool, error) {
	var about []content.Subject
	for k, o := range e.overridden {
		about = append(about, content.Subject{Key: k, Revision: o.revision})
	}
	said, err := e.overrides(ctx, now, about)
	return !slices.ContainsFunc(about, func(s content.Subject) bool { return said[s] == "" }), err
}
