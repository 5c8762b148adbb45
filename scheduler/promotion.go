package scheduler

import (
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Rings returns the rings of the model's environment, narrowest first, from a PromotionPolicy, else from the
// Platform; none if neither names any.
func (m *Model) Rings() ([]string, error) {
	p, err := m.promotionPolicy()
	if err != nil {
		return nil, err
	}
	if p != nil {
		if own := p.Of(m.environment).Rings; len(own) > 0 {
			return own, nil
		}
	}
	return m.platformRings, nil
}

// Promotion returns what the PromotionPolicy of the model's environment says, parsed. Without a policy, and for what the
// policy leaves out, the gates are [promotion.Default]; the rings are those of [Model.Rings].
//
// The error names two policies for the environment.
func (m *Model) Promotion() (promotion.Policy, error) {
	rings, err := m.Rings()
	if err != nil {
		return promotion.Policy{}, err
	}
	o, err := m.promotionPolicy()
	if err != nil {
		return promotion.Policy{}, err
	}
	return promotion.Read(o, m.environment, rings), nil // mistakes are errors of Load
}

// ExplainPromotion says what [Model.Promotion] returns in words, with the place of each value.
func (m *Model) ExplainPromotion() (*promotion.Explanation, error) {
	p, err := m.Promotion()
	if err != nil {
		return nil, err
	}
	o, err := m.promotionPolicy()
	if err != nil {
		return nil, err
	}
	var platform finding.Position
	if m.objects.Platform != nil {
		platform = m.objects.Platform.At
	}
	return promotion.Explain(o, p, platform), nil
}

// promotionPolicy returns the PromotionPolicy that names the model's environment, nil if none does.
func (m *Model) promotionPolicy() (*kinds.PromotionPolicy, error) {
	var found *kinds.PromotionPolicy
	for _, p := range sortedValues(m.objects.Promotions) {
		at, named := p.Names(m.environment)
		switch {
		case !named:
		case found != nil:
			first, _ := found.Names(m.environment)
			return nil, finding.Errorf(finding.CodePromotion, at, "remove it from one of them", "two PromotionPolicies name environment %q, %q and %q: first at %s", m.environment, found.Metadata.Name, p.Metadata.Name, first)
		default:
			found = p
		}
	}
	return found, nil
}
