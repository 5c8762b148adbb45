package hubcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/similar"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/web"
)

// The hub that is asked without flags.
const (
	urlVariable = "WHERRY_HUB"
	defaultURL  = "http://127.0.0.1:8080"
)

// fleet lists clusters and deployments: a hub in this process, or one over HTTP.
type fleet interface {
	Clusters(ctx context.Context, f store.Filter) (store.ClusterList, error)
	Deployments(ctx context.Context, f store.Filter) (store.DeploymentList, error)
}

// getFlags are the flags for all kinds of rows.
type getFlags struct {
	url, dir, authorities, tokenFile, format string
	filter                                   store.Filter
}

// Get returns the command wherry get.
func Get() *cobra.Command {
	var g getFlags
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show the clusters, or what runs on them",
		Long: `Show the clusters, or what runs on them, as a hub knows it.

--hub asks a hub by its URL, else $WHERRY_HUB; --data reads a hub's folder, else $WHERRY_HUB_DATA, also
while it serves. Without any of them, the hub of wherry.yaml is asked, else of the context in use; else the folder ./hub is read if a hub is there, else ` + defaultURL + ` asked.

A cluster that has been silent for three of its expected intervals is shown as stale, with the state that
it reported last.`,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&g.url, "hub", "", "the hub's `URL`")
	f.StringVar(&g.dir, "data", "", "the hub's `FOLDER`")
	f.StringVar(&g.authorities, "tls-ca", "", "authorities that are trusted beside the system's, a `FILE` in PEM; with --hub")
	f.StringVar(&g.tokenFile, "token-file", "", flags.HubTokenFlag)
	f.StringVarP(&g.filter.Environment, "environment", "e", "", "only the environment `NAME`")
	f.StringVar(&g.filter.Type, "type", "", "only this cluster `TYPE`")
	f.StringVar(&g.filter.Workload, "workload", "", "only the workload `NAME`, or clusters with it")
	f.StringVar((*string)(&g.filter.State), "state", "", "only this `STATE`")
	var states []string
	for _, s := range store.States() {
		states = append(states, string(s))
	}
	cmd.AddCommand(newGetClustersCommand(&g), newGetDeploymentsCommand(&g))
	_ = cmd.RegisterFlagCompletionFunc("environment", flags.CompleteEnvironments)
	_ = cmd.RegisterFlagCompletionFunc("type", flags.CompleteClusterTypes)
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newGetClustersCommand(g *getFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clusters",
		Aliases: []string{"cluster"},
		Short:   "Show the clusters",
		Example: "  wherry get clusters --environment prod --state failed\n  wherry get clusters --hub https://hub.example.com -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list store.ClusterList
			err := g.ask(cmd, func(from fleet) (err error) {
				if list, err = from.Clusters(cmd.Context(), g.filter); err == nil && len(list.Clusters) == 0 {
					err = g.known(cmd, from)
				}
				return err
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), g.format, list, func(w io.Writer) { clusterTable(w, list.Clusters, time.Now()) })
		},
	}
	cli.OutputFlag(cmd, &g.format)
	return cmd
}

func newGetDeploymentsCommand(g *getFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deployments",
		Aliases: []string{"deployment"},
		Short:   "Show what runs on the clusters",
		Example: "  wherry get deployments --workload web --environment prod",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list store.DeploymentList
			err := g.ask(cmd, func(from fleet) (err error) {
				if list, err = from.Deployments(cmd.Context(), g.filter); err == nil && len(list.Deployments) == 0 {
					err = g.known(cmd, from)
				}
				return err
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), g.format, list, func(w io.Writer) { deploymentTable(w, list.Deployments, time.Now()) })
		},
	}
	cli.OutputFlag(cmd, &g.format)
	return cmd
}

