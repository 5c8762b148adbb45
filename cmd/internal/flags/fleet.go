package flags

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Fleet holds the flags for the hub that knows the clusters of an environment.
type Fleet struct {
	url, authorities, tokenFile string
	preset                      bool // a setting gives the URL
}

// AddTo adds --hub, --tls-ca and --token-file.
func (f *Fleet) AddTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "hub", "", "count the clusters of the hub at this `URL` in place of the platform's Cluster objects")
	cmd.Flags().StringVar(&f.authorities, "tls-ca", "", "with --hub: authorities that are trusted beside the system's, a `FILE` in PEM")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "with --hub: "+HubTokenFlag)
	cli.NotEmpty(cmd, "hub", "tls-ca", "token-file")
}

// Default takes the settings' hub if no flag names one.
func (f *Fleet) Default(s *settings.Settings) {
	if f.url == "" {
		f.url, f.preset = s.Hub.Text, true
	}
}

// AddSending is AddTo for a command that also sends to the hub what it has done.
func (f *Fleet) AddSending(cmd *cobra.Command, usage string) {
	f.AddTo(cmd)
	cmd.Flags().Lookup("hub").Usage = usage
}

// URL returns the hub's URL, that of the flag or, after Default, of the settings; empty if there is none.
func (f *Fleet) URL() string { return f.url }

// Client returns a client of the hub, with its access token.
func (f *Fleet) Client(cmd *cobra.Command) (client.Client, error) {
	return NewHubClient(cmd, f.url, f.authorities, f.tokenFile)
}

// Preset reports whether the hub, if there is one, is that of the settings.
func (f *Fleet) Preset() bool { return f.preset }

// Of returns the clusters for a rendered environment; nil for those that the platform lists. A hub of the settings is asked only
// if the platform lists none. Named is the name of a platform without a Platform object, and may be empty.
func (f *Fleet) Of(cmd *cobra.Command, built platform.Built, named string) (*impact.Fleet, error) {
	if f.preset && len(built.Loaded.Model.Clusters()) > 0 {
		return nil, nil
	}
	return f.Clusters(cmd, cmp.Or(built.Result.Platform, named, publisher.DefaultPlatform), built.Result.Environment)
}

// Clusters returns the clusters of an environment of a platform, or of all platforms if that is empty, as the hub knows them;
// nil without a hub. If the hub of
// the settings does not answer, it prints a note and returns nil as well.
func (f *Fleet) Clusters(cmd *cobra.Command, platform, environment string) (*impact.Fleet, error) {
	if f.url == "" {
		return nil, nil
	}
	if u, err := url.Parse(f.url); err != nil || u.User != nil { // without the value, which may hold credentials
		return nil, cli.Usagef("--hub must be a URL such as https://hub.example.com, without credentials")
	}
	clusters, err := f.ask(cmd, environment)
	if err != nil && f.preset {
		cmd.PrintErrf("note: the hub does not say which clusters there are: %s\n", cli.Indented(err.Error()))
		return nil, nil
	}
	if known := (*cli.Error)(nil); errors.As(err, &known) {
		return nil, cli.Fail(known.Code, fmt.Errorf("--hub: %w", known.Err), known.Hint)
	}
	if err != nil {
		return nil, cli.Fail(cli.Failed, fmt.Errorf("--hub: %w", err), "leave --hub out to count the Cluster objects of the platform")
	}
	all := &impact.Fleet{From: impact.FromHub}
	for _, c := range clusters {
		if platform != "" && c.Platform != "" && c.Platform != platform {
			continue
		}
		one := impact.Cluster{Name: c.Name, UID: c.UID, ClusterType: c.Type, Ring: c.Ring, Labels: c.Labels, State: cmp.Or(c.LastState, c.State), LastSeen: c.LastSeen}
		if c.Observed != nil {
			one.Release = c.Observed.Digest
		}
		all.Clusters = append(all.Clusters, one)
	}
	return all, nil
}

func (f *Fleet) ask(cmd *cobra.Command, environment string) ([]fleet.Cluster, error) {
	from, err := NewHubClient(cmd, f.url, f.authorities, f.tokenFile)
	if err != nil {
		return nil, err
	}
	list, err := from.Clusters(cmd.Context(), fleet.Query{Environments: []string{environment}})
	if errors.As(err, new(*fleet.UnknownNameError)) {
		return nil, nil // the first clusters of an environment are still to come
	}
	return list.Clusters, failure.Hub(err, f.url)
}
