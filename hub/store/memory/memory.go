// Package memory is what a fleet is asked about that lives for one command: clusters with the reports that somebody has collected, and
// what is published for them.
//
// Begin with New, fill the Store with Add and Publish, and give it to fleet.Open, whose answers are then those of a hub with the same
// facts. What differs is what a store cannot know that was not there when a report came:
//
//   - The age of a report is that of the agent's clock. A report that is more than MaxAhead ahead does not tell when it was made, so that
//     its cluster is silent.
//   - There are few reports of a cluster. The oldest one is where the count of failures begins, and later ones count by the agent's
//     own numbers, also if the assignment has recovered by then.
//   - There is no history: questions about the past end with store.ErrForgotten.
//
// A Store verifies nothing: give it verified reports whose texts are plain, see store.Clean. It is not for several goroutines while it
// is filled.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

// MaxAhead is how far the clock of an agent may be ahead of that of the store.
const MaxAhead = 10 * time.Minute

// Store is the facts about a fleet.
type Store struct {
	// Contents reads the assignments and artifacts of a release; nil means that releases have none.
	Contents func(context.Context, store.PublishedRelease) ([]bundle.Assignment, []bundle.Artifact, error)

	now      time.Time
	clusters []store.ClusterState
	reports  map[string][]bundle.Report // by uid, oldest first
	releases map[digest.Digest]store.PublishedRelease
	records  []store.PublishedRecord
}

// New returns an empty store, whose reports are judged as of now.
func New(now time.Time) *Store {
	return &Store{now: now, reports: map[string][]bundle.Report{}, releases: map[digest.Digest]store.PublishedRelease{}}
}

// Add adds a registered cluster with its reports, oldest first.
func (s *Store) Add(r store.Registration, reports ...bundle.Report) error {
	c := store.ClusterState{Registration: r}
	if len(reports) > 0 {
		var p timeline.Present
		for i := range reports {
			if _, err := p.Advance(&reports[i], s.now); err != nil {
				return fmt.Errorf("reports of cluster %s: %w", r.Name, err)
			}
		}
		newest := &reports[len(reports)-1]
		proof := store.Proof{At: p.Order, OccurredAt: newest.OccurredAt, ReceivedAt: s.now}
		p.EverReported = true
		p.Fill(&c, proof)
		c.Registration.Newest, c.Deployments = p.Order, p.Listed(proof)
		if c.LastSeen = newest.OccurredAt; c.LastSeen.Sub(s.now) > MaxAhead {
			c.LastSeen = time.Time{}
			c.Reason, c.Message = cmp.Or(c.Reason, "ClockAhead"), "its clock is ahead, so that the age of its report is not known"
		}
		s.reports[r.UID] = reports
	}
	s.clusters = append(s.clusters, c)
	return nil
}

// Publish adds verified records, and the releases of them that are known.
func (s *Store) Publish(records []store.PublishedRecord, releases []store.PublishedRelease) {
	s.records = append(s.records, records...)
	for _, r := range releases {
		s.releases[r.Digest] = r
	}
}

