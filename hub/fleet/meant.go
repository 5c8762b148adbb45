package fleet

import (
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// meantIndex finds what clusters are meant to run.
type meantIndex struct{}

// newMeantIndex returns the index of all that p has.
func newMeantIndex(*published) meantIndex { return meantIndex{} }

// meantOf returns what a cluster that runs observed is meant to run; nil if nobody knows. Only platform, environment, type
// and ring of the identity are set; observed may be nil. The result is shared.
func (p *published) meantOf(store.Identity, *bundle.ReportRelease) *Meant { return nil }
