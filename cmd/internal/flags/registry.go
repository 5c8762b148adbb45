package flags

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// Registry holds the flags for the access to a registry. The zero value is that of no flags.
type Registry struct {
	PlainHTTP bool
	AuthHosts hostList
}

// authHostVariable stands in for --auth-host, also in commands that do not have it.
const authHostVariable = "WHERRY_AUTH_HOST"

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
