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
func (f *Source) CompleteRings(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if loaded := f.loadQuietly(cmd); loaded != nil {
		rings, _ := loaded.Model.Rings() // none if they are not clear
		names = rings[min(len(rings), 1):]
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// loadQuietly loads the platform around the current folder, as far as it can be read in the time that a shell waits. It
// is nil if there is none.
func (f *Source) loadQuietly(cmd *cobra.Command) *platform.Loaded {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	quiet := &cobra.Command{}
	quiet.SetErr(io.Discard)
	place, err := f.Resolve(quiet, nil)
	if err != nil {
		return nil
	}
	f.timeout = time.Second
	options, err := f.Options(place, "")
	if err != nil {
		return nil
	}
	loaded, err := platform.Load(ctx, options)
	if err != nil {
		return nil
	}
	return loaded
}
