package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/doctor"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newDoctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what the agent lacks on this machine and its cluster",
		Long: `Say what the agent lacks on this machine and its cluster, and what to do about it: the state folder, the
registry, the trust document, whether the newest bundle is to be trusted, the clock, the adapters, kinds and permissions
that this bundle's objects need, room on the disks, what may be kept in the cluster, and the hub. Without a registry it judges the release that
runs here, as it is in the state folder. It changes nothing, and works with and without a running
agent. The newest bundle is downloaded and not kept.

Exit codes: 0 nothing is missing; 1 something is; 2 wrong usage or configuration.`,
		Example: example("doctor --config agent.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := configOf(cmd)
			if err == nil {
				err = c.complete()
			}
			if err != nil {
				return err
			}
			subject, err := c.subject(cmd.Context())
			if err != nil {
				return err
			}
			report, err := doctor.Examine(cmd.Context(), subject)
			if err != nil {
				return err
			}
			err = cli.Print(cmd.OutOrStdout(), output, report, func(w io.Writer) { writeFindings(w, report) })
			if err != nil || report.OK {
				return err
			}
			return cli.Fail(cli.No, errors.New(failures(report)), "")
		},
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

// subject is the agent that c describes, to be examined.
func (c *config) subject(ctx context.Context) (doctor.Subject, error) {
	c.rebind(ctx)
	keys, err := readKeys(c.keys)
	if err != nil {
		return doctor.Subject{}, err
	}
	trust, err := c.chain(ctx)
	if err != nil {
		return doctor.Subject{}, err
	}
	hubKey, err := c.readHubKey()
	if err != nil {
		return doctor.Subject{}, err
	}
	if err := c.checkZarfKeys(); err != nil {
		return doctor.Subject{}, err
	}
	cluster, err := c.clusterConfig()
	if err != nil {
		return doctor.Subject{}, err
	}
	s := doctor.Subject{
		StateDir: c.stateDir, Cluster: c.cluster, Pinned: bundle.Pinned(keys), Trust: trust, Adapter: c.adapter, Kubernetes: cluster,
		DirectoryRoot: c.directoryRoot,
		Impersonate:   c.impersonate, ArgoNamespace: c.argoNamespace, AnsiblePlaybook: c.ansiblePlaybook, Zarf: c.zarf,
		Adapters: map[string]bool{
			"ansible": c.ansiblePlaybook != "", "argo": cluster != nil, "directory": c.directoryRoot != "",
			"flux": cluster != nil, "kubernetes": cluster != nil, "zarf": c.zarf != "",
		},
		Veto: c.veto, HubURL: c.hub, HasHubKey: hubKey != nil, Listen: c.listen,
	}
	c.enrolledHub(ctx, &s)
	remote, err := c.connect()
	if err != nil {
		return doctor.Subject{}, err
	}
	s.Transport = remote.options.HTTPClient.Transport
	if err := c.reportRegistry(ctx, remote, &s); err != nil {
		return doctor.Subject{}, err
	}
	if name, _, ok := c.memoryName(); ok && cluster != nil {
		s.Memory = name
	}
	if c.registry != (oci.Location{}) {
		open := func(name string) func(*http.Client) (bundle.Source, error) {
			return func(client *http.Client) (bundle.Source, error) {
				r, err := remote.by(client)
				if err != nil {
					return nil, err
				}
				return r.repository(name)
			}
		}
		s.Source, s.TrustSource = open(agent.FeedOf(c.cluster).Repository()), open(bundle.TrustRepository)
	}
	return s, nil
}

// reportRegistry fills in where the agent's reports lie in the registry that they are pushed to, if they are.
func (c *config) reportRegistry(ctx context.Context, remote *remote, s *doctor.Subject) error {
	var o agent.Options
	if err := remote.configure(&o); err != nil || o.ReportStore == nil {
		return err
	}
	uid := c.cluster.UID
	if st, err := readStatus(ctx, c); err == nil {
		uid = st.Cluster.UID
	}
	repo, err := o.ReportStore.Repository(bundle.ReportRepository(uid))
	s.Reports, s.ReportPlace, s.AckStored = repo, o.ReportPlace, o.AckStored
	return err
}

// enrolledHub fills in the hub that has enrolled the agent, where none is configured.
func (c *config) enrolledHub(ctx context.Context, s *doctor.Subject) {
	st, err := readStatus(ctx, c)
	if err != nil {
		return // for another check to say
	}
	s.HubURL = cmp.Or(s.HubURL, st.Identity.Hub)
	s.HasHubKey = s.HasHubKey || st.Identity.HubKeyID != ""
}

// rebind makes c's cluster what a person has bound the agent to, as its next start would. A state that cannot be read
// is for another check to say.
func (c *config) rebind(ctx context.Context) {
	if s, err := readStatus(ctx, c); err == nil && s.Binding != nil && s.Binding.Configured == agent.FeedOf(c.cluster) {
		c.cluster = s.Binding.Bound.Of(c.cluster)
	}
}

// chain returns the trust documents that the agent has, or else the one that it will begin with. A state
// that cannot be read is for another check to say.
func (c *config) chain(ctx context.Context) (bundle.TrustChain, error) {
	if t, err := c.readTrustState(ctx); err == nil && len(t.Chain) > 0 || c.trust == "" {
		return t.Chain, nil
	}
	envelope, err := c.firstTrust(ctx)
	if err != nil {
		return nil, err
	}
	chain, err := bundle.TrustChain(nil).Append(envelope)
	if err != nil {
		return nil, cli.Fail(cli.Denied, fmt.Errorf("--trust: %s: %w", c.trust, err), "")
	}
	return chain, nil
}

func writeFindings(w io.Writer, r doctor.Report) {
	fmt.Fprintf(w, "CHECK\tRESULT\tMESSAGE\n")
	for _, f := range r.Checks {
		cli.Row(w, f.Check, string(f.Result), f.Message)
		if f.Remedy != "" {
			fmt.Fprintf(w, "\t\tremedy: %s\n", cli.Line(f.Remedy))
		}
	}
}

func failures(r doctor.Report) string {
	n := 0
	for _, f := range r.Checks {
		if f.Result == doctor.Failed {
			n++
		}
	}
	return fmt.Sprintf("%d of %s failed", n, cli.Count(len(r.Checks), "check"))
}
