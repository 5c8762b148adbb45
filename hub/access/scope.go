package access

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/hub/store"
)

// Bounds of a scope: each request evaluates it for many clusters.
const (
	maxScopeNames    = 64
	maxSelectorBytes = 1024
	// maxRequirements bounds the terms of a selector.
	maxRequirements = 32
)

// Scope is a part of the fleet. The zero Scope is all of it.
type Scope struct {
	store.AccessScope
	selector labels.Selector // nil chooses all
}

// ParseScope returns the scope with a parsed selector. The error wraps store.ErrInvalid.
func ParseScope(s store.AccessScope) (Scope, error) {
	for what, names := range map[string][]string{"environments": s.Environments, "workspaces": s.Workspaces} {
		if len(names) > maxScopeNames {
			return Scope{}, fmt.Errorf("scope: %w: it has %d %s, at most %d", store.ErrInvalid, len(names), what, maxScopeNames)
		}
		for _, n := range names {
			if n == "" || len(n) > store.MaxText || n != store.Plain(n) {
				return Scope{}, fmt.Errorf("scope: %w: %q is no name", store.ErrInvalid, store.Plain(store.Clip(n)))
			}
		}
	}
	parsed := Scope{AccessScope: s}
	if s.Selector == "" {
		return parsed, nil
	}
	if len(s.Selector) > maxSelectorBytes {
		return Scope{}, fmt.Errorf("scope: %w: its selector has %d bytes, at most %d", store.ErrInvalid, len(s.Selector), maxSelectorBytes)
	}
	selector, err := labels.Parse(s.Selector)
	if err != nil {
		return Scope{}, fmt.Errorf("scope: %w: selector: %s", store.ErrInvalid, store.Plain(store.Clip(err.Error())))
	}
	terms, _ := selector.Requirements()
	if len(terms) > maxRequirements {
		return Scope{}, fmt.Errorf("scope: %w: its selector has %d terms, at most %d", store.ErrInvalid, len(terms), maxRequirements)
	}
	parsed.selector = selector
	return parsed, nil
}

// Labels returns the keys of the labels that the scope asks for.
func (s Scope) Labels() (keys []string) {
	if s.selector == nil {
		return nil
	}
	terms, _ := s.selector.Requirements()
	for _, t := range terms {
		keys = append(keys, t.Key())
	}
	return keys
}

// Whole reports whether the scope is the whole fleet.
func (s Scope) Whole() bool {
	return len(s.Environments) == 0 && len(s.Workspaces) == 0 && s.Selector == ""
}

// HasEnvironment reports whether clusters of the environment may be in the scope.
func (s Scope) HasEnvironment(name string) bool {
	return len(s.Environments) == 0 || slices.Contains(s.Environments, name)
}

// HasWorkspace reports whether deployments of the workspace may be in the scope.
func (s Scope) HasWorkspace(name string) bool {
	return len(s.Workspaces) == 0 || slices.Contains(s.Workspaces, name)
}

// HasCluster reports whether a cluster of the environment, with these labels as registered, is in the scope. The scope's
// workspaces are left out: a cluster is in those of its deployments.
func (s Scope) HasCluster(environment string, registered map[string]string) bool {
	return s.HasEnvironment(environment) && (s.Selector == "" || s.selector != nil && s.selector.Matches(labels.Set(registered)))
}
