package flags

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/settings"
)

// Registry holds the flags for the access to a registry. The zero value is that of no flags.
type Registry struct {
	PlainHTTP bool
	AuthHosts hostList
}

// authHostVariable stands in for --auth-host, also in commands that do not have it.
const authHostVariable = "WHERRY_AUTH_HOST"

// Named returns the flags for package oci, for registries that a person names and no others: what these redirect to may be in a
// private network, and not on this machine or its link.
func (f *Registry) Named(locations ...oci.Location) (oci.Options, error) {
	access := egress.New(placesOf(locations)...)
	access.AllowPrivate()
	return access.Registries(f.Options())
}

// Artifacts returns a function that opens HOST/REPOSITORY of the artifacts that releases name. Their registries are reached as sources
// of teams are, so locations and what the settings name are reached whatever their address. Allow has further entries of
// allowPrivate.
func (f *Registry) Artifacts(s *settings.Settings, allow []string, locations ...oci.Location) (func(repository string) (oci.Target, error), error) {
	access := egress.New(s.Registry.Text)
	access.Own(s.Places...)
	access.Own(placesOf(locations)...)
	for from, entries := range map[string][]string{"--allow-private": allow, "spec.sources.allowPrivate of the Platform": s.AllowPrivate} {
		for _, e := range entries {
			if err := egress.CheckAllowed(e); err != nil {
				return nil, cli.Fail(cli.Usage, fmt.Errorf("%s: %q: %w", from, e, err), "write HOST, HOST:PORT or a network such as 10.20.0.0/16")
			}
			access.Allow(e)
		}
	}
	options := f.Options()
	return func(repository string) (oci.Target, error) { return access.Repository(repository, options) }, nil
}

func placesOf(locations []oci.Location) (all []string) {
	for _, loc := range locations {
		all = append(all, loc.String())
	}
	return all
}

// AddTo adds --plain-http and --auth-host.
func (f *Registry) AddTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.PlainHTTP, "plain-http", false, "speak HTTP without TLS; with loopback addresses this is so anyway")
	f.AddAuthHosts(cmd)
	cli.Rare(cmd, "plain-http")
}

// AddAuthHosts adds --auth-host alone.
func (f *Registry) AddAuthHosts(cmd *cobra.Command) {
	cmd.Flags().Var(&f.AuthHosts, "auth-host", "send credentials of registries also to this `HOST` or HOST:PORT, where a registry names it as its token service; may be given several times (else $"+authHostVariable+", separated by commas)")
	cli.Rare(cmd, "auth-host")
}

// hostList is the value of --auth-host.
type hostList []string

func (l *hostList) String() string { return strings.Join(*l, ",") }
func (l *hostList) Type() string   { return "host" }
func (l *hostList) Several()       {}

// Set adds a host.
func (l *hostList) Set(host string) error {
	*l = append(*l, host)
	return oci.CheckAuthHost(host)
}

// Options returns the flags for package oci, with the hosts of WHERRY_AUTH_HOST if no flag gives any.
func (f *Registry) Options() oci.Options {
	o := oci.Options{PlainHTTP: f.PlainHTTP, UserAgent: cli.UserAgent("wherry"), AuthHosts: f.AuthHosts}
	if told := os.Getenv(authHostVariable); told != "" && len(f.AuthHosts) == 0 {
		o.AuthHosts = strings.Split(told, ",")
	}
	return o
}
