package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// The states that only a hub knows.
const (
	// Stale is the state of a cluster that has been silent for three of its expected intervals, and of all its
	// deployments. The last reported state is in LastState, and no longer counts.
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

// CheckState returns an error wrapping ErrInvalid if the state does not exist.
func CheckState(s bundle.State) error {
	if slices.Contains(States(), s) {
		return nil
	}
	var known []string
	for _, k := range States() {
		known = append(known, string(k))
	}
	return fmt.Errorf("state %q: %w: expected one of %s", Plain(string(s)), ErrInvalid, strings.Join(known, ", "))
}
