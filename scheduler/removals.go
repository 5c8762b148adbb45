package scheduler

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// MaxRemoved bounds the assignments that one publication may take from a cluster type, or the deployment targets that a
// registration may drop at once; see kinds.Platform. The zero value is the default: a third of them, or one.
type MaxRemoved struct {
	// At is the place of the bound; zero for the default.
	At      finding.Position
	given   bool
	percent bool
	most    int64
}

// newMaxRemoved reads the bound of a Platform.
func newMaxRemoved(p *kinds.Platform) (MaxRemoved, error) {
	given := p.Spec.MaxRemoved
	if given.Line == 0 {
		return MaxRemoved{}, nil
	}
	text, percent := strings.CutSuffix(fmt.Sprint(given.Value), "%")
	most, err := strconv.ParseInt(text, 10, 32)
	if err != nil || most < 0 || percent && most > 100 {
		return MaxRemoved{}, finding.Errorf(finding.CodeType, p.Position(given.Line), "", `spec.maxRemoved must be a number such as 5, or a share such as 20%%, not %q`, fmt.Sprint(given.Value))
	}
	return MaxRemoved{p.Position(given.Line), true, percent, most}, nil
}

// Exceeded reports whether so many of all are too many.
func (m MaxRemoved) Exceeded(removed, all int) bool {
	switch {
	case !m.given:
		return removed > 1 && 3*removed > all
	case m.percent:
		return 100*int64(removed) > m.most*int64(all)
	}
	return int64(removed) > m.most
}

// String says how many may be removed.
func (m MaxRemoved) String() string {
	switch {
	case !m.given:
		return "a third, or one"
	case m.percent:
		return fmt.Sprintf("%d %%", m.most)
	}
	return fmt.Sprint(m.most)
}

// declared lists the names of the environment's deployment targets by registration. Each registration that the platform has is
// a key.
func (m *Model) declared() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for name := range m.registrations {
		all[name] = map[string]bool{}
	}
	for _, w := range m.objects.Workloads {
		for _, t := range w.Spec.DeploymentTargets {
			if names := all[w.Registration]; names != nil && t.Environment == m.environment {
				names[w.Metadata.Name+"-"+t.Name] = true
			}
		}
	}
	return all
}
