package publisher

import (
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// renewal decides which releases are made anew although nothing in them is new.
type renewal struct {
	trust published.Signers
	now   time.Time
	// before is how long before its end a release is made anew; zero is a third of its validity.
	before time.Duration
	// message is that of a publication; empty if any message will do.
	message string
}

func (ps *pusher) renewal() renewal {
	return renewal{ps.Trust, ps.IssuedAt, ps.renewBefore, ps.message}
}

// why returns the reason why a published release is made anew; empty if it is not. Current is true if the release meets the
// trust in force.
func (n renewal) why(r bundle.Release, current bool) string {
	switch {
	case r.Epoch != n.trust.Epoch:
		return fmt.Sprintf("epoch %d has begun", n.trust.Epoch)
	case !current:
		return fmt.Sprintf("version %d of the trust document asks for other signatures", n.trust.Document.Version)
	case n.ends(r):
		return "it expires at " + r.ExpiresAt.Format(time.RFC3339)
	}
	return ""
}

// ends reports whether a release is so near its end that it is made anew.
func (n renewal) ends(r bundle.Release) bool {
	return !n.due(r.IssuedAt, r.ExpiresAt).After(n.now)
}

// due returns the moment from which a release that was issued and expires at such times is made anew.
func (n renewal) due(issued, expires time.Time) time.Time {
	before := n.before
	if before == 0 {
		before = expires.Sub(issued) / 3
	}
	return expires.Add(-before)
}

// next returns the earliest moment after now at which a release that stands, or one that was made now, is made anew.
func (n renewal) next(plans []*plan) (earliest time.Time) {
	consider := func(at time.Time) {
		if at.After(n.now) && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	for _, pl := range plans {
		if pl.validFor > 0 {
			consider(n.due(n.now, n.now.Add(pl.validFor)))
		}
		for _, l := range pl.Rings {
			if l.Release != nil {
				consider(n.due(l.Release.Release.IssuedAt, l.Release.Release.ExpiresAt))
			}
		}
	}
	return earliest
}

// waitsFor reports whether v, which waits for signatures, is the release r but for its place and times.
func (n renewal) waitsFor(v *bundle.Verified, r bundle.Release) bool {
	w := v.Release
	return w.SameContent(r) && slices.Equal(w.Rings, r.Rings) &&
		w.BaseCommit == r.BaseCommit && w.EnvironmentCommit == r.EnvironmentCommit &&
		w.ExpiresAt.Sub(w.IssuedAt) == r.ExpiresAt.Sub(r.IssuedAt) && !n.ends(w) && published.CheckLayers(v.Manifest) == nil &&
		(n.message == "" || n.message == bundle.MessageOf(v.Manifest))
}
