package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/e2e/load/simulation"
	"github.com/wherry-dev/wherry/publisher/platform"
)

// simulating holds the flags of simulate.
type simulating struct {
	source                               flags.Source
	options                              simulation.Options
	plan, rings, offline, failing, links string
	comeAndGo, dir, format               string
	mine                                 bool
}

func newSimulateCommand() *cobra.Command {
	var s simulating
	cmd := &cobra.Command{
		Use:   "simulate [--clusters N] [--plan PLATFORM]",
		Short: "Simulate and measure a fleet",
		Long: `Run many real agents in one process against a registry and a hub on loopback. It publishes a generated platform, or that of
--plan with its Cluster objects, lets all agents install it, makes --releases changes and leads each through the rings
by their gates. The clusters are in memory and accept everything, except for a share of --failure-rate.

It prints requests and bytes at registry and hub, bytes for each cluster, the time until the hub knew each cluster to be
compliant, the verdicts of gates, and memory and processor time. Times are those of this machine.

--rings and --link take NAME=SHARE,…; one part without a share gets the rest. --registry loads another registry, which has to
be on loopback unless you pass --i-own-this-registry. Ctrl-C prints what was measured so far.

Exit codes: 0 every reachable cluster got the last release, 1 one did not or a request failed, 2 this machine is too small.

More: wherry help simulating, sources`,
		Example: `  wherry simulate
  wherry simulate --clusters 1000 --types 5 --rings canary=5%,early=20%,stable --offline 10%
  wherry simulate --clusters 200 --link 10Mbit/40ms=70%,64kbit/600ms --come-and-go 20% --failure-rate 1% -o json
  wherry simulate --plan ./prod --base ./main --rest 30s --fleet-poll 5m`,
		Args: cobra.NoArgs,
		RunE: s.run,
	}
	f, o := cmd.Flags(), &s.options
	f.IntVar(&o.Clusters, "clusters", simulation.DefaultClusters, "the `NUMBER` of clusters")
	f.IntVar(&o.Types, "types", 1, "the `NUMBER` of cluster types")
	f.IntVar(&o.Assignments, "assignments", simulation.DefaultAssignments, "the `NUMBER` of assignments of each type")
	f.IntVar(&o.Changed, "changed", 1, "the `NUMBER` of assignments of each type that a release changes")
	f.IntVar(&o.Releases, "releases", 1, "the `NUMBER` of releases after the first one")
	f.StringVar(&s.rings, "rings", "", "the `RINGS`, narrowest first, such as canary=5%,early=20%,stable")
	f.StringVar(&s.offline, "offline", "0%", "the `SHARE` of clusters that are never in reach")
	f.StringVar(&s.comeAndGo, "come-and-go", "0%", "the `SHARE` of clusters that are in reach half of the time")
	f.Var((*duration.Value)(&o.Away), "away", "how long these are out of reach, and then in reach, as a `TIME` (default five polls)")
	f.StringVar(&s.failing, "failure-rate", "0%", "the `SHARE` of clusters in which each changed assignment fails")
	f.StringVar(&s.links, "link", "", "the `LINKS` of clusters, such as 1Mbit, 1Mbit/40ms or 10Mbit/40ms=70%,64kbit/600ms (default this machine's)")
	f.Var((*duration.Value)(&o.Poll), "poll", "the `TIME` between two polls of an agent (default one that two processors can serve)")
	f.Var((*duration.Value)(&o.RealPoll), "fleet-poll", "the `TIME` between two polls of the fleet that is planned for (default 5m)")
	f.Var((*duration.Value)(&o.Rest), "rest", "measure the fleet for this `TIME` after the last release, while nothing changes (default not at all)")
	o.Timeout = simulation.DefaultTimeout
	f.Var((*duration.Value)(&o.Timeout), "release-timeout", "wait for a release in a ring for this `TIME`")
	f.Uint64Var(&o.Seed, "seed", 1, "the `NUMBER` that chooses clusters: the same number chooses the same ones")
	f.StringVar(&s.plan, "plan", "", "simulate this `PLATFORM` with its Cluster objects, its rings and their gate")
	f.StringVar(&o.Registry, "registry", "", "load the registry at this `LOCATION`, as oci://HOST/PREFIX, in place of one of its own")
	f.BoolVar(&s.mine, "i-own-this-registry", false, "load a registry that is not on this machine; do that to nobody else's")
	f.StringVar(&s.dir, "dir", "", "put the temporary files below this `FOLDER` (default TMPDIR)")
	s.source.AddEnvironment(cmd)
	s.source.AddReplacements(cmd)
	cli.OutputFlag(cmd, &s.format)
	cli.NotEmpty(cmd, "rings", "link", "plan", "registry", "dir")
	cli.Rare(cmd, "away", "release-timeout", "i-own-this-registry", "dir", "base", "workload")
	return cmd
}

