package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/directory"
	"github.com/wherry-dev/wherry/reconcilers/flux"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// Process is the process that runs an agent.
type Process struct {
	Log *slog.Logger // required
	// Now, Ready and Watchdog are those of agent.Options, and DeltaCommand is a delta.Command.
	Now          func() time.Time
	DeltaCommand []string
	Ready        func() error
	Watchdog     *metrics.Watchdog
}

// Run opens the state, builds the agent that c describes, calls f, and closes all that it has opened. If f ends with
// agent.ErrRebound, Run builds the agent anew and calls f again.
func (c *Config) Run(ctx context.Context, p Process, f func(*agent.Agent) error) error {
	if err := c.Complete(); err != nil {
		return err
	}
	keys, err := readKeys(c.Trust.Keys)
	if err != nil {
		return err
	}
	remote, err := c.connect()
	if err != nil {
		return err
	}
	opts, err := c.options(p.Log)
	if err != nil {
		return err
	}
	if err := remote.configure(&opts); err != nil {
		return err
	}
	opts.Now, opts.Ready, opts.Watchdog = p.Now, p.Ready, p.Watchdog
	if len(p.DeltaCommand) > 0 {
		opts.Content.Deltas = delta.Command(p.DeltaCommand)
	}
	cluster, err := c.clusterConfig()
	if err != nil {
		return err
	}
	if err := c.remember(cluster, &opts); err != nil {
		return err
	}
	if opts.SiteValues, err = c.siteValues(cluster); err != nil {
		return err
	}
	st, err := c.openState()
	if err != nil {
		return err
	}
	if err := c.installTrust(ctx, st, opts.Log); err != nil {
		return errors.Join(err, st.Close())
	}
	remote.clock.follow(p.Now, st.Floor, opts.Log)
	if opts.Serve, err = c.endpoint(remote.clock.Now, opts.Log); err != nil {
		return errors.Join(err, st.Close())
	}
	if opts.Engines.Reconcilers, err = c.reconcilers(st, cluster, remote, opts.Log); err != nil {
		return errors.Join(err, st.Close())
	}
	for err = agent.ErrRebound; errors.Is(err, agent.ErrRebound); {
		var a *agent.Agent
		if a, err = c.agent(st, remote, keys, opts); err == nil {
			err = f(a)
		}
	}
	if closeErr := errors.Join(closeAll(opts.Engines.Reconcilers), st.Close()); err == nil {
		err = closeErr
	}
	return err
}

// options are those that need no connection.
func (c *Config) options(log *slog.Logger) (agent.Options, error) {
	o := agent.Options{
		Engines: engines.Options{Adapter: c.Adapters.Only, Settle: c.Passes.Settle, Deadline: c.Passes.Deadline}, Interval: c.Passes.Interval,
		Boot: bootID(), MaxManifests: c.MaxManifests, Hub: queue.Hub{URL: c.Reports.Hub}, Reports: agent.Reports{AcceptOthers: c.Serve.AcceptReports},
		Window: c.Registry.Window, Maintenance: c.Passes.Maintenance, Veto: c.Passes.Veto, Listen: c.Listen, Version: c.Program.Version, Log: log,
		Intake: c.intakeOptions(),
	}
	var err error
	if o.Hub.Key, err = c.HubKey(); err != nil {
		return o, err
	}
	o.EnrollToken, err = c.readEnrollToken(log)
	return o, err
}

// bootID identifies the start of this machine, where the system tells.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// agent returns the agent that c describes, or that it was bound to be.
func (c *Config) agent(state *agent.State, remote *remote, keys bundle.Keys, opts agent.Options) (*agent.Agent, error) {
	cluster, err := state.Bound(c.Cluster)
	if err != nil {
		return nil, err
	}
	all, err := remote.registries(cluster)
	if err != nil {
		return nil, err
	}
	var source bundle.Source
	if len(all) > 0 {
		source, opts.TrustSource, opts.Place, opts.Further = all[0].Releases, all[0].Trust, all[0].Place, all[1:]
	}
	return agent.New(state, source, bundle.Pinned(keys), cluster, opts), nil
}

