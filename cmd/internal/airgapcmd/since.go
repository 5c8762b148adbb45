package airgapcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// sinceHub is the value of --since that asks the hub.
const sinceHub = "hub"

// base returns what the site has by --since; nil without it. It completes the cluster types of r by those of --site.
func (x *exporting) base(cmd *cobra.Command, s *settings.Settings, r *export.Request) (*export.Base, error) {
	for flag, value := range map[string]string{"site": x.site, "roster": x.roster} {
		if value != "" && x.since == "" && x.each == "" {
			return nil, cli.Usagef("--%s needs --since", flag)
		}
	}
	switch {
	case x.since == "", x.each != "":
		return nil, nil
	case x.since == sinceHub:
		fleet, err := x.fleetOfHub(cmd, s, r.Environment)
		if err != nil {
			return nil, err
		}
		return x.baseOf(fleet, "the hub", r)
	}
	b, packaged, err := x.open()
	if err != nil || packaged {
		return b, err
	}
	fleet, err := x.fleetOfReports(cmd, r.Environment)
	if err != nil {
		return nil, err
	}
	return x.baseOf(fleet, x.since, r)
}

// open looks at the file of --since: a package, which is a base, or reports.
func (x *exporting) open() (b *export.Base, packaged bool, err error) {
	src, err := medium.Open(medium.OS{}, nil, x.since)
	if err != nil {
		return nil, false, cli.Fail(cli.Failed, fmt.Errorf("--since: %w", err), `give a site package, a file of "wherry-agent reports export", or hub`)
	}
	defer src.Close()
	p, err := src.Reader()
	if err != nil {
		return nil, false, sinceFailure(err)
	}
	for _, d := range p.Index().Manifests {
		if d.ArtifactType == bundle.PayloadTypeReport {
			return nil, false, nil
		}
	}
	if x.site != "" || x.roster != "" {
		return nil, false, cli.Usagef("--site and --roster are for reports and the hub, and %s is a package", x.since)
	}
	b, err = export.Package(src.Name(), p)
	return b, true, sinceFailure(err)
}

func sinceFailure(err error) error {
	if err == nil {
		return nil
	}
	return cli.Kinds{cli.Is(airgap.ErrFormat, cli.Usage, `give a site package, a file of "wherry-agent reports export", or hub`)}.Of(failure.Of(fmt.Errorf("--since: %w", err)))
}

// fleetOfHub asks the hub which clusters there are, and which releases they have.
func (x *exporting) fleetOfHub(cmd *cobra.Command, s *settings.Settings, environment string) (impact.Fleet, error) {
	if x.roster != "" {
		return impact.Fleet{}, cli.Usagef("--roster is for a file of reports: a hub has verified its own")
	}
	x.fleet.Default(s)
	fleet, err := x.fleet.Clusters(cmd, "", environment)
	if failed := (*cli.Error)(nil); errors.As(err, &failed) && failed.Code == cli.Failed {
		return impact.Fleet{}, cli.Fail(cli.Failed, failed.Err, "--since takes an earlier package, or a file of reports, as well")
	}
	if err != nil {
		return impact.Fleet{}, err
	}
	if fleet == nil {
		return impact.Fleet{}, cli.Fail(cli.Failed, errors.New("--since hub: missing --hub"), "--hub URL names the hub; --since takes an earlier package as well")
	}
	return *fleet, nil
}

// fleetOfReports reads which releases the clusters have from a file of reports.
func (x *exporting) fleetOfReports(cmd *cobra.Command, environment string) (impact.Fleet, error) {
	keys, err := x.keys(cmd)
	if err != nil {
		return impact.Fleet{}, err
	}
	reports, err := flags.ReadReports(x.since, keys)
	if errors.Is(err, airgap.ErrFormat) {
		return impact.Fleet{}, sinceFailure(err)
	}
	if err != nil {
		return impact.Fleet{}, cli.Fail(cli.Denied, fmt.Errorf("--since: %w", err), "an earlier package as --since needs no reports")
	}
	return impact.OfReports(reports, "", environment), nil
}

// keys returns the keys of the roster by the uids of clusters; nil, with a note, if reports are not verified.
func (x *exporting) keys(cmd *cobra.Command) (map[string]string, error) {
	if x.roster == "" {
		cmd.PrintErrf("note: the reports in %s are not verified; pass --roster to verify them\n", x.since)
		return nil, nil
	}
	clusters, err := roster.Read(cmd.Context(), x.roster)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--roster: %w", err), "give the folder of the environment with its Cluster objects")
	}
	keys := map[string]string{}
	for _, c := range clusters {
		keys[c.UID] = c.PublicKey
	}
	return keys, nil
}

// baseOf returns the releases at which all clusters of each type are compliant, or all of the site's.
func (x *exporting) baseOf(fleet impact.Fleet, name string, r *export.Request) (*export.Base, error) {
	clusters := fleet.Clusters
	if x.site != "" {
		clusters = nil
		var names []string
		for _, s := range fleet.Sites(x.siteLabel) {
			if names = append(names, s.Name); s.Name == x.site {
				clusters, r.Site = s.Clusters, s.Clusters[0].Labels[x.siteLabel]
				if len(r.ClusterTypes) == 0 {
					r.ClusterTypes = s.ClusterTypes()
				}
			}
		}
		if len(clusters) == 0 {
			return nil, cli.Fail(cli.Failed, fmt.Errorf("--site: %s has no site %q in environment %s", name, x.site, r.Environment), sitesHint(names))
		}
	}
	if len(clusters) == 0 {
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--since: %s has no clusters of environment %s", name, r.Environment), "without --since the package holds everything")
	}
	return export.Releases(name, r.Environment, impact.Common(clusters)), nil
}

func sitesHint(names []string) string {
	const shown = 10
	if len(names) == 0 {
		return ""
	}
	return "its sites are " + show.List(names, shown)
}
