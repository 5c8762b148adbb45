package agentcmd

import (
	"bytes"
	"cmp"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	stdlog "log"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/regularfile"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/deltacmd"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/directory"
	"github.com/wherry-dev/wherry/reconcilers/flux"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// withAgent opens the state, builds the agent that c describes, calls f, and closes the state. It builds another one
// where f ends because that has been bound to other releases.
func withAgent(cmd *cobra.Command, c *config, f func(*agent.Agent) error) error {
	if err := c.complete(); err != nil {
		return err
	}
	keys, err := readKeys(c.keys)
	if err != nil {
		return err
	}
	remote, err := c.connect()
	if err != nil {
		return err
	}
	opts, err := c.options(slogTo(cmd, c))
	if err != nil {
		return err
	}
	if err := remote.configure(&opts); err != nil {
		return err
	}
	opts.DeltaCommand = deltacmd.Command()
	opts.Ready, opts.Watchdog = ready(os.Getenv), watchdog(os.Getenv, os.Getpid())
	cluster, err := c.clusterConfig()
	if err != nil {
		return err
	}
	if err := c.remember(cluster, &opts); err != nil {
		return err
	}
	state, err := agent.OpenState(c.stateDir, nil)
	if err != nil {
		return stateError(err)
	}
	if err := c.installTrust(cmd.Context(), state, opts.Log); err != nil {
		return errors.Join(err, state.Close())
	}
	if opts.Reconcilers, err = c.reconcilers(state, cluster, remote, opts.Log); err != nil {
		return errors.Join(err, state.Close())
	}
	for err = agent.ErrRebound; errors.Is(err, agent.ErrRebound); {
		var a *agent.Agent
		if a, err = c.agent(state, remote, keys, opts); err == nil {
			err = f(a)
		}
	}
	if closeErr := errors.Join(closeAll(opts.Reconcilers), state.Close()); err == nil {
		err = closeErr
	}
	return err
}

// agent is the one that c describes, or that it was bound to be.
func (c *config) agent(state *agent.State, remote *remote, keys bundle.Keys, opts agent.Options) (*agent.Agent, error) {
	cluster, err := state.Bound(c.cluster)
	if err != nil {
		return nil, err
	}
	source, err := remote.source(cluster)
	if err != nil {
		return nil, err
	}
	return agent.New(state, source, bundle.Pinned(keys), cluster, opts), nil
}

// slogTo makes the agent's log, and sends there what the libraries for Kubernetes would write to stderr
// in forms of their own.
func slogTo(cmd *cobra.Command, c *config) *slog.Logger {
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	if c.logFormat == "json" {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(handler))
	sendStandardLog(handler)
	return log
}

// sendStandardLog has what the standard library writes to stderr by itself be for who debugs: net/http says there
// that a registry, or a proxy, has closed a connection in words of its own, which is no news to an operator.
func sendStandardLog(to slog.Handler) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(to, slog.LevelDebug).Writer())
}

func readKeys(paths []string) (bundle.Keys, error) {
	var keys bundle.Keys
	for _, path := range paths {
		k, err := readKey(path)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--key: %w", err), `a public key is what "wherry keys generate" writes as cosign.pub`)
		}
		keys = append(keys, k...)
	}
	return keys, nil
}

// maxKeyBytes bounds a file of public keys.
const maxKeyBytes = 64 << 10

// readKey does not repeat the file's content in its error: it might be the private half.
func readKey(path string) (bundle.Keys, error) {
	data, err := regularfile.Read(path, maxKeyBytes)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return nil, fmt.Errorf("%s holds a private key: an agent needs the public one, and should not have the other", path)
	}
	keys, err := bundle.ParsePublicKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func (c *config) options(log *slog.Logger) (agent.Options, error) {
	o := agent.Options{
		Adapter: c.adapter, Interval: c.interval, Settle: c.settle, Deadline: c.deadline,
		Window: c.window, Maintenance: c.maintenance, Veto: c.veto, HubURL: c.hub, Listen: c.listen, Version: cli.Version(), Log: log,
	}
	var err error
	if o.HubKey, err = c.readHubKey(); err != nil {
		return o, err
	}
	o.EnrollToken, err = c.readEnrollToken(log)
	return o, err
}

