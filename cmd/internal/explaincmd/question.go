package explaincmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// question holds the flags and arguments that the commands of explain share.
type question struct {
	source   flags.Source
	registry flags.Registry
	from     string
	trust    flags.Trust
	format   string
	cluster  string // for site values; empty for configuration

	loaded *platform.Loaded // the platform, without --from

	platform, clusterType, target string
	rest                          []string
}

// command completes cmd. It takes PLATFORM, unless --from is given, then TYPE/TARGET or TYPE TARGET, then the
// named arguments. Without --from, explain answers from the sources, else released from a bundle.
func (x *question) command(cmd *cobra.Command, named []string, explain func(*cobra.Command, *scheduler.Explainer) error, released func(*cobra.Command, *catalog.Released) error) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := x.take(cmd, args, named); err != nil {
			return err
		}
		if x.from != "" {
			return x.released(cmd, released)
		}
		if _, err := x.source.Resolve(cmd, []string{x.platform}); err != nil {
			return err
		}
		return x.fromSources(cmd, explain)
	}
	x.addFlags(cmd)
	return cmd
}

// fromSources explains from the platform.
func (x *question) fromSources(cmd *cobra.Command, explain func(*cobra.Command, *scheduler.Explainer) error) error {
	loaded, err := x.source.Load(cmd, x.platform, "")
	if err != nil {
		return err
	}
	x.loaded = loaded
	e, err := loaded.Model.Explainer(nil)
	if err != nil {
		return cli.Fail(cli.Usage, err, "")
	}
	for _, u := range loaded.Unread {
		cmd.PrintErrf("warning: nothing is known of registration %s: %v\n", u.Registration, u.Err)
	}
	flags.PrintFailedPolicies(cmd, loaded)
	return explain(cmd, e)
}

func (x *question) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	x.source.AddEnvironment(cmd)
	x.source.AddReplacements(cmd)
	f.StringVar(&x.from, "from", "", "explain from the bundle at this `LOCATION` instead of PLATFORM")
	x.trust.AddTo(cmd, "with --from: the public key `FILE` that must have signed the bundle")
	x.registry.AddTo(cmd)
	cli.OutputFlag(cmd, &x.format)
}

// take reads the arguments.
func (x *question) take(cmd *cobra.Command, args, named []string) error {
	usage := "give PLATFORM, TYPE/TARGET"
	if x.from != "" {
		usage = "with --from give TYPE/TARGET"
	}
	for _, n := range named {
		usage += ", " + n
	}
	wrong := func() error {
		return cli.Fail(cli.Usage, fmt.Errorf("%s: %s", show.Count(len(args), "argument"), usage), cli.HelpHint(cmd))
	}
	left := args
	if x.from == "" {
		if len(left) == 0 {
			return wrong()
		}
		x.platform, left = left[0], left[1:]
	}
	if len(left) == 0 {
		return wrong()
	}
	var slash bool
	if x.clusterType, x.target, slash = strings.Cut(left[0], "/"); slash {
		left = left[1:]
	} else if len(left) < 2 || strings.Contains(left[1], "/") {
		return wrong()
	} else {
		x.target, left = left[1], left[2:]
	}
	if x.rest = left; len(left) != len(named) {
		return wrong()
	}
	return nil
}

// released opens the bundle and explains it.
func (x *question) released(cmd *cobra.Command, explain func(*cobra.Command, *catalog.Released) error) error {
	ref, err := x.reference()
	if err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("--from: %w", err), "")
	}
	trust := published.AsItLies()
	if x.trust.Given() {
		if trust, err = x.trust.OpenFor(cmd.Context(), ref, x.registry.Options()); err != nil {
			return err
		}
	} else {
		cmd.PrintErrln("note: signature not verified; pass --key or --trust to verify it")
	}
	r, err := catalog.OpenReleased(cmd.Context(), ref, trust, x.registry.Options())
	if err != nil {
		return failure.Reference(cmd.Context(), err, ref, x.registry.Options())
	}
	if err = x.sameType(r); err == nil {
		err = explain(cmd, r)
	}
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return err
}

// sameType refuses an answer from the bundle of another cluster type.
func (x *question) sameType(r *catalog.Released) error {
	if r.Release.ClusterType == x.clusterType {
		return nil
	}
	return cli.Usagef("%s is the bundle of cluster type %q, not of %q", r.Reference, r.Release.ClusterType, x.clusterType)
}

// reference is the bundle that --from and the arguments name.
func (x *question) reference() (oci.Reference, error) {
	loc, err := oci.Parse(x.from)
	if err != nil || strings.Contains(x.from, "/bundles/") || strings.Contains(x.from, ":bundles/") {
		return oci.ParseReference(x.from)
	}
	if x.source.Environment == "" {
		return oci.Reference{}, fmt.Errorf("%s holds bundles of several environments: name one with --environment", x.from)
	}
	if err := oci.CheckName(x.clusterType); err != nil {
		return oci.Reference{}, err
	}
	stream := bundle.Stream{Environment: x.source.Environment, ClusterType: x.clusterType}
	if loc.Local() {
		return oci.ParseReference(x.from + "/" + stream.Repository())
	}
	return oci.ParseReference(strings.TrimSuffix(loc.String(), "/") + "/" + stream.Repository())
}
