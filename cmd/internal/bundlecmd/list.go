package bundlecmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
)

func newListCommand() *cobra.Command {
	var environment, format string
	var registry flags.Registry
	cmd := &cobra.Command{
		Use:   "ls [LOCATION|REF]",
		Short: "List releases",
		Long: `List the releases that agents follow at LOCATION, oci://HOST/PREFIX or oci-layout:DIR, else at the registry of the
settings: the newest one of each
cluster type, and those of its rings where they have others. With a REF, LOCATION/bundles/ENVIRONMENT/TYPE, list
the releases of that cluster type, the newest first.

Who signed them is not asked: "wherry verify" does that. A registry that does not list its repositories
needs --environment, whose record is followed then. Where LOCATION has other environments and not that one,
the exit code is 3.

EXPIRES says "soon" within 14 days of the end, or within a third of the validity where that is less. RINGS names
the rings whose agents follow the release; "latest" are the agents without a ring. Long names are cut in the
middle to fit 120 columns; -o json has them whole.`,
		Example: `  wherry bundle ls oci://127.0.0.1:5000/edge --environment dev
  wherry bundle ls oci://127.0.0.1:5000/edge/bundles/dev/drone`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			text := strings.Join(args, "")
			if text == "" {
				loc, _, err := flags.LocationArgument(nil)
				if err != nil {
					return err
				}
				text = loc.String()
			}
			list, err := listOf(cmd, text, environment, now, registry)
			if err != nil {
				return err
			}
			warnExpiry(cmd, list)
			return cli.Print(cmd.OutOrStdout(), format, list, func(w io.Writer) { listTable(w, list, now) })
		},
	}
	flags.EnvironmentFlag(cmd, &environment, "list the environment `NAME` only")
	registry.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

// listOf lists the releases at a location, or those of one cluster type if text is a reference to that.
func listOf(cmd *cobra.Command, text, environment string, now time.Time, registry flags.Registry) ([]catalog.Listed, error) {
	if ref, err := oci.ParseReference(text); err == nil {
		if ref, err = published.BundleReference(ref); err == nil {
			if environment != "" || ref.Tag != "" || ref.Digest != "" {
				return nil, cli.Usagef("%s names a cluster type's releases: give it without tag, digest and --environment", text)
			}
			list, err := catalog.ListReleases(cmd.Context(), ref, published.MaxListed, now, registry.Options())
			if err != nil {
				return nil, failure.Reference(cmd.Context(), err, ref, registry.Options())
			}
			if len(list) == 0 {
				return nil, failure.Reference(cmd.Context(), fmt.Errorf("no releases at %s (%w)", ref, errdef.ErrNotFound), ref, registry.Options())
			}
			return list, nil
		}
	}
	loc, err := flags.ParseLocation("", text)
	if err != nil {
		return nil, err
	}
	if environment != "" {
		if err := flags.CheckName("environment", environment); err != nil {
			return nil, err
		}
	}
	list, err := catalog.List(cmd.Context(), loc, environment, now, registry.Options())
	if err != nil {
		return nil, listFailure(err, loc)
	}
	if len(list) == 0 {
		cmd.PrintErrf("no bundles at %s\n", loc)
	}
	return list, nil
}

// listFailure is failure.At for a registry that is asked for its repositories.
func listFailure(err error, loc oci.Location) error {
	hint := "the registry does not list repositories: name one environment with --environment, or, at the endpoint of an agent, LOCATION/bundles/ENVIRONMENT/TYPE"
	if !errors.Is(err, oci.ErrUnauthorized) {
		err = failure.Of(err, cli.Is(errors.ErrUnsupported, cli.Failed, hint))
	}
	return failure.At(err, loc)
}

// warnExpiry prints how many releases that agents follow have expired, or expire soon.
func warnExpiry(cmd *cobra.Command, list []catalog.Listed) {
	var expired, soon int
	for _, l := range list {
		switch {
		case len(l.Tags) == 0: // nobody follows it
		case l.Expired:
			expired++
		case l.ExpiresSoon:
			soon++
		}
	}
	if expired > 0 {
		cmd.PrintErrf("warning: expired, so that agents refuse what they do not have yet: %s; wherry publish renews what is expired\n", show.Count(expired, "release"))
	}
	if soon > 0 {
		cmd.PrintErrf("warning: %s will expire soon; wherry publish renews a release in the last third of its validity, or --renew-before its end\n", show.Count(soon, "release"))
	}
}

// maxListWidth bounds the width of the table of releases, in characters.
const maxListWidth = 120

func listTable(w io.Writer, list []catalog.Listed, now time.Time) {
	several := map[bundle.Stream]int{}
	for _, l := range list {
		if len(l.Tags) > 0 {
			several[streamOf(l)]++
		}
	}
	rows := [][]string{{"ENVIRONMENT", "CLUSTER TYPE", "RELEASE", "RINGS", "AGE", "EXPIRES", "HELD", "COMMIT"}}
	for _, l := range list {
		rows = append(rows, []string{
			show.Cell(l.Environment), show.Cell(l.ClusterType), l.Name(), ringsText(l, several[streamOf(l)] > 1),
			bundle.Age(now.Sub(l.IssuedAt)), expiryText(l.Expiry(now)), strconv.Itoa(l.Held), show.Cell(shortCommit(l.BaseCommit)),
		})
	}
	fitTable(rows, maxListWidth, 0, 1, 3, 7)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
}

func streamOf(l catalog.Listed) bundle.Stream {
	return bundle.Stream{Platform: l.Platform, Environment: l.Environment, ClusterType: l.ClusterType}
}

// ringsText names the rings whose agents follow a release. Apart says that others follow another release of the
// cluster type.
func ringsText(l catalog.Listed, apart bool) string {
	var names []string
	for _, tag := range l.Tags {
		if ring, ok := strings.CutPrefix(tag, bundle.RingTagPrefix); ok {
			names = append(names, ring)
		}
	}
	latest := slices.Contains(l.Tags, bundle.LatestTag)
	switch {
	case len(l.Tags) == 0:
		return "-"
	case latest && !apart:
		return "all"
	case latest:
		names = append(names, "latest")
	}
	return show.Cell(strings.Join(names, ","))
}

// shortCommit is the beginning of a commit. Other text is left whole.
func shortCommit(commit string) string {
	if len(commit) < 40 || strings.Trim(commit, "0123456789abcdef") != "" {
		return commit
	}
	return commit[:8]
}
