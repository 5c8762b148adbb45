// Package zarf brings assignments to a cluster or a host with Zarf, by running its command line.
//
// An assignment either holds a ZarfPackageConfig, from which this package makes a Zarf package signed with a key of the
// agent's own, or names a package in a registry by its digest. Either is deployed with verification that
// no setting can turn off. zarf runs for seconds or minutes, so Apply starts it and Observe returns its
// progress. A run ends at its deadline, with all processes that it has started; a run that a killed agent has left is
// ended before the next one.
//
// Compliant means that zarf has exited with 0, that its record of the package is of this very content, that
// every component has succeeded, and that the objects are still as they were deployed. Zarf keeps no watch
// over them: this package asks the API server, by a dry run, and has drift corrected by deploying again.
// docs/engines/zarf.md has the reasons and what to do about them.
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
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// DefaultDeadline bounds the deployment or removal of one package, as the agent does by default.
const DefaultDeadline = 5 * time.Minute

// Options configures the runs of zarf. Program and Dir are required.
type Options struct {
	// Program is zarf's path, or a name to look up in PATH.
	Program string
	// Dir is a folder of this package's own: its key, Zarf's cache, and a record of each assignment.
	Dir string
	// Kubeconfig is the path of the file that config was read from. Empty means that a file is written from
	// config, which is enough for a pod's service account.
	Kubeconfig string
	// Keys are files with one public key each, in cosign's format. A package from a registry has to be signed with one
	// of them.
	Keys []string
	// Store is the folder of the agent's content store, an OCI layout. A package that lies there as a whole is taken from there,
	// and not from its registry. Empty means that there is none.
	Store string
	// Deadline bounds one deployment or removal. Zero means DefaultDeadline.
	Deadline time.Duration
	// Impersonate is true if the site confines workspaces to ServiceAccounts. Zarf cannot act as one.
	Impersonate bool
	Log         *slog.Logger // nil is silent
}

// Reconciler is the engine for one cluster, or for a host without. It may be used by several goroutines,
// each with an assignment of its own. Close ends all runs.
type Reconciler struct {
	opts   Options
	config *rest.Config
	client client.Client // nil without a cluster

	jobs   program.Group[*job]
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

// requestTimeout bounds one request if config has no timeout of its own.
const requestTimeout = 45 * time.Second

// New returns a reconciler for the cluster of config. A nil config means a host without a cluster, where only packages
// of files and actions can be deployed. The reconciler connects at its first use.
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
	if opts.Store != "" {
		if opts.Store, err = filepath.Abs(opts.Store); err != nil {
			return nil, err
		}
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

// Close ends all runs, and returns when they have ended. The agent begins interrupted work again after its next start.
func (r *Reconciler) Close() error {
	r.cancel()
	r.jobs.Close()
	return nil
}

// Apply starts to deploy the package, unless it is deployed already, and returns while zarf works.
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
	if rec.holds(a.Files()) && rec.Phase == phaseDeployed || rec == nil {
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

// overwritten reports whether fields of deployed objects were overwritten by hand, by which an upgrade and its rollback
// would fail. If it cannot find out, it returns false, and zarf reports the error.
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

// ours returns an error if the package was deployed by somebody else, or for another assignment.
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
	if err == nil && def.Package != "" && rec.holds(a.Files()) && rec.Checksum != "" {
		def.Name, def.Checksum, def.Components = rec.Package, rec.Checksum, rec.Components
	}
	return def, rec, err
}

func (rec *record) holds(content digest.Digest) bool { return rec != nil && rec.Content == content }
