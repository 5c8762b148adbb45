package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// ErrOptions means that options are out of their bounds, or contradict each other.
var ErrOptions = errors.New("invalid options")

// The bounds and defaults of Options.
const (
	MaxClusters    = 100_000
	MaxTypes       = 1000
	MaxAssignments = 2000
	MaxReleases    = 100

	DefaultClusters    = 100
	DefaultAssignments = 200
	DefaultTimeout     = 10 * time.Minute
	DefaultRealPoll    = 5 * time.Minute
)

// Options describe the fleet and what happens to it. The zero value is 100 clusters of one type, without rings and faults, and one
// release that changes one of 200 assignments.
type Options struct {
	// Clusters is the number of clusters, Types that of their cluster types, and Assignments that of each type. Plan has its own.
	Clusters, Types, Assignments int
	// Rings are narrowest first, each with its share of the clusters; none for a platform without rings.
	Rings []Share
	// Changed is the number of assignments of each type that a release changes, and Releases how many releases follow the first.
	Changed, Releases int
	// Offline is the share of clusters, in percent, that is never reached, Failing that in which each changed assignment fails, and
	// ComeAndGo that which is out of reach for Away, then in reach for as long, in turn. Other clusters are always in reach.
	Offline, Failing, ComeAndGo float64
	Away                        time.Duration // 0 is five times Poll
	// Links are the links of shares of the clusters; none for that of this machine.
	Links []LinkShare
	// Poll is the time between two polls of an agent; 0 chooses one that two processors can serve. RealPoll is that of the fleet for
	// which Result.Hourly is computed; 0 is DefaultRealPoll.
	Poll, RealPoll time.Duration
	// Rest is how long to measure a fleet in which nothing changes, after the last release. 0 is not at all.
	Rest time.Duration
	// Timeout bounds the wait for one release in one ring; 0 is DefaultTimeout.
	Timeout time.Duration
	Seed    uint64
	// Plan is a platform with its clusters, in place of Clusters, Types, Assignments and Rings; nil makes one up.
	Plan *Plan
	// Registry is the location of another registry, and empty for one in this process.
	Registry string
	// DeltaCommand is that of publisher.PublishOptions.
	DeltaCommand []string
	// Version is what the agents report.
	Version string
	// Progress, if not nil, is told how far the simulation is, by one goroutine.
	Progress func(Progress)
}

// Plan is a platform and its clusters.
type Plan struct {
	// Result is the rendered environment, with the files of its assignments.
	Result   *scheduler.Result
	Clusters []scheduler.Cluster
	// Policy is that of the environment. Without a name, the gates are those of a made-up platform: half of the clusters have reported, 80 %
	// of them are compliant, and at most 5 % of the fleet failed.
	Policy promotion.Policy
}

// Progress is how far a simulation is.
type Progress struct {
	What     string // such as "installs"
	Done, Of int    // clusters; zero where there is nothing to count
	Elapsed  time.Duration
}

// Share is a part of the clusters with a name, in percent.
type Share struct {
	Name    string  `json:"name"`
	Percent float64 `json:"percent"`
}

// ParseShares reads shares such as "canary=5%,early=20%,stable". One of them, which has no share, gets what is left.
func ParseShares(text string) ([]Share, error) {
	var all []Share
	left, open := 100.0, -1
	for part := range strings.SplitSeq(text, ",") {
		name, share, given := strings.Cut(strings.TrimSpace(part), "=")
		if name == "" {
			return nil, fmt.Errorf("%w: %q has a part without a name", ErrOptions, text)
		}
		s := Share{Name: name}
		if given {
			var err error
			if s.Percent, err = ParsePercent(share); err != nil {
				return nil, err
			}
			left -= s.Percent
		} else if open >= 0 {
			return nil, fmt.Errorf("%w: %q has two parts without a share; one may get what is left", ErrOptions, text)
		} else {
			open = len(all)
		}
		for _, other := range all {
			if other.Name == s.Name {
				return nil, fmt.Errorf("%w: %q has %s twice", ErrOptions, text, s.Name)
			}
		}
		all = append(all, s)
	}
	switch {
	case left < -1e-9:
		return nil, fmt.Errorf("%w: the shares of %q are more than 100 %% together", ErrOptions, text)
	case open >= 0:
		all[open].Percent = math.Max(left, 0)
	case left > 1e-9:
		return nil, fmt.Errorf("%w: the shares of %q are less than 100 %% together; leave out the last one's", ErrOptions, text)
	}
	return all, nil
}

