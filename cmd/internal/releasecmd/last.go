package releasecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// lastReleases lets rendering take failed assignments from the last releases at loc.
func lastReleases(loc oci.Location, trust published.Signers, keys []*keys.Key, opts publisher.PublishOptions) func(context.Context, *platform.Loaded, *platform.Options) error {
	return func(_ context.Context, loaded *platform.Loaded, build *platform.Options) error {
		read := publisher.LastReleases(loaded, loc, trust, keys, opts)
		build.LastRelease = func(ctx context.Context, clusterType string) ([]scheduler.Released, error) {
			list, err := read(ctx, clusterType)
			if err != nil {
				return nil, failure.At(err, loc)
			}
			return list, nil
		}
		return nil
	}
}

// Changes renders an environment, and returns what publishing it would change.
func Changes(cmd *cobra.Command, source *flags.Source, place string, to oci.Location, signers published.Signers, opts publisher.PublishOptions) (*diff.Difference, error) {
	source.Named = to.String()
	built, err := source.Build(cmd, place, to.Dir, platform.Options{Pack: true, ToSign: true, AfterLoad: lastReleases(to, signers, nil, opts)})
	if err != nil {
		return nil, err
	}
	opts.Cache, opts.Packed, opts.Parallel = source.Cache.Get(), built.Packed, publisher.DefaultParallel
	opts.EnvironmentCommit, opts.Source, opts.DeltaCommand = built.Loaded.EnvironmentCommit, built.Loaded.Source, cli.DeltaCommand()
	d, err := publisher.Compare(cmd.Context(), built, to, signers, opts)
	if err != nil {
		return nil, failure.At(err, to)
	}
	return d, nil
}

// Removals renders an environment, and returns what publishing it would remove beyond the platform's bound, for people.
func Removals(cmd *cobra.Command, source *flags.Source, place string, to oci.Location, signers published.Signers, opts publisher.PublishOptions) ([]string, error) {
	source.Named = to.String()
	built, err := source.Build(cmd, place, to.Dir, platform.Options{Pack: true, ToSign: true, AfterLoad: lastReleases(to, signers, nil, opts)})
	if err != nil {
		return nil, err
	}
	opts.Cache, opts.Packed, opts.Parallel = source.Cache.Get(), built.Packed, publisher.DefaultParallel
	over, err := publisher.Removals(cmd.Context(), built, to, signers, opts)
	if err != nil {
		return nil, failure.At(err, to)
	}
	var texts []string
	for _, j := range over {
		texts = append(texts, j.Message)
	}
	return texts, nil
}