// readHubKey returns the pinned key of the hub; nil where none is pinned.
func (c *config) readHubKey() (crypto.PublicKey, error) {
	if c.hubKey == "" {
		return nil, nil
	}
	keys, err := readKey(c.hubKey)
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%s holds %d keys, a hub has one", c.hubKey, len(keys))
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--hub-key: %w", err), `"wherry hub keys show" prints the key`)
	}
	return keys[0], nil
}

// clusterConfig is how the adapters kubernetes, flux and argo reach their cluster; nil where nothing names one. A
// kubeconfig in the home folder is not taken: a host's agent must not find somebody's cluster there.
func (c *config) clusterConfig() (*rest.Config, error) {
	if c.kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return nil, cli.Fail(cli.Usage, fmt.Errorf("--kubeconfig: %w", err), "")
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if err == nil {
		return cfg, nil
	}
	if c.adapter == "kubernetes" || c.adapter == "flux" || c.adapter == "argo" {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("the adapter %s reaches no cluster: %w", c.adapter, err), "give --kubeconfig, WHERRY_KUBECONFIG or the field kubeconfig")
	}
	return nil, nil
}

func (c *config) reconcilers(state *agent.State, cluster *rest.Config, remote *remote, log *slog.Logger) (map[string]reconcilers.Reconciler, error) {
	engines := map[string]reconcilers.Reconciler{}
	if c.directoryRoot != "" {
		engines["directory"] = directory.New(c.directoryRoot, directory.Options{Log: log, Fetch: remote.artifacts, Ledger: state.Ledger("directory")})
	}
	if c.ansiblePlaybook != "" {
		engines["ansible"] = ansible.New(filepath.Join(c.stateDir, "ansible"), ansible.Options{
			Program: c.ansiblePlaybook, Deadline: cmp.Or(c.deadline, agent.DefaultDeadline), Log: log,
		})
	}
	if cluster != nil {
		k, err := kubernetes.New(cluster, state.Ledger("kubernetes"), kubernetes.Options{Log: log, Impersonate: c.impersonate})
		if err != nil {
			return nil, err
		}
		f, err := flux.New(cluster, state.Ledger("flux"), flux.Options{Log: log, Impersonate: c.impersonate})
		if err != nil {
			return nil, err
		}
		a, err := argo.New(cluster, state.Ledger("argo"), argo.Options{Log: log, Impersonate: c.impersonate, Namespace: c.argoNamespace, Deadline: c.deadline})
		if err != nil {
			return nil, err
		}
		engines["kubernetes"], engines["flux"], engines["argo"] = k, f, a
	}
	if c.zarf != "" {
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

// checkZarfKeys finds out here whether the files can be what zarf is to verify with.
func (c *config) checkZarfKeys() error {
	for _, path := range c.zarfKeys {
		if _, err := readKey(path); err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--zarf-key: %w", err), "give the public key of whoever signs the packages, such as cosign.pub")
		}
	}
	return nil
}

func (c *config) zarfAdapter(cluster *rest.Config, log *slog.Logger) (*zarf.Reconciler, error) {
	if err := c.checkZarfKeys(); err != nil {
		return nil, err
	}
	return zarf.New(cluster, zarf.Options{
		Program: c.zarf, Dir: filepath.Join(c.stateDir, "zarf"), Kubeconfig: c.kubeconfig, Keys: c.zarfKeys,
		Deadline: c.deadline, Impersonate: c.impersonate, Log: log,
	})
}

// stateError says what can be done about a state folder that cannot be used.
func stateError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, state.ErrBusy):
		hint = "an agent is running with this state folder: use sync, status or import, or give another --state-dir"
	case errors.Is(err, state.ErrDamaged):
		hint = "move the file away to begin anew: the next pass adopts what is applied, the hub has to be given the new report key, and the order of releases begins again"
	case errors.Is(err, state.ErrNewer):
		hint = "this agent is version " + cli.Version() + ": use the newer agent again, or a newer one still; what runs here stays as it is meanwhile"
	case errors.Is(err, state.ErrNoState):
		hint = "begin with once or run, or name its folder with --state-dir"
	case errors.As(err, new(*fs.PathError)):
		hint = "give --state-dir a folder that this user may write, on a disk with free space"
	}
	return cli.Fail(cli.Failed, err, hint)
}
