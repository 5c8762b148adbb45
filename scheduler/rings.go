package scheduler

import (
	"regexp"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// maxRingBytes bounds the names of an environment's rings together: a release document, which lists them, has at most
// 1 KiB.
const maxRingBytes = 256

// ringPattern is what a ring may be called: its name becomes a part of a tag.
var ringPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`)

// promotionPolicy says through which rings an environment's releases go. Its gates and the chain of environments come
// later.
type promotionPolicy struct {
	object `yaml:",inline"`
	Spec   struct {
		Environments []promotedEnvironment `yaml:"environments"`
		Chain        later                 `yaml:"chain"`
		Gate         later                 `yaml:"gate"`
	} `yaml:"spec"`
}

// promotedEnvironment is one environment of a PromotionPolicy.
type promotedEnvironment struct {
	Name  string   `yaml:"name"`
	Rings []string `yaml:"rings"`
	Gate  later    `yaml:"gate"`
	Line  line
}

// namedRings are an environment's rings, narrowest first, and where they are named.
type namedRings struct {
	environment string
	rings       []string
	at          finding.Position
}

func (p *promotionPolicy) addTo(m *Model) {
	for _, e := range p.Spec.Environments {
		if len(e.Rings) > 0 {
			m.rings = append(m.rings, namedRings{e.Name, e.Rings, p.position(e.Line)})
		}
	}
}

// checkRings finds environments without a name, and rings that cannot be.
func (p *promotionPolicy) checkRings() []error {
	var errs []error
	for _, e := range p.Spec.Environments {
		at := p.position(e.Line)
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

// Rings returns the rings of the model's environment, narrowest first, as a PromotionPolicy names them, else the
// Platform; none where neither does.
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
