package promotion

import (
	"slices"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// maxRingBytes bounds the names of an environment's rings together: a release document, which lists them, has at most
// 1 KiB.
const maxRingBytes = 256

// ringPattern matches names of rings, which become parts of tags.
var ringPattern = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`)

// CheckRings returns the mistakes in the rings of one environment, which are named at at.
func CheckRings(at finding.Position, rings []string) []error {
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
