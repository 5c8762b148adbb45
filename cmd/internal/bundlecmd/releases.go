package bundlecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// releasing holds the flags of releases.
type releasing struct {
	from   flags.Published
	fleet  flags.Fleet
	limit  int
	format string
}

// releaseFormats lists what the command prints.
var releaseFormats = []string{"table", "wide", "json", "yaml"}

// Releases returns the command wherry releases.
func Releases() *cobra.Command {
	var r releasing
	cmd := &cobra.Command{
		Use:   "releases [TYPE|ENVIRONMENT/TYPE|REF]",
		Short: "List the releases of a cluster type",
		Long: `List the releases of a cluster type, the newest first: number, age, rings, clusters, commit and the message of
"wherry publish -m". Without an argument, list the releases that the agents of the environment follow.

CLUSTERS counts the clusters that run a release, as the hub of --hub knows them, or those whose ring follows it, as
the Cluster objects of the platform say. RINGS names the rings whose agents follow the release.

Releases that are not signed by them are marked; the exit code is 4 if agents follow one of those.

More: wherry help release-names`,
		Example: `  wherry releases drone
  wherry releases prod/drone --limit 5 -o wide
  wherry releases oci-layout:./out/bundles/dev/drone --key cosign.pub`,
		Args: cobra.MaximumNArgs(1),
		RunE: r.run,
	}
	r.from.AddTo(cmd)
	r.fleet.AddTo(cmd)
	f := cmd.Flags()
	f.IntVar(&r.limit, "limit", 20, "list at most so many `RELEASES`")
	f.StringVarP(&r.format, "output", "o", "table", "print as `FORMAT`, table, wide, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(releaseFormats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (r *releasing) run(cmd *cobra.Command, args []string) error {
	if !slices.Contains(releaseFormats, r.format) {
		return cli.Usagef("-o %s: must be table, wide, json or yaml", r.format)
	}
	if r.limit < 1 {
		return cli.Usagef("--limit %d: must be at least 1", r.limit)
	}
	if err := r.from.Open(); err != nil {
		return err
	}
	r.fleet.Default(r.from.Settings())
	now := time.Now()
	list, err := r.list(cmd, args, now)
	if err != nil {
		return err
	}
	if r.format == "json" || r.format == "yaml" {
		err = cli.Print(cmd.OutOrStdout(), r.format, list, nil)
	} else {
		err = cli.Print(cmd.OutOrStdout(), "table", list, func(w io.Writer) { releasesTable(w, list, len(args) == 0, r.format == "wide", now) })
	}
	if err != nil {
		return err
	}
	return r.conclude(cmd, list)
}

// list returns the releases of the argument, or those that the environment's agents follow.
func (r *releasing) list(cmd *cobra.Command, args []string, now time.Time) ([]catalog.Release, error) {
	ctx, opts := cmd.Context(), r.from.Registry.Options()
	if len(args) == 0 {
		loc, err := r.from.Location()
		if err != nil {
			return nil, err
		}
		environment, err := r.from.CurrentEnvironment(cmd)
		if err != nil {
			return nil, err
		}
		ref, err := r.from.Reference(cmd, "environments/"+environment)
		if err != nil {
			return nil, err
		}
		signers, err := r.from.Trust(cmd, ref)
		if err != nil {
			return nil, err
		}
		fleet, err := r.clusters(cmd, environment)
		if err != nil {
			return nil, err
		}
		list, err := catalog.Followed(ctx, loc, environment, signers, fleet, now, opts)
		if err != nil {
			return nil, listFailure(err, loc)
		}
		return list[:min(len(list), r.limit)], nil
	}
	ref, err := r.from.Reference(cmd, args[0])
	if err != nil {
		return nil, err
	}
	if ref.Tag != "" || ref.Digest != "" {
		return nil, cli.Usagef("%s names one release: give the cluster type alone", args[0])
	}
	stream, ok := published.StreamOf(ref.Repository)
	if !ok {
		return nil, cli.Usagef("%s names no cluster type: write TYPE, ENVIRONMENT/TYPE or LOCATION/bundles/ENVIRONMENT/TYPE", args[0])
	}
	signers, err := r.from.Trust(cmd, ref)
	if err != nil {
		return nil, err
	}
	fleet, err := r.clusters(cmd, stream.Environment)
	if err != nil {
		return nil, err
	}
	list, err := catalog.Releases(ctx, ref, r.limit, signers, fleet, now, opts)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no releases at %s (%w)", ref, errdef.ErrNotFound)
	}
	if err != nil {
		return nil, r.from.Failure(ctx, err, ref)
	}
	return list[:min(len(list), r.limit)], nil
}

// clusters returns the clusters of an environment, as far as they are known.
func (r *releasing) clusters(cmd *cobra.Command, environment string) (fleet impact.Fleet, err error) {
	if r.fleet.Preset() {
		if fleet = rosterOf(cmd.Context(), r.from.Settings(), environment); fleet.From != "" {
			return fleet, nil
		}
	}
	all, err := r.fleet.Clusters(cmd, "", environment)
	if err != nil || all == nil {
		return fleet, err
	}
	return *all, nil
}

