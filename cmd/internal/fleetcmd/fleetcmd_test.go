package fleetcmd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// canned is answers that a test gives. What it does not give is not asked for.
type canned struct {
	fleet.Answers

	clusters     func(fleet.Query) (fleet.Clusters, error)
	deployments  func(fleet.Query) (fleet.Deployments, error)
	counts       func(of string, by []string) (fleet.Counts, error)
	releases     []fleet.Release
	release      func(name string) (fleet.ReleaseDetail, error)
	environments []fleet.Environment
	history      func(fleet.HistoryQuery) (fleet.History, error)
	compare      func(left, right fleet.Side) fleet.Comparison
	drifts       []fleet.Drift
	rollout      func(fleet.Query) (fleet.Rollout, error)
	events       func(ctx context.Context, after store.Position, each func(fleet.Event) error) error
}

func (c canned) Clusters(_ context.Context, q fleet.Query) (fleet.Clusters, error) {
	return c.clusters(q)
}

func (c canned) Deployments(_ context.Context, q fleet.Query) (fleet.Deployments, error) {
	return c.deployments(q)
}

func (c canned) Count(_ context.Context, of string, by []string, _ fleet.Query) (fleet.Counts, error) {
	return c.counts(of, by)
}

func (c canned) Release(_ context.Context, name string, _ fleet.Query) (fleet.ReleaseDetail, error) {
	return c.release(name)
}

func (c canned) Releases(context.Context, fleet.Query) (fleet.Releases, error) {
	return fleet.Releases{Count: len(c.releases), Releases: c.releases}, nil
}

func (c canned) Environments(context.Context, fleet.Query) (fleet.Environments, error) {
	return fleet.Environments{Environments: c.environments}, nil
}

func (c canned) History(_ context.Context, q fleet.HistoryQuery) (fleet.History, error) {
	return c.history(q)
}

func (c canned) Compare(_ context.Context, left, right fleet.Side, _ fleet.CompareOptions) (fleet.Comparison, error) {
	return c.compare(left, right), nil
}

func (c canned) Drift(context.Context, fleet.Query) (fleet.Drifts, error) {
	kinds := map[string]int{}
	for _, d := range c.drifts {
		kinds[d.Kind]++
	}
	return fleet.Drifts{Kinds: kinds, Drifts: c.drifts}, nil
}

func (c canned) Rollout(_ context.Context, _, _ string, q fleet.RolloutQuery) (fleet.Rollout, error) {
	return c.rollout(q.Query)
}

func (c canned) Reports(_ context.Context, cluster string, _ fleet.Query) (fleet.Reports, error) {
	return fleet.Reports{Cluster: cluster}, nil
}

func (c canned) Events(ctx context.Context, after store.Position, _ fleet.Query, each func(fleet.Event) error) error {
	return c.events(ctx, after, each)
}

// noon is the time in tests.
var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// terminal is a command with answers, as a person at a terminal of a width uses it; zero is a pipe.
type terminal struct {
	make    func(*source) *cobra.Command
	answers fleet.Answers
	width   int
	// ctx, if not nil, is the context of a command without signals, which bubbles of synctest do not end.
	ctx context.Context
}

// run runs the command and returns what it prints, and its exit code.
func (m terminal) run(args ...string) (out, errs string, code int) {
	s := &source{answers: m.answers, clock: func() time.Time { return noon }, columns: func() int { return m.width }}
	root := &cobra.Command{Use: "wherry"}
	cmd := m.make(s)
	root.AddCommand(cmd)
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{cmd.Name()}, args...))
	if m.ctx == nil {
		code = cli.Main(root, failure.Everywhere)
		return stdout.String(), stderr.String(), code
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	err := root.ExecuteContext(m.ctx)
	var said *cli.Error
	switch {
	case err == nil:
		return stdout.String(), stderr.String(), cli.OK
	case errors.As(err, &said):
		return stdout.String(), stderr.String() + err.Error(), said.Code
	}
	return stdout.String(), stderr.String() + err.Error(), cli.Failed
}

// digestOf returns a digest that begins with the digits.
func digestOf(digits string) digest.Digest {
	return digest.Digest("sha256:" + digits + strings.Repeat("0", 64-len(digits)))
}

func cluster(name string, state, last bundle.State, heard time.Duration, via store.Via) fleet.Cluster {
	c := fleet.Cluster{ClusterStatus: store.ClusterStatus{Identity: store.Identity{UID: "uid-" + name, Name: name, Type: "drone", Environment: "prod"}, State: state, LastState: last}}
	if via != "" {
		c.LastSeen, c.Proof.Via = noon.Add(-heard), via
		c.Observed = &bundle.ReportRelease{Digest: digestOf("abcdef01"), Number: 11}
	}
	return c
}

// threeClusters is a page with one cluster of each sort.
func threeClusters(fleet.Query) (fleet.Clusters, error) {
	failed := cluster("plant-7", bundle.Failed, "", 5*time.Minute, store.ViaHTTP)
	failed.Reason = "Unhealthy"
	failed.Desired = &fleet.Desired{Relation: fleet.Behind, Behind: 2}
	return fleet.Clusters{
		Totals: fleet.Totals{
			Count:     1204,
			States:    map[bundle.State]int{bundle.Compliant: 1162, bundle.Failed: 12, store.Stale: 29, store.Unreported: 1},
			Relations: map[fleet.Relation]int{fleet.Behind: 40, fleet.Current: 1164},
		},
		Clusters: []fleet.Cluster{failed, cluster("island", store.Stale, bundle.Compliant, 31*24*time.Hour, store.ViaMedia), cluster("new", store.Unreported, "", 0, "")},
	}, nil
}