// clusterConfig returns how the adapters kubernetes, flux and argo reach their cluster, or nil if none is configured. A
// kubeconfig in the home folder is not taken: a host's agent must not find somebody's cluster there.
func (c *Config) clusterConfig() (*rest.Config, error) {
	if c.Adapters.Kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", c.Adapters.Kubeconfig)
		if err != nil {
			return nil, invalid(fmt.Errorf("--kubeconfig: %w", err), "")
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if err == nil {
		return cfg, nil
	}
	if c.Adapters.Only == "kubernetes" || c.Adapters.Only == "flux" || c.Adapters.Only == "argo" {
		return nil, invalid(fmt.Errorf("the adapter %s reaches no cluster: %w", c.Adapters.Only, err), "give --kubeconfig, WHERRY_KUBECONFIG or the field kubeconfig")
	}
	return nil, nil
}

func (c *Config) reconcilers(state *agent.State, cluster *rest.Config, remote *remote, log *slog.Logger) (map[string]reconcilers.Reconciler, error) {
	engines := map[string]reconcilers.Reconciler{}
	if c.Adapters.DirectoryRoot != "" {
		engines["directory"] = directory.New(c.Adapters.DirectoryRoot, directory.Options{Log: log, Fetch: remote.artifactsOf(c.StateDir), Ledger: state.Ledger("directory")})
	}
	if c.Adapters.AnsiblePlaybook != "" {
		engines["ansible"] = ansible.New(filepath.Join(c.StateDir, "ansible"), ansible.Options{
			Program: c.Adapters.AnsiblePlaybook, Deadline: cmp.Or(c.Passes.Deadline, agent.DefaultDeadline), Log: log,
		})
	}
	if cluster != nil {
		k, err := kubernetes.New(cluster, state.Ledger("kubernetes"), kubernetes.Options{Log: log, Impersonate: c.Adapters.Impersonate})
		if err != nil {
			return nil, err
		}
		f, err := flux.New(cluster, state.Ledger("flux"), flux.Options{Log: log, Impersonate: c.Adapters.Impersonate})
		if err != nil {
			return nil, err
		}
		a, err := argo.New(cluster, state.Ledger("argo"), argo.Options{Log: log, Impersonate: c.Adapters.Impersonate, Namespace: c.Adapters.ArgoNamespace, Deadline: c.Passes.Deadline})
		if err != nil {
			return nil, err
		}
		engines["kubernetes"], engines["flux"], engines["argo"] = k, f, a
	}
	if c.Adapters.Zarf != "" {
		z, err := c.zarfAdapter(cluster, log)
		if err != nil {
			return nil, err
		}
		engines["zarf"] = z
	}
	return engines, nil
}

// closeAll ends what engines run between calls; the next start of the agent carries on.
func closeAll(engines map[string]reconcilers.Reconciler) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		if c, ok := engines[name].(io.Closer); ok {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("end what the adapter %s runs: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// checkZarfKeys reads the files here, where an error names the setting.
func (c *Config) checkZarfKeys() error {
	for _, path := range c.Adapters.ZarfKeys {
		if _, err := readKey(path); err != nil {
			return invalid(fmt.Errorf("--zarf-key: %w", err), "give the public key of whoever signs the packages, such as cosign.pub")
		}
	}
	return nil
}

func (c *Config) zarfAdapter(cluster *rest.Config, log *slog.Logger) (*zarf.Reconciler, error) {
	if err := c.checkZarfKeys(); err != nil {
		return nil, err
	}
	return zarf.New(cluster, zarf.Options{
		Program: c.Adapters.Zarf, Dir: filepath.Join(c.StateDir, "zarf"), Kubeconfig: c.Adapters.Kubeconfig, Keys: c.Adapters.ZarfKeys,
		Store:    filepath.Join(c.StateDir, state.StoreDir),
		Deadline: c.Passes.Deadline, Impersonate: c.Adapters.Impersonate, Log: log,
	})
}
