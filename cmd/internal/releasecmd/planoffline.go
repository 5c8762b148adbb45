package releasecmd

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/scheduler"
)

// offline holds the flags of plan for sites that are reached by media.
type offline struct {
	asked          bool
	label, reports string
}

func (o *offline) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.asked, "offline", false, "say per site what a medium would carry now, in place of what publishing would change")
	f.StringVar(&o.label, "site-label", impact.SiteLabel, "with --offline: the `LABEL` of clusters that names their site")
	f.StringVar(&o.reports, "reports", "", "with --offline: what clusters run, by the reports in this `FILE` of \"wherry-agent reports export\"")
	cli.NotEmpty(cmd, "site-label", "reports")
	cmd.MarkFlagsMutuallyExclusive("reports", "hub")
	cli.Rare(cmd, "site-label")
}

// notOffline are the flags about what would be published.
var notOffline = []string{
	"against", "comment", "fail-on", "key", "trust", "assignments", "platform-name", "ring", "drop", "allow-empty", "allow-removals", "cache", "no-cache",
}

func (o *offline) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if !o.asked {
		for _, name := range []string{"site-label", "reports"} {
			if changed(name) {
				return cli.Usagef("--%s needs --offline", name)
			}
		}
		return nil
	}
	for _, name := range notOffline {
		if changed(name) {
			return cli.Fail(cli.Usage, fmt.Errorf("--offline does not go with --%s", name), "--offline compares published releases with what sites run: it renders nothing, and verifies nothing, as sites do")
		}
	}
	return nil
}

// runOffline prints what media would carry.
func (p *planning) runOffline(cmd *cobra.Command, args []string, link impact.Link) error {
	s, err := flags.Settings()
	if err != nil {
		return err
	}
	r := catalog.TripRequest{Label: p.offline.label, Link: link, Now: time.Now()}
	clusters, s, err := p.roster(cmd, args, s)
	if err != nil {
		return err
	}
	if r.From, err = flags.Location(s, "to", p.to); err != nil {
		return err
	}
	if r.Registry, err = p.registry.Named(r.From); err != nil {
		return err
	}
	if r.Artifact, err = p.registry.Artifacts(s, nil, r.From); err != nil {
		return err
	}
	if r.Environment, err = flags.Environment(cmd, s, p.source.Environment); err != nil {
		return err
	}
	if err := flags.CheckName("environment", r.Environment); err != nil {
		return err
	}
	if r.Fleet, err = p.clusters(cmd, clusters, s, r.Environment); err != nil {
		return err
	}
	t, err := catalog.ReadTrips(cmd.Context(), r)
	if err != nil {
		if errors.As(err, new(*export.ArtifactError)) {
			return err // of another registry than that of the releases
		}
		return failure.At(err, r.From)
	}
	for _, w := range t.Warnings {
		cmd.PrintErrf("warning: %s\n", cli.Indented(w))
	}
	switch out := cmd.OutOrStdout(); p.format {
	case "json":
		err = cli.Print(out, "json", t, nil)
	case "markdown":
		_, err = out.Write(view.TripsMarkdown(t))
	default:
		err = view.Trips(out, t)
	}
	if err == nil && p.exitCode && t.Behind > 0 {
		return cli.Exit(cli.No)
	}
	return err
}

// roster returns the clusters that the platform lists, if there is one, and the settings that go with it. It is not read if a hub
// is named.
func (p *planning) roster(cmd *cobra.Command, args []string, s *settings.Settings) ([]scheduler.Cluster, *settings.Settings, error) {
	if len(args) == 0 && s.Platform == nil || cmd.Flags().Changed("hub") {
		return nil, s, nil
	}
	place, err := p.source.Resolve(cmd, args)
	if err != nil {
		return nil, s, err
	}
	loaded, err := p.source.Load(cmd, place, "")
	if err != nil {
		return nil, s, err
	}
	if p.source.Environment == "" {
		p.source.Environment = loaded.Model.EnvironmentName()
	}
	return loaded.Model.Clusters(), p.source.Settings(), nil
}

// clusters returns the clusters with what they run: by the reports, else by the hub, else unknown.
func (p *planning) clusters(cmd *cobra.Command, listed []scheduler.Cluster, s *settings.Settings, environment string) (impact.Fleet, error) {
	fleet := diff.Roster(listed)
	if p.offline.reports != "" {
		reported, err := p.reported(cmd, listed, environment)
		return merge(fleet, reported), err
	}
	p.fleet.Default(s)
	known, err := p.fleet.Clusters(cmd, "", environment)
	switch {
	case err != nil:
		return fleet, err
	case known != nil:
		return merge(fleet, *known), nil
	case len(fleet.Clusters) == 0:
		return fleet, cli.Fail(cli.Usage, errors.New("no clusters are known"), "give PLATFORM with its Cluster objects, --hub URL, or --reports FILE")
	}
	cmd.PrintErrln("note: nobody says what the clusters run: every site needs everything; --hub or --reports knows more")
	return fleet, nil
}

// reported returns the clusters of the file of reports, which are verified by the keys of the Cluster objects, if there are any.
func (p *planning) reported(cmd *cobra.Command, listed []scheduler.Cluster, environment string) (impact.Fleet, error) {
	var keys map[string]string
	if len(listed) == 0 {
		cmd.PrintErrf("note: the reports in %s are not verified; the Cluster objects of PLATFORM have the keys\n", p.offline.reports)
	} else {
		keys = map[string]string{}
		for _, c := range listed {
			keys[c.UID] = c.PublicKey
		}
	}
	reports, err := flags.ReadReports(p.offline.reports, keys)
	if err != nil {
		return impact.Fleet{}, cli.Kinds{
			cli.Is(airgap.ErrFormat, cli.Usage, `give a file of "wherry-agent reports export"`),
			cli.Is(bundle.ErrUntrusted, cli.Denied, `"wherry roster add" lists a cluster with its key`),
		}.Of(failure.Of(fmt.Errorf("--reports: %w", err)))
	}
	return impact.OfReports(reports, "", environment), nil
}

// merge returns the listed clusters with what is known of them, and those that are not listed. Labels, type and ring are those of the
// list, if it has the cluster.
func merge(listed, known impact.Fleet) impact.Fleet {
	out := impact.Fleet{From: known.From, Clusters: slices.Clone(listed.Clusters)}
	for _, k := range known.Clusters {
		i := slices.IndexFunc(out.Clusters, func(c impact.Cluster) bool { return c.UID != "" && c.UID == k.UID })
		if i < 0 {
			out.Clusters = append(out.Clusters, k)
			continue
		}
		c := &out.Clusters[i]
		c.Release, c.State, c.LastSeen = k.Release, k.State, k.LastSeen
	}
	return out
}
