package airgapcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// sinceHub is the value of --since that asks the hub.
const sinceHub = "hub"

// base returns what the site has by --since; nil without it.
func (x *exporting) base(cmd *cobra.Command, s *settings.Settings, r export.Request) (*export.Base, error) {
	for flag, value := range map[string]string{"site": x.site, "roster": x.roster} {
		if value != "" && x.since == "" {
			return nil, cli.Usagef("--%s needs --since", flag)
		}
	}
	switch {
	case x.since == "":
		return nil, nil
	case x.since == sinceHub:
		return x.baseOfHub(cmd, s, r)
	}
	src, err := medium.Open(medium.OS{}, nil, x.since)
	if err != nil {
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--since: %w", err), `give a site package, a file of "wherry-agent reports export", or hub`)
	}
	defer src.Close()
	p, err := src.Reader()
	if err != nil {
		return nil, sinceFailure(err)
	}
	for _, d := range p.Index().Manifests {
		if d.ArtifactType == bundle.PayloadTypeReport {
			return x.baseOfReports(cmd, r)
		}
	}
	if x.site != "" || x.roster != "" {
		return nil, cli.Usagef("--site and --roster are for reports and the hub, and %s is a package", x.since)
	}
	b, err := export.Package(src.Name(), p)
	return b, sinceFailure(err)
}

func sinceFailure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, airgap.ErrFormat):
		return cli.Fail(cli.Usage, fmt.Errorf("--since: %w", err), `give a site package, a file of "wherry-agent reports export", or hub`)
	}
	return cli.Fail(cli.Failed, fmt.Errorf("--since: %w", err), "")
}

// baseOfHub asks the hub which releases the clusters have.
func (x *exporting) baseOfHub(cmd *cobra.Command, s *settings.Settings, r export.Request) (*export.Base, error) {
	if x.roster != "" {
		return nil, cli.Usagef("--roster is for a file of reports: a hub has verified its own")
	}
	x.fleet.Default(s)
	fleet, err := x.fleet.Clusters(cmd, "", r.Environment)
	if failed := (*cli.Error)(nil); errors.As(err, &failed) && failed.Code == cli.Failed {
		return nil, cli.Fail(cli.Failed, failed.Err, "--since takes an earlier package, or a file of reports, as well")
	}
	if err != nil {
		return nil, err
	}
	if fleet == nil {
		return nil, cli.Fail(cli.Failed, errors.New("--since hub: no hub says what the clusters have"), "--hub URL names the hub; --since takes an earlier package as well")
	}
	return x.baseOf(*fleet, "the hub", r.Environment)
}

// baseOfReports reads which releases the clusters have from a file of reports.
func (x *exporting) baseOfReports(cmd *cobra.Command, r export.Request) (*export.Base, error) {
	envelopes, err := airgap.ReadReports(x.since)
	if err != nil {
		return nil, sinceFailure(err)
	}
	open := openUnverified
	if x.roster == "" {
		cmd.PrintErrf("note: the reports in %s are not verified; pass --roster to verify them\n", x.since)
	} else if open, err = x.verified(cmd); err != nil {
		return nil, err
	}
	var reports []bundle.Report
	for i, envelope := range envelopes {
		report, err := open(envelope)
		if err != nil {
			return nil, cli.Fail(cli.Denied, fmt.Errorf("--since: report %d of %s: %w", i+1, x.since, err), "an earlier package as --since needs no reports")
		}
		reports = append(reports, report)
	}
	return x.baseOf(impact.OfReports(reports, "", r.Environment), x.since, r.Environment)
}

// openUnverified returns the report in an envelope, whoever signed it.
func openUnverified(envelope []byte) (bundle.Report, error) {
	var e struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		return bundle.Report{}, fmt.Errorf("envelope: %w", err)
	}
	if e.PayloadType != bundle.PayloadTypeReport {
		return bundle.Report{}, fmt.Errorf("envelope holds %q, want %q", e.PayloadType, bundle.PayloadTypeReport)
	}
	return bundle.ParseReport(e.Payload)
}

// verified returns a function that opens the envelope of a report, and has the key of its cluster in the roster verify it.
func (x *exporting) verified(cmd *cobra.Command) (func([]byte) (bundle.Report, error), error) {
	clusters, err := roster.Read(cmd.Context(), x.roster)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--roster: %w", err), "give the folder of the environment with its Cluster objects")
	}
	keys := map[string]string{} // by uid
	for _, c := range clusters {
		keys[c.UID] = c.PublicKey
	}
	return func(envelope []byte) (bundle.Report, error) {
		claimed, err := openUnverified(envelope)
		if err != nil {
			return bundle.Report{}, err
		}
		if keys[claimed.Cluster.UID] == "" {
			return bundle.Report{}, fmt.Errorf("cluster %q (%s) has no key in %s: %w", claimed.Cluster.Name, claimed.Cluster.UID, x.roster, bundle.ErrUntrusted)
		}
		key, err := hub.ParseReportKey([]byte(keys[claimed.Cluster.UID]))
		if err != nil {
			return bundle.Report{}, err
		}
		body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, envelope, key)
		if err != nil {
			return bundle.Report{}, fmt.Errorf("cluster %q: %w", claimed.Cluster.Name, err)
		}
		return bundle.ParseReport(body)
	}, nil
}

// baseOf returns the releases at which all clusters of each type are compliant, or all of the site's.
func (x *exporting) baseOf(fleet impact.Fleet, name, environment string) (*export.Base, error) {
	clusters := fleet.Clusters
	if x.site != "" {
		clusters = nil
		var names []string
		for _, s := range fleet.Sites(x.siteLabel) {
			if names = append(names, s.Name); s.Name == x.site {
				clusters = s.Clusters
			}
		}
		if len(clusters) == 0 {
			return nil, cli.Fail(cli.Failed, fmt.Errorf("--site: %s has no site %q in environment %s", name, x.site, environment), sitesHint(names))
		}
	}
	if len(clusters) == 0 {
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--since: %s has no clusters of environment %s", name, environment), "without --since the package holds everything")
	}
	return export.Releases(name, environment, common(clusters)), nil
}

func sitesHint(names []string) string {
	const shown = 10
	if len(names) == 0 {
		return ""
	}
	return "its sites are " + show.List(names, shown)
}

// common returns the releases that the clusters of each type run, and none for a type of which a cluster is not compliant.
func common(clusters []impact.Cluster) map[string][]digest.Digest {
	releases, lacking := map[string][]digest.Digest{}, map[string]bool{}
	for _, c := range clusters {
		if c.Has() == "" {
			lacking[c.ClusterType] = true
		}
		releases[c.ClusterType] = append(releases[c.ClusterType], c.Has())
	}
	maps.DeleteFunc(releases, func(ct string, _ []digest.Digest) bool { return lacking[ct] })
	return releases
}
