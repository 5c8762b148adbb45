package platform

import (
	"context"
	"maps"
	"slices"

	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// access returns the access to servers before anything is read: to those that a person and the settings name.
func (s Source) access() *egress.Access {
	a := egress.New(s.Platform)
	a.Own(s.Named...)
	a.Own(s.Bases...)
	for _, places := range []map[string]string{s.Workloads, s.Checkouts, s.Mirrors} {
		a.Own(slices.Collect(maps.Values(places))...)
	}
	if s.Clone != nil {
		a.Own(s.Clone.Origin())
	}
	if gitrepo.IsLocal(s.Platform) {
		a.Own(gitrepo.OriginOf(s.Platform))
	}
	return a
}

// open adds what the platform's own objects name, and what they let others reach.
func (l *loader) open(context.Context) error {
	l.loaded.Access.Own(l.loaded.Model.NamedPlaces()...)
	entries, at := l.loaded.Model.AllowedPrivate()
	for _, e := range entries {
		if err := egress.CheckAllowed(e); err != nil {
			return finding.Errorf(finding.CodeWorkspace, at, "write HOST, HOST:PORT or a network such as 10.20.0.0/16", "spec.sources.allowPrivate of the Platform: %q: %v", e, err)
		}
	}
	l.loaded.Access.Allow(entries...)
	return nil
}
