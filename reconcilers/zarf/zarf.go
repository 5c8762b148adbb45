// Package zarf brings assignments to a cluster or a host with Zarf, by running its command line.
//
// An assignment holds a ZarfPackageConfig, of which a package is made that is signed with a key of the
// agent's own, or names a package in a registry by its digest. Either is deployed with verification that
// nothing can switch off. zarf works for seconds or minutes, so Apply starts it and Observe says how far it
// is. A run ends at its deadline, with all that it has started; one that an agent has left running when it
// was killed is ended before the next.
//
// Compliant means that zarf has exited with 0, that its record of the package is of this very content, that
// every component has succeeded, and that the objects are still as they were deployed. Zarf keeps no watch
// over them: this package asks the API server, by a dry run, and has drift corrected by deploying again.
// docs/adapters.md has the reasons and what to do about them.
package zarf

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/background"
)

// DefaultDeadline is how long bringing or removing one package may take: the agent's own.
const DefaultDeadline = 5 * time.Minute

// Options are how zarf is run. Program and Dir are needed.
type Options struct {
	// Program is zarf's path, or a name to be found in PATH.
	Program string
	// Dir is a folder of this package's own: its key, Zarf's cache, and a record of each assignment.
	Dir string
	// Kubeconfig is the path of the file that config was read from. Empty means that one is written from
	// config, which does for what a pod has.
	Kubeconfig string
	// Keys are files with a public key each, as cosign writes it. Who deploys a package of a registry has to
	// have signed it with one of them.
	Keys []string
	// Deadline bounds all that is done for one assignment at a time. Zero means DefaultDeadline.
	Deadline time.Duration
	// Impersonate is true where the site confines workspaces to ServiceAccounts. Zarf cannot act as one.
	Impersonate bool
	Log         *slog.Logger // nil is silent
}

// Reconciler is the engine for one cluster, or for a host without. It may be used by several goroutines,
// each with an assignment of its own. Close ends all runs.
type Reconciler struct {
	opts   Options
	config *rest.Config
	client client.Client // nil without a cluster

	jobs   background.Group[*job]
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	keyMu     sync.Mutex
	versionMu sync.Mutex // guards the next two
	known     bool
	tooOld    error
}

var (
	_ reconcilers.Reconciler = (*Reconciler)(nil)
	_ reconcilers.Runner     = (*Reconciler)(nil)
	_ io.Closer              = (*Reconciler)(nil)
)

// requestTimeout bounds one request where config has no timeout of its own.
const requestTimeout = 45 * time.Second

// New returns a reconciler for the cluster that config reaches; nil is a host without one, where packages
// of files and actions alone can be deployed. It connects when it is first used.
func New(config *rest.Config, opts Options) (*Reconciler, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	opts.Dir, opts.Keys = dir, slices.Clone(opts.Keys)
	for i, path := range opts.Keys { // zarf has a working directory of its own
		if opts.Keys[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	if opts.Kubeconfig != "" {
		if opts.Kubeconfig, err = filepath.Abs(opts.Kubeconfig); err != nil {
			return nil, err
		}
	}
	r := &Reconciler{opts: opts}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if config != nil {
		r.config, r.client, err = connect(config)
	}
	return r, err
}

func connect(config *rest.Config) (*rest.Config, client.Client, error) {
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS = -1
	}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := client.New(config, client.Options{})
	return config, c, err
}

// Close ends what is running, and returns when it has gone. What was cut off is begun again by the next
// start of the agent.
func (r *Reconciler) Close() error {
	r.cancel()
	r.jobs.Close()
	return nil
}

// Apply has the package deployed unless it is already, and returns while zarf works.
func (r *Reconciler) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	res, err := r.apply(ctx, a)
	if err != nil {
		return failed(ctx, err)
	}
	return res
}

