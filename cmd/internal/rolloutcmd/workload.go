package rolloutcmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/gatefacts"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher/cohort"
	"github.com/wherry-dev/wherry/scheduler"
)

// standIn answers, without a hub, what wherry rollout status --workload asks one: from the records, releases and reports of a
// registry, and the Cluster objects of an environment. One goroutine uses it.
type standIn struct {
	fleet.Answers // nil: other questions are not asked

	facts       *gatefacts.Facts
	environment string
	maxAge      time.Duration // of a report
	clusters    []scheduler.Cluster
	failure     func(error) error

	// What the last look has found.
	history *cohort.History
	reports *cohort.Reports
	types   map[digest.Digest]string // the cluster types of releases
}

// choosing are the flags that ask a registry, and no hub, about a workload; so does PLATFORM.
var choosing = []string{"to", "release-key", "trust", "base", "reports"}

// open reads PLATFORM for the clusters, and returns who answers about workloads in place of a hub; nil if a hub is to answer.
func (l *looking) open(cmd *cobra.Command, args []string) (instead fleet.Answers, by string, err error) {
	given := slices.IndexFunc(choosing, cmd.Flags().Changed)
	if given < 0 && len(args) == 0 {
		return nil, "", nil
	}
	for _, name := range []string{"hub", "data"} {
		if cmd.Flags().Changed(name) {
			return nil, "", cli.Usagef("--%s asks a hub, which knows what is published: leave it out, or PLATFORM and --to, --release-key, --trust, --base and --reports", name)
		}
	}
	for _, name := range []string{"cluster-type", "allow-commands", "check-env"} {
		if cmd.Flags().Changed(name) {
			return nil, "", cli.Usagef("--%s is about the rings of an environment: leave out --workload and --version", name)
		}
	}
	own := l.command
	if cmd.Flags().Changed("environment") {
		if err := own.Flags().Set("environment", cmd.Flag("environment").Value.String()); err != nil {
			return nil, "", err
		}
	}
	l.prepare(cmd)
	l.NoHub = true // whoever gives such a flag asks the registry
	o, err := l.Open(own, args)
	if err != nil {
		return nil, "", err
	}
	s := &standIn{
		facts: &o.Facts, environment: o.Policy.Environment, maxAge: o.Policy.RingGate.MaxReportAge,
		failure: func(err error) error { return l.Failure(err, &o.Facts) },
	}
	if s.clusters, err = o.Facts.Clusters(cmd.Context(), s.environment); err != nil {
		return nil, "", s.failure(err)
	}
	return s, "the reports in " + o.Facts.Location.String(), nil
}

// Clusters implements fleet.Answers for conditions on ring, type and labels.
func (s *standIn) Clusters(ctx context.Context, q fleet.Query) (fleet.Clusters, error) {
	list := fleet.Clusters{Clusters: []fleet.Cluster{}}
	if only := (fleet.Query{Environments: q.Environments, Ring: q.Ring, Type: q.Type, Selector: q.Selector}); fmt.Sprint(only) != fmt.Sprint(q) {
		return list, cli.Usagef("without a hub, --ring, --type and --selector choose clusters, and no other flag")
	}
	selector, err := labels.Parse(q.Selector)
	if err != nil {
		return list, cli.Fail(cli.Usage, fmt.Errorf("--selector: %w", err), "")
	}
	now := s.facts.Now().UTC()
	reader, err := cohort.Open(s.facts.Location, s.facts.Options, s.facts.Signers, s.facts.Platform, now, s.facts.Warn)
	if err != nil {
		return list, s.failure(err)
	}
	if s.history, err = reader.History(ctx, s.environment); err != nil {
		return list, s.failure(err)
	}
	var chosen []scheduler.Cluster
	for _, c := range s.clusters {
		if selector.Matches(labels.Set(c.Labels)) && (q.Ring == "" || q.Ring == c.Ring) && (q.Type == "" || q.Type == c.ClusterType) {
			chosen = append(chosen, c)
		}
	}
	if s.reports, err = reader.Reports(ctx, chosen, s.facts.Reports); err != nil {
		return list, s.failure(err)
	}
	s.types = map[digest.Digest]string{}
	for _, c := range chosen {
		list.Clusters = append(list.Clusters, s.cluster(c, now))
	}
	return list, nil
}

// cluster returns a cluster as its newest report has it.
func (s *standIn) cluster(c scheduler.Cluster, now time.Time) fleet.Cluster {
	one := fleet.Cluster{ClusterStatus: store.ClusterStatus{State: store.Unreported}}
	one.Name, one.UID, one.Environment, one.Type, one.Ring, one.Labels = c.Name, c.UID, s.environment, c.ClusterType, c.Ring, c.Labels
	if !c.Reporting {
		one.Reporting = store.NotReporting
	}
	if record := s.history.Newest(); record != nil {
		named := record.ReleaseOf(c.ClusterType, c.Ring)
		if named == "" { // agents of a ring that the record does not name have what all may have
			named = record.ClusterTypes[c.ClusterType]
		}
		if named != "" {
			one.Meant, s.types[named] = &fleet.Meant{Release: &bundle.ReportRelease{Digest: named}}, c.ClusterType
		}
	}
	r := s.reports.Newest(c.UID)
	if r == nil {
		return one
	}
	if one.Meant != nil && r.Desired != nil && r.Desired.Digest == one.Meant.Release.Digest {
		one.Meant.Release = r.Desired // with its number
	}
	one.State, one.Reason, one.Message, one.Desired, one.Observed, one.LastSeen = r.State, r.Reason, bundle.Clip(r.Message), r.Desired, r.Observed, r.OccurredAt
	if age := now.Sub(r.OccurredAt); age < -cohort.MaxAhead || s.maxAge > 0 && age > s.maxAge {
		one.State, one.Was = store.Stale, r.State
	} else {
		one.ProofAgeSeconds = int64(max(age, 0) / time.Second)
	}
	return one
}

// Deployments implements fleet.Answers for the clusters of the last look.
func (s *standIn) Deployments(_ context.Context, q fleet.Query) (all fleet.Deployments, _ error) {
	for _, c := range s.clusters {
		r := s.reports.Newest(c.UID)
		if r == nil {
			continue
		}
		for _, item := range r.Items {
			if item.Workload != q.Workload || q.Workspace != "" && item.Workspace != q.Workspace {
				continue
			}
			all.Deployments = append(all.Deployments, fleet.Deployment{DeploymentStatus: store.DeploymentStatus{
				Cluster: c.Name, ClusterUID: c.UID, Assignment: item.Assignment, Workspace: item.Workspace, Workload: item.Workload, Target: item.Target,
				State: item.State, Reason: item.Reason, Message: bundle.Clip(item.Message), Since: item.Since, Version: item.Version,
			}})
		}
	}
	return all, nil
}

// Release implements fleet.Answers for releases that a cluster of the last look is meant to run.
func (s *standIn) Release(ctx context.Context, name string, _ fleet.Query) (detail fleet.ReleaseDetail, err error) {
	d := digest.Digest(name)
	if _, detail.Assignments, err = s.history.Assignments(ctx, s.types[d], d); err != nil {
		return detail, s.failure(err)
	}
	return detail, nil
}

// Events implements fleet.Answers: a registry tells of nothing.
func (s *standIn) Events(ctx context.Context, _ store.Position, _ fleet.Query, _ func(fleet.Event) error) error {
	<-ctx.Done()
	return ctx.Err()
}
