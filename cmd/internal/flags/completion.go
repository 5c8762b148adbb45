package flags

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/publisher/platform"
)

// completionTime bounds how long a shell waits for an answer.
const completionTime = 3 * time.Second

// CompleteEnvironments completes the names of the environments of the repository around the current folder.
func CompleteEnvironments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if s, err := Settings(); err == nil && s.Platform != nil {
		for _, e := range s.Platform.Environments() {
			names = append(names, e.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteClusterTypes completes the cluster types of the environment, which the flag --environment or the current folder
// says.
func CompleteClusterTypes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	f := &Source{}
	if e := cmd.Flags().Lookup("environment"); e != nil {
		f.Environment = e.Value.String()
	}
	var names []string
	if loaded := f.loadQuietly(cmd); loaded != nil {
		names = slices.Sorted(maps.Keys(loaded.Model.Objects().ClusterTypes))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteAssignments completes TYPE/TARGET with the assignments of the environment, as far as they are known without a
// network.
func (f *Source) CompleteAssignments(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	if loaded := f.loadQuietly(cmd); loaded != nil {
		if decision, err := loaded.Model.Decide(cmd.Context()); err == nil {
			for _, a := range decision.Assignments {
				names = append(names, a.ClusterType+"/"+a.Name)
			}
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveDefault
}

// CompleteClusters completes the name of a cluster.
func (f *Source) CompleteClusters(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if loaded := f.loadQuietly(cmd); loaded != nil {
		for _, c := range loaded.Model.Clusters() {
			names = append(names, c.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteRings completes the rings of the environment that get what the ring before them has: all but the first.
func (f *Source) CompleteRings(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if loaded := f.readQuietly(cmd, args, platform.LoadPlatform); loaded != nil {
		rings, _ := loaded.Model.Rings() // none if they are not clear
		names = rings[min(len(rings), 1):]
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// loadQuietly loads the platform around the current folder, as far as it can be read in the time that a shell waits. It
// is nil if there is none.
func (f *Source) loadQuietly(cmd *cobra.Command) *platform.Loaded {
	return f.readQuietly(cmd, nil, platform.Load)
}

// readQuietly reads the platform that args have, or that around the current folder, in the time that a shell waits.
func (f *Source) readQuietly(cmd *cobra.Command, args []string, load loading) *platform.Loaded {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	f.timeout = time.Second
	f.bases, f.workloads = once(f.bases), once(f.workloads)
	return f.read(ctx, args, load)
}

// once returns the different values, in order: cobra parses the flags twice before it completes, and so appends to a list twice.
func once(values []string) (all []string) {
	for _, v := range values {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// Peek reads the platform around the current folder without the app teams' sources, for a command that can do without it: nil if there
// is none, or if it cannot be read. No repository is waited for longer than timeout.
func (f *Source) Peek(ctx context.Context, timeout time.Duration) *platform.Loaded {
	f.timeout = timeout
	return f.read(ctx, nil, platform.LoadPlatform)
}

// loading is platform.Load or platform.LoadPlatform.
type loading func(context.Context, platform.Source) (*platform.Loaded, error)

func (f *Source) read(ctx context.Context, args []string, load loading) *platform.Loaded {
	quiet := &cobra.Command{}
	quiet.SetErr(io.Discard)
	place, err := f.Resolve(quiet, args)
	if err != nil {
		return nil
	}
	options, err := f.Options(place, "")
	if err != nil {
		return nil
	}
	loaded, err := load(ctx, options)
	if err != nil {
		return nil
	}
	return loaded
}