func (s *simulating) run(cmd *cobra.Command, _ []string) (err error) {
	if err := s.parse(cmd); err != nil {
		return err
	}
	o := s.options
	o.Version, o.DeltaCommand = cli.Version(), cli.DeltaCommand()
	if s.plan != "" {
		if o.Plan, err = s.readPlan(cmd); err != nil {
			return err
		}
	}
	if err := o.Check(); err != nil {
		return cli.Fail(cli.Usage, err, "")
	}
	dir, err := os.MkdirTemp(s.dir, "wherry-simulate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	debug.SetGCPercent(50) // memory, and not the processor, bounds the number of agents
	room := o.Room()
	fmt.Fprintf(cmd.ErrOrStderr(), "simulating takes some %s of memory%s and %d file descriptors%s\n",
		show.Size(room.Memory), free(room.FreeMemory, show.Size(room.FreeMemory)), room.Files, free(room.MaxFiles, fmt.Sprint(room.MaxFiles)))
	line := cli.NewProgress("simulation")
	if line != nil {
		o.Progress = func(p simulation.Progress) { line.Show(progressText(p)) }
	}
	result, err := simulation.Run(cmd.Context(), dir, o)
	line.End()
	if errors.Is(err, simulation.ErrOptions) {
		return cli.Fail(cli.Usage, err, "")
	}
	if result == nil {
		return err
	}
	if printErr := cli.Print(cmd.OutOrStdout(), s.format, result, func(w io.Writer) { printSimulation(w, result) }); printErr != nil || err != nil {
		return errors.Join(err, printErr)
	}
	if !result.AsExpected() {
		return cli.Exit(cli.No)
	}
	return nil
}

// free says how much of something there is, if that is known.
func free(n int64, text string) string {
	if n == 0 {
		return ""
	}
	return " (of " + text + ")"
}

func progressText(p simulation.Progress) string {
	text := fmt.Sprintf("%s, %s", p.Elapsed.Round(time.Second), p.What)
	if p.Of > 0 {
		text += fmt.Sprintf(": %d of %s", p.Done, show.Count(p.Of, "cluster"))
	}
	return text
}

// parse reads the flags that are texts.
func (s *simulating) parse(cmd *cobra.Command) (err error) {
	o := &s.options
	for _, share := range []struct {
		name, text string
		to         *float64
	}{{"offline", s.offline, &o.Offline}, {"come-and-go", s.comeAndGo, &o.ComeAndGo}, {"failure-rate", s.failing, &o.Failing}} {
		if *share.to, err = simulation.ParsePercent(share.text); err != nil {
			return cli.Usagef("--%s: %w", share.name, err)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"clusters", o.Clusters}, {"types", o.Types}, {"assignments", o.Assignments}, {"changed", o.Changed}, {"releases", o.Releases}} {
		if n.value < 1 {
			return cli.Usagef("--%s %d: at least 1", n.name, n.value)
		}
	}
	if s.rings != "" {
		if o.Rings, err = simulation.ParseShares(s.rings); err != nil {
			return cli.Usagef("--rings: %w", err)
		}
	}
	for _, r := range o.Rings {
		if err := oci.CheckTag(r.Name); err != nil {
			return cli.Usagef("--rings: %w", err)
		}
	}
	if s.links != "" {
		if o.Links, err = simulation.ParseLinks(s.links); err != nil {
			return cli.Usagef("--link: %w", err)
		}
	}
	if s.plan == "" && s.source.Replaced() {
		return cli.Usagef("--environment, --base, --workload and --commit need --plan")
	}
	if s.plan != "" {
		for _, name := range []string{"clusters", "types", "assignments", "rings"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s and --plan: the platform has its own", name)
			}
		}
	}
	return s.checkRegistry()
}

// checkRegistry refuses to load a registry that may be somebody else's.
func (s *simulating) checkRegistry() error {
	if s.options.Registry == "" {
		return nil
	}
	at, err := oci.Parse(s.options.Registry)
	if err != nil {
		return cli.Usagef("--registry: %w", err)
	}
	if at.Host == "" {
		return cli.Usagef("--registry %s: a simulation needs a registry, oci://HOST/PREFIX", s.options.Registry)
	}
	if !oci.IsLoopback(at.Host) && !s.mine {
		return cli.Fail(cli.Denied, fmt.Errorf("--registry: %s is not on this machine, and a simulation loads it heavily", at.Host), "pass --i-own-this-registry if it is yours to load")
	}
	return nil
}

// readPlan reads the platform, renders it and takes its clusters and its policy.
func (s *simulating) readPlan(cmd *cobra.Command) (*simulation.Plan, error) {
	built, err := s.source.Render(cmd, s.plan, "", platform.Options{ToSign: true})
	if err != nil {
		return nil, err
	}
	policy, err := built.Loaded.Model.Promotion()
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "")
	}
	plan := &simulation.Plan{Result: built.Result, Clusters: built.Loaded.Model.Clusters(), Policy: policy}
	if len(plan.Clusters) == 0 {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("%s has no Cluster objects", s.plan), `they say how many clusters of which type and ring there are; see "wherry roster"`)
	}
	return plan, nil
}

