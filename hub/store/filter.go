package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// The states that only a hub can tell.
const (
	// Stale is the state of a cluster that has been silent for three of its expected intervals, and of all its
	// deployments. The last reported state is in Was, and counts no longer.
	Stale bundle.State = "stale"
	// Unreported is the state of a registered cluster that has never reported.
	Unreported bundle.State = "unreported"
)

// States lists every state that a row can show, the hub's own last.
func States() []bundle.State {
	return []bundle.State{
		bundle.Pending, bundle.Pulling, bundle.Verifying, bundle.Rejected, bundle.Applying, bundle.Progressing,
		bundle.Compliant, bundle.Drifted, bundle.Failed, bundle.Suspended, bundle.Removed, Stale, Unreported,
	}
}

// Filter chooses rows. The zero Filter chooses all.
type Filter struct {
	Environment, Type, Workload string
	State                       bundle.State
	// After continues a list: it is the Next of the page before.
	After string
	// Limit bounds the rows; zero means all.
	Limit int
}

// Check returns an error wrapping ErrInvalid if the state does not exist, or the limit is negative.
func (f Filter) Check() error {
	if f.State != "" && !slices.Contains(States(), f.State) {
		var known []string
		for _, s := range States() {
			known = append(known, string(s))
		}
		return fmt.Errorf("state %q: %w: it is one of %s", Plain(string(f.State)), ErrInvalid, strings.Join(known, ", "))
	}
	if f.Limit < 0 {
		return fmt.Errorf("limit %d: %w", f.Limit, ErrInvalid)
	}
	return nil
}