func (r *Reconciler) apply(ctx context.Context, a reconcilers.Assignment) (reconcilers.Result, error) {
	def, rec, working, err := r.lookUp(ctx, a)
	switch {
	case err != nil:
		return reconcilers.Result{}, err
	case working != nil:
		return working.result(), nil
	}
	if err := r.version(ctx); err != nil {
		return reconcilers.Result{}, err
	}
	forced := false
	if rec.holds(a.Content) && rec.Phase == phaseDeployed || rec == nil {
		res, s, err := r.stand(ctx, a, def, rec != nil)
		if err != nil || res.State != bundle.Drifted && res.State != bundle.Pending {
			return res, err
		}
		forced = s.forced
	}
	if err := r.permit(ctx, a, def, rec); err != nil {
		return reconcilers.Result{}, err
	}
	return r.deploy(a, def, rec, forced || rec != nil && r.overwritten(ctx, rec.Package))
}

// overwritten reports whether fields of deployed objects were overwritten by hand. Newer content would fail by them, and
// so would the way back of that upgrade. What cannot be found out here is left for zarf to find.
func (r *Reconciler) overwritten(ctx context.Context, name string) bool {
	if r.client == nil || name == "" {
		return false
	}
	there, err := readDeployed(ctx, r.client, name)
	if err != nil || there == nil {
		return false
	}
	s, err := inspect(ctx, r.client, there)
	return err == nil && s.forced && len(s.taken) == 0
}

// permit returns an error if a deploy would fail, as far as that can be known before zarf runs.
func (r *Reconciler) permit(ctx context.Context, a reconcilers.Assignment, def *definition, rec *record) error {
	if def.Name == "" { // a prebuilt package that has to be looked at first
		if len(r.opts.Keys) == 0 {
			return failure(VerificationError, "package %s: no key is known that it could be signed with: give one with --zarf-key", def.Package)
		}
		return nil
	}
	if !def.needsCluster() {
		return nil
	}
	if r.client == nil {
		return failure(NoCluster, "package %s is for a cluster, and the agent knows none: give --kubeconfig", def.Name)
	}
	if err := r.ours(ctx, a, def, rec); err != nil {
		return err
	}
	return ready(ctx, r.client, def)
}

// ours refuses to replace a package that was deployed by somebody else, or for another assignment.
func (r *Reconciler) ours(ctx context.Context, a reconcilers.Assignment, def *definition, rec *record) error {
	there, err := readDeployed(ctx, r.client, def.Name)
	if err != nil {
		return err
	}
	if other := r.claimant(def.Name); there != nil && other != "" && other != a.Name {
		return failure(Conflict, "package %s is that of assignment %s: give this one another name", def.Name, other)
	}
	switch {
	case there == nil, there.owner() == a.Name, there.holds(def, a):
		return nil
	case there.owner() == "" && rec != nil && rec.Package == def.Name:
		return nil
	case there.owner() == "":
		return failure(Conflict, "package %s was deployed by somebody else: remove it with \"zarf package remove %s\", or give this one another name", def.Name, def.Name)
	}
	return failure(Conflict, "package %s is that of assignment %s: give this one another name", def.Name, there.owner())
}

// read returns the package of an assignment, and its record.
func (r *Reconciler) read(a reconcilers.Assignment) (*definition, *record, error) {
	if a.ServiceAccount != "" || r.opts.Impersonate && a.Workspace != "" {
		return nil, nil, failure(Forbidden, "zarf deploys with the agent's own rights, and %s is confined to a ServiceAccount: use another adapter for it, or lift this for its workspace", a.Name)
	}
	def, err := readDefinition(a)
	if err != nil {
		return nil, nil, err
	}
	rec, err := r.loadRecord(a.Name)
	if err == nil && def.Package != "" && rec.holds(a.Content) && rec.Checksum != "" {
		def.Name, def.Checksum, def.Components = rec.Package, rec.Checksum, rec.Components
	}
	return def, rec, err
}

func (rec *record) holds(content digest.Digest) bool { return rec != nil && rec.Content == content }