func printSimulation(w io.Writer, r *simulation.Result) {
	line := func(name, format string, args ...any) { cli.Row(w, name, fmt.Sprintf(format, args...)) }
	if r.Interrupted {
		line("INTERRUPTED", "what follows was measured until then")
	}
	line("RESULT", "%d of %s got the last release; %s%s", r.Compliant, show.Count(r.Expected, "cluster"), failedText(r.FailedRequests),
		counts(", ", count{r.Deferred, "deferred"}, count{r.Refused, "refused"}, count{r.Cut, "cut off by links"}))
	st := r.Setup
	line("SIMULATED", "%s of %s with %s%s", show.Count(st.Clusters, "cluster"), show.Count(st.Types, "type"), show.Count(st.Assignments, "assignment"),
		counts(": ", count{int64(st.Offline), "offline"}, count{int64(st.ComeAndGo), "coming and going"}, count{int64(st.Failing), "failing"}))
	line("SIMULATED", "polls every %s for %s", seconds(st.PollSeconds), seconds(r.Seconds))
	for _, ring := range st.Rings {
		line("RING", "%s: %s", ring.Name, show.Count(ring.Clusters, "cluster"))
	}
	for _, service := range []struct {
		name string
		simulation.Load
	}{{"REGISTRY", r.Registry}, {"HUB", r.Hub}} {
		line(service.name, "%d requests, %s; at most %d requests in a second", service.Requests, show.Size(service.Bytes), service.PeakPerSecond)
	}
	line("A CLUSTER", "installed with %s", sizes(r.InstallBytesPerCluster))
	line("A CLUSTER", "then took %s", sizes(r.BytesPerCluster))
	line("PROCESS", "%s of processor time, %s of memory at most, %s a cluster", seconds(r.Process.CPUSeconds), show.Size(r.Process.PeakRSS), show.Size(r.Process.PerCluster))
	line("INSTALLED", "%s", stageText(r.Install))
	for _, release := range r.Releases {
		name := fmt.Sprintf("RELEASE %d", release.Number)
		for _, stage := range release.Stages {
			line(name, "%s", stageText(stage))
		}
		if release.HeldBefore != "" {
			line(name, "kept from ring %s by its gate", release.HeldBefore)
		}
		line(name, "%s in all; %s of processor time", seconds(release.Seconds), seconds(release.CPUSeconds))
	}
	for _, v := range r.Gates {
		line("GATE", "at %s, release %d before %s: %s (%d of %s compliant%s)", seconds(v.Seconds), v.Release, v.Ring, v.Result, v.Compliant, show.Count(v.Clusters, "cluster"),
			counts(", ", count{int64(v.Failed), "failed"}, count{int64(v.Progressing), "progressing"}, count{int64(v.Waiting), "waiting"}, count{int64(v.Unknown), "unknown"}))
		for _, r := range v.Open {
			line("GATE", "  %s", r)
		}
	}
	if r.Rest != nil {
		line("AT REST", "in %s: %d requests and %s at the registry, %d and %s at the hub", seconds(r.Rest.Seconds), r.Rest.Registry.Requests, show.Size(r.Rest.Registry.Bytes), r.Rest.Hub.Requests, show.Size(r.Rest.Hub.Bytes))
	}
	if h := r.Hourly; h != nil {
		line("COMPUTED", "an hour of polls every %s, and one report of each cluster:", seconds(h.PollSeconds))
		line("COMPUTED", "  %d requests and %s at the registry, %d and %s at the hub", h.RegistryRequests, show.Size(h.RegistryBytes), h.HubRequests, show.Size(h.HubBytes))
		line("COMPUTED", "a release, as measured: %s", show.Size(h.ReleaseBytes))
	}
	for _, f := range r.Failures {
		line("FAILED", "%s", f)
	}
	for _, n := range r.Notes {
		line("NOTE", "%s", n)
	}
}

func failedText(n int64) string {
	if n == 0 {
		return "no failed request"
	}
	return show.Count(int(n), "failed request")
}

// count is a number of things in words, such as 3 offline.
type count struct {
	n    int64
	what string
}

// counts returns those that are not zero, separated by commas, after a text; nothing if all are zero.
func counts(after string, all ...count) string {
	var parts []string
	for _, c := range all {
		if c.n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return after + strings.Join(parts, ", ")
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func sizes(d simulation.Distribution) string {
	size := func(bytes float64) string { return show.Size(int64(bytes)) }
	return fmt.Sprintf("%s (mean; p50 %s, p99 %s)", size(d.Mean), size(d.P50), size(d.P99))
}

func stageText(s simulation.Stage) string {
	text := fmt.Sprintf("%d of %s", s.Compliant, show.Count(s.Clusters, "cluster"))
	if s.Ring != "" {
		text = s.Ring + ": " + text
	}
	t := s.Times
	return text + fmt.Sprintf(" compliant within p50 %s, p90 %s, p99 %s, max %s", seconds(t.P50), seconds(t.P90), seconds(t.P99), seconds(t.Max))
}