// ParsePercent reads a share such as "10%", "0.5%" or "10".
func ParsePercent(text string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), "%"), 64)
	if err != nil || !(p >= 0 && p <= 100) {
		return 0, fmt.Errorf("%w: %q is not a share from 0%% to 100%%", ErrOptions, text)
	}
	return p, nil
}

func (o Options) withDefaults() Options {
	o.Clusters = cmp.Or(o.Clusters, DefaultClusters)
	if o.Plan != nil {
		o.Clusters = len(o.Plan.Clusters)
	}
	o.Types = cmp.Or(o.Types, 1)
	o.Assignments = cmp.Or(o.Assignments, DefaultAssignments)
	o.Changed = cmp.Or(o.Changed, 1)
	o.Releases = cmp.Or(o.Releases, 1)
	o.Poll = cmp.Or(o.Poll, pollFor(o.Clusters))
	o.RealPoll = cmp.Or(o.RealPoll, DefaultRealPoll)
	o.Away = cmp.Or(o.Away, 5*o.Poll)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Version = cmp.Or(o.Version, "(simulated)")
	return o
}

// pollsPerSecond is what agents, registry and hub together do on two processors with room to spare.
const pollsPerSecond = 200

// pollFor returns the time between the polls of so many agents.
func pollFor(clusters int) time.Duration {
	return max(time.Second, (time.Duration(clusters) * time.Second / pollsPerSecond).Round(time.Second))
}

// Check returns an error that wraps ErrOptions if o is out of bounds.
func (o Options) Check() error {
	for _, bound := range []struct {
		name       string
		value, max int
	}{
		{"clusters", o.Clusters, MaxClusters},
		{"types", o.Types, MaxTypes},
		{"assignments", o.Assignments, MaxAssignments},
		{"releases", o.Releases, MaxReleases},
		{"changed assignments", o.Changed, MaxAssignments},
	} {
		if bound.value < 0 || bound.value > bound.max {
			return fmt.Errorf("%w: %d %s: at most %d", ErrOptions, bound.value, bound.name, bound.max)
		}
	}
	d := o.withDefaults()
	switch {
	case o.Plan != nil && len(o.Plan.Clusters) == 0:
		return fmt.Errorf("%w: the platform has no Cluster objects", ErrOptions)
	case o.Plan != nil && len(o.Plan.Clusters) > MaxClusters:
		return fmt.Errorf("%w: %d clusters: at most %d", ErrOptions, len(o.Plan.Clusters), MaxClusters)
	case o.Plan == nil && d.Types > d.Clusters:
		return fmt.Errorf("%w: %d types for %d clusters", ErrOptions, d.Types, d.Clusters)
	case o.Plan == nil && d.Changed > d.Assignments:
		return fmt.Errorf("%w: a release cannot change %d of %d assignments", ErrOptions, d.Changed, d.Assignments)
	case d.Offline+d.ComeAndGo > 100:
		return fmt.Errorf("%w: %g %% offline and %g %% that come and go are more than all clusters", ErrOptions, d.Offline, d.ComeAndGo)
	case d.Poll < 100*time.Millisecond || d.Poll > 24*time.Hour:
		return fmt.Errorf("%w: polls every %s: from 100ms to 24h", ErrOptions, d.Poll)
	case d.RealPoll < time.Second || d.Away <= 0 || d.Timeout <= 0 || d.Rest < 0:
		return fmt.Errorf("%w: a time is negative, or the real polls are less than a second apart", ErrOptions)
	}
	return o.checkRoom()
}