// Scan implements fleet.Source.
func (s *Store) Scan(_ context.Context, of store.Scope, each func(store.ClusterState) error) error {
	slices.SortFunc(s.clusters, func(a, b store.ClusterState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, c := range s.clusters {
		if of.UIDs != nil && !slices.Contains(of.UIDs, c.UID) || !within(of, c) {
			continue
		}
		if of.WithoutDeployments {
			c.Deployments = nil
		}
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

func within(of store.Scope, c store.ClusterState) bool {
	is := func(wanted, got string) bool { return wanted == "" || wanted == got }
	return is(of.Platform, c.Platform) && is(of.Environment, c.Environment) && is(of.Type, c.Type)
}

// Failures implements fleet.Source. From the time on, it counts how far the numbers of assignments have risen since the report before;
// of a cluster without a report before that time, since the oldest one, in which what began to fail later counts once.
func (s *Store) Failures(_ context.Context, from time.Time, of store.Scope, each func(store.Failures) error) (time.Time, error) {
	for _, c := range s.clusters {
		if !within(of, c) {
			continue
		}
		counts := failures(s.reports[c.UID], from)
		for _, workspace := range slices.Sorted(maps.Keys(counts)) {
			if err := each(store.Failures{UID: c.UID, Workspace: workspace, Count: counts[workspace]}); err != nil {
				return from, err
			}
		}
	}
	return from, nil
}

// failures returns how often assignments have begun to fail since a time, by workspace.
func failures(reports []bundle.Report, from time.Time) map[string]int64 {
	all := map[string]int64{}
	// before has the counts of the report before; counts begin anew with an incarnation.
	before, incarnation, known := map[string]int64{}, int64(0), false
	for i, r := range reports {
		if i > 0 && r.Agent.Incarnation != incarnation {
			before, known = map[string]int64{}, true
		}
		incarnation = r.Agent.Incarnation
		for _, item := range r.Items {
			had, has := before[item.Assignment], item.Failures
			switch {
			case !r.OccurredAt.After(from):
			case has > had && (known || had > 0):
				all[item.Workspace] += min(has-had, 1<<20)
			case !known && item.State == bundle.Failed && item.Since.After(from):
				all[item.Workspace]++
			}
			before[item.Assignment] = has
		}
		known = true
	}
	return all
}

// Releases implements fleet.Source.
func (s *Store) Releases(_ context.Context, each func(store.PublishedRelease) error) error {
	all := slices.SortedFunc(maps.Values(s.releases), func(a, b store.PublishedRelease) int {
		return cmp.Or(strings.Compare(a.Stream().Repository(), b.Stream().Repository()), bundle.OrderOf(a.Release, a.Digest).Compare(bundle.OrderOf(b.Release, b.Digest)))
	})
	for _, r := range all {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// Release implements fleet.Source.
func (s *Store) Release(ctx context.Context, d digest.Digest) (store.PublishedRelease, error) {
	r, known := s.releases[d]
	if !known {
		return r, fmt.Errorf("%s: %w", d, store.ErrUnknownRelease)
	}
	if s.Contents == nil {
		return r, nil
	}
	var err error
	r.Assignments, r.Artifacts, err = s.Contents(ctx, r)
	return r, err
}

// Records implements fleet.Source. They are in the order in which they were added.
func (s *Store) Records(_ context.Context, each func(store.PublishedRecord) error) error {
	for _, r := range s.records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// End implements fleet.Source: nothing ever follows.
func (s *Store) End(context.Context) (store.Position, error) { return 0, nil }

// Entries implements fleet.Source.
func (s *Store) Entries(context.Context, store.Position, int) ([]store.FeedEntry, error) {
	return nil, nil
}

// Await implements fleet.Source.
func (s *Store) Await(ctx context.Context, _ store.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// ScanAt implements fleet.Source.
func (s *Store) ScanAt(context.Context, time.Time, store.Scope, func(store.ClusterState) error) error {
	return store.ErrForgotten
}

// Transitions implements fleet.Source.
func (s *Store) Transitions(context.Context, store.TransitionFilter) (store.TransitionList, error) {
	return store.TransitionList{}, store.ErrForgotten
}

// ReportList implements fleet.Source.
func (s *Store) ReportList(context.Context, store.ReportFilter) (store.ReportList, error) {
	return store.ReportList{}, store.ErrForgotten
}

// Envelope implements fleet.Source.
func (s *Store) Envelope(context.Context, string, store.Order) ([]byte, error) {
	return nil, store.ErrForgotten
}

// Place implements fleet.Source.
func (s *Store) Place(context.Context, string, digest.Digest) (store.Order, error) {
	return store.Order{}, store.ErrForgotten
}

// SigningKeys implements fleet.Source.
func (s *Store) SigningKeys(context.Context, string) ([]store.SigningKey, error) {
	return nil, store.ErrForgotten
}

// Promotions implements fleet.Source: whoever asks judges.
func (s *Store) Promotions(context.Context) ([]store.Promotion, error) { return nil, nil }

// Decisions implements fleet.Source: those of a registry are read by whoever judges.
func (s *Store) Decisions(context.Context, string) ([]store.StoredDecision, error) { return nil, nil }