// ask opens the hub that the flags choose.
func (g *getFlags) ask(cmd *cobra.Command, use func(fleet) error) error {
	if g.url != "" && g.dir != "" {
		return cli.Usagef("--hub and --data name two hubs")
	}
	url, dir := g.url, g.dir
	if url == "" && dir == "" {
		url, dir = os.Getenv(urlVariable), os.Getenv(dataVariable)
	}
	if url == "" && dir == "" {
		s, err := flags.Settings()
		if err != nil {
			return err
		}
		url = s.Hub.Text
	}
	if url == "" && dir == "" {
		url = defaultURL
		if _, err := os.Stat(filepath.Join("hub", hub.DatabaseFile)); err == nil {
			dir = "hub"
		}
	}
	if dir != "" && g.authorities != "" {
		return cli.Fail(cli.Usage, fmt.Errorf("--tls-ca is for a hub's URL, and %s is a folder", dir), "give --hub URL, or leave --tls-ca out")
	}
	if dir != "" {
		return withHub(location{folder: dir}, hub.Options{MustExist: true}, func(h *hub.Hub) error { return use(h) })
	}
	client, err := oci.NewHTTPClient(oci.Network{CAFile: g.authorities})
	if err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("--tls-ca: %w", err), "")
	}
	client.Timeout = 30 * time.Second
	token, err := flags.HubToken(cmd, g.tokenFile, url)
	if err != nil {
		return err
	}
	err = flags.HubFailure(use(web.Client{URL: url, Token: token, HTTP: client}), url)
	var said *cli.Error
	hint := oci.CertificateHint(err)
	switch {
	case err == nil || errors.As(err, &said):
		return err
	case errors.Is(err, store.ErrInvalid):
		return cli.Fail(cli.Usage, err, "")
	}
	return cli.Fail(cli.Failed, err, cmp.Or(hint, `start a hub with "wherry hub serve", or say which with --hub URL or --data DIR`))
}

// maxNames bounds the names in a hint.
const maxNames = 8

// known returns the error of a name in the filter that the hub does not know: an empty answer would hide the slip. If
// all names are known, it prints that nothing matches.
func (g *getFlags) known(cmd *cobra.Command, from fleet) error {
	ctx := cmd.Context()
	all, err := from.Deployments(ctx, store.Filter{})
	if err != nil {
		return err
	}
	clusters, err := from.Clusters(ctx, store.Filter{})
	if err != nil {
		return err
	}
	var unknown *store.UnknownNameError
	if err := g.filter.CheckNames(clusters.Clusters, all.Deployments); errors.As(err, &unknown) {
		hint := ""
		if near := similar.To(unknown.Name, unknown.Known); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		} else if n := len(unknown.Known); n > 0 && n <= maxNames {
			hint = "known: " + strings.Join(unknown.Known, ", ")
		}
		return cli.Fail(cli.Failed, err, hint)
	}
	cmd.PrintErrln("nothing matches")
	return nil
}

func clusterTable(w io.Writer, all []store.ClusterStatus, now time.Time) {
	fmt.Fprintln(w, "CLUSTER\tENVIRONMENT\tTYPE\tSTATE\tREASON\tRELEASE\tLAST SEEN")
	for _, c := range all {
		release := ""
		if c.Observed != nil {
			release = bundle.ReleaseName(c.Observed.Number, c.Observed.Digest)
		}
		cli.Row(w, c.Name, c.Environment, c.Type, c.ShownState(), c.ShownReason(), release, bundle.Ago(c.LastSeen, now))
	}
}

func deploymentTable(w io.Writer, all []store.DeploymentStatus, now time.Time) {
	fmt.Fprintln(w, "CLUSTER\tWORKLOAD\tTARGET\tSTATE\tREASON\tVERSION\tSINCE")
	for _, d := range all {
		cli.Row(w, d.Cluster, d.Workload, d.Target, d.ShownState(), waitReason(d), d.ShownVersion(), bundle.Ago(d.Since, now))
	}
}

// waitReason is the reason, with the message unless the deployment is compliant: people need it to know where to look
// next.
func waitReason(d store.DeploymentStatus) string {
	if d.State == bundle.Compliant || d.Reason == "" || d.Message == "" {
		return d.Reason
	}
	return d.Reason + ": " + show.Short(d.Message) // -o json has all of it
}
