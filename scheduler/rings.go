package scheduler

import (
	"regexp"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// maxRingBytes bounds the names of an environment's rings together: a release document, which lists them, has at most
// 1 KiB.
const maxRingBytes = 256

// ringPattern matches names of rings, which become parts of tags.
var ringPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`)

// namedRings are an environment's rings, narrowest first, with their position.
type namedRings struct {
	environment string
	rings       []string
	at          finding.Position
}

// checkPromotion returns errors for environments without a name, and for invalid rings.
func checkPromotion(p *kinds.PromotionPolicy) []error {
	var errs []error
	for _, e := range p.Spec.Environments {
		at := p.Position(e.Line)
		if e.Name == "" {
			errs = append(errs, finding.Errorf(finding.CodeRings, at, "give its name", "an environment of the PromotionPolicy has no name"))
		}
		errs = append(errs, checkRings(at, e.Rings)...)
	}
	return errs
}

func checkRings(at finding.Position, rings []string) []error {
	var errs []error
	bytes := 0
	for i, ring := range rings {
		bytes += len(ring) + len(`"",`)
		switch {
		case !ringPattern.MatchString(ring):
			errs = append(errs, finding.Errorf(finding.CodeRings, at, "use letters, digits, '.', '_' and '-'", "a ring cannot be called %q", ring))
		case slices.Contains(rings[:i], ring):
			errs = append(errs, finding.Errorf(finding.CodeRings, at, "remove one of them", "ring %q is named twice", ring))
		}
	}
	if bytes > maxRingBytes {
		errs = append(errs, finding.Errorf(finding.CodeRings, at, "use fewer rings, or shorter names", "the names of the rings have %d bytes together, at most %d are allowed", bytes, maxRingBytes))
	}
	return errs
}

// Rings returns the rings of the model's environment, narrowest first, from a PromotionPolicy, else from the
// Platform; none if neither names any.
func (m *Model) Rings() ([]string, error) {
	rings := m.platformRings
	var first *namedRings
	for i, r := range m.rings {
		switch {
		case r.environment != m.environment:
		case first != nil:
			return nil, finding.Errorf(finding.CodeRings, r.at, "remove one of them", "the rings of environment %q are named twice: first at %s", r.environment, first.at)
		default:
			first, rings = &m.rings[i], r.rings
		}
	}
	return rings, nil
}
