package releasecmd

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/web"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/platform"
)

// fleet holds the flags for the hub that says which clusters there are.
type fleet struct {
	url, authorities string
	// preset is true if a setting gives the URL. Then a hub that does not answer costs the numbers of clusters alone.
	preset bool
}

func (f *fleet) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "hub", "", "count the clusters of the hub at this `URL` in place of the platform's Cluster objects")
	cmd.Flags().StringVar(&f.authorities, "tls-ca", "", "with --hub: authorities that are trusted beside the system's, a `FILE` in PEM")
	cli.NotEmpty(cmd, "hub", "tls-ca")
}

// hubTimeout bounds one request to a hub.
const hubTimeout = 30 * time.Second

// of returns the clusters of a hub; nil for those that the platform lists. A hub of the settings is asked only if the platform
// lists none.
func (f *fleet) of(cmd *cobra.Command, planned platform.Built, named string) (*impact.Fleet, error) {
	if f.url == "" || f.preset && len(planned.Loaded.Model.Clusters()) > 0 {
		return nil, nil
	}
	if u, err := url.Parse(f.url); err != nil || u.User != nil { // without the value, which may hold credentials
		return nil, cli.Usagef("--hub must be a URL such as https://hub.example.com, without credentials")
	}
	clusters, err := f.ask(cmd.Context(), planned.Result.Environment)
	if err != nil && f.preset {
		cmd.PrintErrf("note: the number of clusters is unknown: %s\n", cli.Indented(err.Error()))
		return nil, nil
	}
	if err != nil {
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--hub: %w", err), "leave --hub out to count the Cluster objects of the platform")
	}
	name := cmp.Or(planned.Result.Platform, named, publisher.DefaultPlatform)
	all := &impact.Fleet{From: impact.FromHub}
	for _, c := range clusters {
		if c.Platform != "" && c.Platform != name {
			continue
		}
		one := impact.Cluster{Name: c.Name, ClusterType: c.Type, Ring: c.Ring}
		if c.Observed != nil {
			one.Release = c.Observed.Digest
		}
		all.Clusters = append(all.Clusters, one)
	}
	return all, nil
}

func (f *fleet) ask(ctx context.Context, environment string) ([]store.ClusterStatus, error) {
	client, err := oci.NewHTTPClient(oci.Network{CAFile: f.authorities})
	if err != nil {
		return nil, err
	}
	client.Timeout = hubTimeout
	list, err := web.Client{URL: f.url, HTTP: client}.Clusters(ctx, store.Filter{Environment: environment})
	return list.Clusters, err
}