// rosterOf returns the Cluster objects of an environment of the platform around the current folder; none if they cannot be
// read from a folder: they are for one column alone.
func rosterOf(ctx context.Context, s *settings.Settings, environment string) (fleet impact.Fleet) {
	if s.Platform == nil {
		return fleet
	}
	at, err := s.Locate(environment)
	if err != nil {
		return fleet
	}
	dir := at.Platform
	for _, e := range s.Platform.Environments() {
		below := filepath.Join(dir, filepath.FromSlash(e.Path))
		if info, err := os.Stat(below); e.Name == environment && err == nil && info.IsDir() {
			dir = below
		}
	}
	clusters, err := roster.Read(ctx, dir)
	if err != nil {
		return fleet
	}
	for _, c := range clusters {
		fleet.From = impact.FromRoster
		fleet.Clusters = append(fleet.Clusters, impact.Cluster{Name: c.Name, ClusterType: c.ClusterType, Ring: c.Ring})
	}
	return fleet
}

// conclude warns of releases that are about to expire, and returns the error of followed ones that are not trusted.
func (r *releasing) conclude(cmd *cobra.Command, list []catalog.Release) error {
	var listed []catalog.Listed
	others, followed := 0, 0
	for _, l := range list {
		listed = append(listed, l.Listed)
		switch {
		case l.Signed == nil || *l.Signed:
		case len(l.Tags) > 0:
			followed++
		default:
			others++
		}
	}
	warnExpiry(cmd, listed)
	if others > 0 {
		cmd.PrintErrf("note: not signed as --key or --trust asks: %s that no agent follows\n", show.Count(others, "release"))
	}
	if followed > 0 {
		return cli.Fail(cli.Denied, fmt.Errorf("not signed as --key or --trust asks: %s that agents follow", show.Count(followed, "release")), "were they published with another key?")
	}
	return nil
}

// tableWidth is the number of characters that a line of a table may have: those of the terminal, or maxListWidth.
func tableWidth() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		return width
	}
	return maxListWidth
}

func releasesTable(w io.Writer, list []catalog.Release, types, wide bool, now time.Time) {
	several := map[bundle.Stream]int{}
	counted := false
	for _, l := range list {
		if len(l.Tags) > 0 {
			several[streamOf(l.Listed)]++
		}
		counted = counted || l.Clusters != nil
	}
	var columns []releaseColumn
	add := func(head string, elastic bool, text func(catalog.Release) string) {
		columns = append(columns, releaseColumn{head, elastic, text})
	}
	if types {
		add("CLUSTER TYPE", true, func(l catalog.Release) string { return show.Cell(l.ClusterType) })
	}
	add("RELEASE", false, func(l catalog.Release) string {
		if l.Refused != "" {
			return l.Name() + " NOT TRUSTED"
		}
		return l.Name()
	})
	add("RINGS", true, func(l catalog.Release) string { return ringsText(l.Listed, several[streamOf(l.Listed)] > 1) })
	if counted {
		add("CLUSTERS", false, func(l catalog.Release) string {
			if l.Clusters == nil {
				return "-"
			}
			return strconv.Itoa(*l.Clusters)
		})
	}
	if wide {
		add("PUBLISHED", false, func(l catalog.Release) string { return show.Time(l.IssuedAt) })
		add("VALID UNTIL", false, func(l catalog.Release) string { return show.Time(l.ExpiresAt) })
	} else {
		add("AGE", false, func(l catalog.Release) string { return bundle.Age(now.Sub(l.IssuedAt)) })
		add("EXPIRES", false, func(l catalog.Release) string { return expiryText(l.Expiry(now)) })
	}
	add("COMMIT", true, func(l catalog.Release) string {
		if wide {
			return show.Cell(l.BaseCommit)
		}
		return show.Cell(shortCommit(l.BaseCommit))
	})
	if wide {
		add("ENVIRONMENT COMMIT", false, func(l catalog.Release) string { return show.Cell(l.EnvironmentCommit) })
		add("FILES", false, func(l catalog.Release) string { return strconv.Itoa(l.Files) })
		add("DIGEST", false, func(l catalog.Release) string { return string(l.Digest) })
	}
	add("MESSAGE", true, func(l catalog.Release) string {
		if l.SameAs > 0 && !types {
			return strings.TrimSpace(fmt.Sprintf("(content of %d) %s", l.SameAs, show.Line(l.Message)))
		}
		return cmp.Or(show.Line(l.Message), "-")
	})
	writeColumns(w, columns, list, wide)
}

// releaseColumn is a column of the table. The cells of elastic ones may be shortened.
type releaseColumn struct {
	head    string
	elastic bool
	text    func(catalog.Release) string
}

func writeColumns(w io.Writer, columns []releaseColumn, list []catalog.Release, wide bool) {
	rows := make([][]string, len(list)+1)
	var elastic []int
	for i, c := range columns {
		rows[0] = append(rows[0], c.head)
		for n, l := range list {
			rows[n+1] = append(rows[n+1], c.text(l))
		}
		if c.elastic {
			elastic = append(elastic, i)
		}
	}
	if !wide {
		fitTable(rows, tableWidth(), elastic...)
	}
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
}
