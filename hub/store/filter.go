package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// The states that only a hub knows.
const (
	// Stale is the state of a cluster that has been silent for three of its expected intervals, and of all its
	// deployments. The last reported state is in Was, and no longer counts.
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

// UnknownNameError is the error of a name in a filter that nothing in the fleet has.
type UnknownNameError struct {
	Kind, Name string
	Known      []string // names of the same kind, sorted
}

func (e *UnknownNameError) Error() string {
	return fmt.Sprintf("the hub knows no %s %q", e.Kind, e.Name)
}

// CheckNames returns an *UnknownNameError if the filter has a name that none of all clusters and deployments has.
func (f Filter) CheckNames(clusters []ClusterStatus, deployments []DeploymentStatus) error {
	environments, types, workloads := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range clusters {
		environments[c.Environment], types[c.Type] = true, true
	}
	for _, d := range deployments {
		workloads[d.Workload] = true
	}
	for _, n := range []struct {
		kind, name string
		known      map[string]bool
	}{{"environment", f.Environment, environments}, {"cluster type", f.Type, types}, {"workload", f.Workload, workloads}} {
		if n.name != "" && !n.known[n.name] {
			return &UnknownNameError{n.kind, n.name, slices.Sorted(maps.Keys(n.known))}
		}
	}
	return nil
}
