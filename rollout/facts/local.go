package facts

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/memory"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// local is a fleet that lives for one look at a location: the clusters of a roster, with their reports. It implements Hub.
type local struct {
	facts   *Facts
	history *History
	reports *reports
	now     time.Time
	maxAge  time.Duration // of a report; a cluster is silent from then on

	commit string // that view knows the releases of
	view   *fleet.View
}

// local reads the reports of the clusters of an environment.
func (f *Facts) local(ctx context.Context, history *History, clusters []scheduler.Cluster, maxAge time.Duration) (*local, error) {
	reports, err := history.place.reports(ctx, clusters)
	if err != nil {
		return nil, err
	}
	for _, c := range clusters {
		var plain []bundle.Report
		for _, r := range reports.byUID[c.UID] {
			if err := store.Clean(&r); err != nil {
				f.warn("a report of cluster %s does not count: %v", c.Name, err)
				continue
			}
			plain = append(plain, r)
		}
		reports.byUID[c.UID] = plain
	}
	return &local{facts: f, history: history, reports: reports, now: f.Now().UTC(), maxAge: maxAge}, nil
}

// Rollout implements Hub.
func (l *local) Rollout(ctx context.Context, environment, commit string, q fleet.RolloutQuery) (r fleet.Rollout, err error) {
	if l.view == nil || l.commit != commit {
		if err := l.history.loadFor(ctx, commit, l.reports); err != nil {
			return r, err
		}
		if l.view, err = l.open(ctx); err != nil {
			return r, err
		}
		l.commit = commit
	}
	return l.view.Rollout(ctx, environment, commit, q)
}

// Content implements Hub.
func (l *local) Content(ctx context.Context, environment string, q fleet.ContentQuery) (fleet.Content, error) {
	if err := l.history.loadNewest(ctx, l.reports); err != nil {
		return fleet.Content{}, err
	}
	view, err := l.open(ctx)
	if err != nil {
		return fleet.Content{}, err
	}
	return view.Content(ctx, environment, q)
}

// open returns the fleet with the releases that were read by now.
func (l *local) open(ctx context.Context) (*fleet.View, error) {
	s := memory.New(l.now)
	for _, c := range l.reports.clusters {
		// A fleet takes a cluster for silent after three of the times that it expects between two reports.
		r := store.Registration{AddedAt: c.RegisteredAt, Cluster: store.Cluster{ExpectedInterval: l.maxAge / 3, Identity: store.Identity{
			UID: c.UID, Name: c.Name, Platform: l.history.Platform, Environment: l.history.Environment, Type: c.ClusterType, Ring: c.Ring, Labels: c.Labels,
		}}}
		if !c.Reporting {
			r.Reporting = store.NotReporting
		}
		if err := s.Add(r, l.reports.byUID[c.UID]...); err != nil {
			return nil, err
		}
	}
	var records []store.PublishedRecord
	for _, r := range l.history.Records {
		records = append(records, store.PublishedRecord{Digest: r.Descriptor.Digest, EnvironmentRecord: r.Record, KeyIDs: r.KeyIDs, SeenAt: l.now})
	}
	var releases []store.PublishedRelease
	for _, r := range l.history.releases() {
		releases = append(releases, store.PublishedRelease{Digest: r.Descriptor.Digest, Release: r.Release, Message: bundle.MessageOf(r.Manifest), KeyIDs: r.KeyIDs, SeenAt: l.now})
	}
	s.Publish(records, releases)
	s.Contents = func(ctx context.Context, r store.PublishedRelease) ([]bundle.Assignment, []bundle.Artifact, error) {
		_, all, err := l.history.Assignments(ctx, r.ClusterType, r.Digest)
		return all, nil, err
	}
	f, err := fleet.Open(ctx, s, fleet.Options{Now: func() time.Time { return l.now }})
	if err != nil {
		return nil, fmt.Errorf("clusters of environment %s: %w", l.history.Environment, err)
	}
	return f.View(store.AccessScope{})
}

// Fleet looks at Location, and returns clusters of an environment, with their newest reports, as a fleet that knows what they are meant to
// run.
func (f *Facts) Fleet(ctx context.Context, policy promotion.Policy, clusters []scheduler.Cluster) (fleet.Answers, error) {
	history, err := f.History(ctx, policy.Environment)
	if err != nil {
		return nil, err
	}
	l, err := f.local(ctx, history, clusters, policy.RingGate.MaxReportAge)
	if err != nil {
		return nil, err
	}
	if err := history.loadNewest(ctx, l.reports); err != nil {
		return nil, err
	}
	return l.open(ctx)
}
