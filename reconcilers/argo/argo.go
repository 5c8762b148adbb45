// Package argo brings assignments to a cluster by way of Argo CD: it applies the Applications that tell Argo
// CD what to fetch, and follows Argo CD until it has done so.
//
// The objects are applied, compared, pruned and removed by package kubernetes, with all that it promises. An
// Application that has no finalizer is given one before it is deleted, so that Argo CD deletes its
// objects too: without one it would leave them where they are.
//
// After an apply, the work is Argo CD's, and its status in the Application decides: Argo CD has to have compared
// the sources that the manifest names, to find the cluster Synced with them, to have no failed sync of that
// revision behind it, and to find all Healthy. A verdict on an older revision or specification,
// good or bad, counts as Progressing.
//
// An Application with syncPolicy.automated is synced by Argo CD itself, which tries no revision twice: one
// that has failed is tried once more. Any other Application is synced by this package. To that end Apply
// writes the annotation argocd.argoproj.io/refresh and the field operation, both of which Argo CD takes away
// when it is done; Observe writes nothing.
//
// For an assignment with embedded delivery, the source of its Applications becomes an artifact at the agent's endpoint; see
// package rewrite.
package argo

import (
	"io/fs"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// Options are optional. The zero value works.
type Options struct {
	Log *slog.Logger // nil is silent
	// Impersonate is kubernetes.Options.Impersonate.
	Impersonate bool
	// Namespace is Argo CD's own, where Applications go that name none. Empty is DefaultNamespace.
	Namespace string
	// Deadline is how long a sync may take before it is ended, and a workload be Degraded before that counts
	// as failed. Zero is 5 minutes.
	Deadline time.Duration
	// Poll is how often Argo CD looks at an Application by itself, where its settings do not say it. One that
	// was not looked at for three times as long is not believed. Zero is DefaultPoll.
	Poll time.Duration
	// Now is the clock; nil is time.Now. It is compared with times that Argo CD has written.
	Now func() time.Time
}

// DefaultPoll is Argo CD's own default, 2 minutes and up to one more by chance.
const DefaultPoll = 3 * time.Minute

// DefaultNamespace is the one that Argo CD's own manifests install it in.
const DefaultNamespace = "argocd"

// settleTime is how long Healthy has to last: it is still that of the older revision for a moment after a
// sync, until controllers have begun to roll the new one out.
const settleTime = 30 * time.Second

// Reconciler is the engine for one cluster. It may be used by several goroutines, each with an
// assignment of its own.
type Reconciler struct {
	*kubernetes.Reconciler
}

var (
	_ reconcilers.Reconciler = (*Reconciler)(nil)
	_ reconcilers.Fetcher    = (*Reconciler)(nil)
)

// EmbeddedFiles returns none: Argo CD takes the files as they are.
func (*Reconciler) EmbeddedFiles(bundle.Assignment, fs.FS) (map[string][]byte, error) {
	return nil, nil
}

// New returns a reconciler for the cluster that config reaches; see kubernetes.New. The ledger must not be
// that of another adapter.
func New(config *rest.Config, ledger reconcilers.Ledger, opts Options) (*Reconciler, error) {
	if opts.Namespace == "" {
		opts.Namespace = DefaultNamespace
	}
	if opts.Deadline == 0 {
		opts.Deadline = 5 * time.Minute
	}
	if opts.Poll == 0 {
		opts.Poll = DefaultPoll
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	e := engine{opts}
	objects, err := kubernetes.New(config, ledger, kubernetes.Options{
		Log: opts.Log, Impersonate: opts.Impersonate,
		Engine: &kubernetes.Engine{
			Owns: owns, Install: "install Argo CD", Namespace: opts.Namespace,
			Embed:   func(in rewrite.Input) (rewrite.Result, error) { return rewrite.Argo(in, opts.Namespace) },
			Permits: e.permits,
			Fit:     fit, Judge: e.judgeObject, Drive: e.drive, Release: e.release,
			Holds: func(kind schema.GroupKind) bool { return kind == projectKind }, // without it nothing is taken away
		},
	})
	if err != nil {
		return nil, err
	}
	return &Reconciler{objects}, nil
}

// SettleTime returns the time for which Compliant has to last before it counts.
func (*Reconciler) SettleTime() time.Duration { return settleTime }

const group = "argoproj.io"

var (
	applicationKind = schema.GroupKind{Group: group, Kind: "Application"}
	projectKind     = schema.GroupKind{Group: group, Kind: "AppProject"}
)

// owns reports whether a kind is Argo CD's, and not that of a sibling such as Argo Rollouts, which shares its group.
func owns(kind schema.GroupKind) bool {
	return kind == applicationKind || kind == projectKind || kind == schema.GroupKind{Group: group, Kind: "ApplicationSet"}
}

// engine has the settings that are the same for all assignments.
type engine struct{ Options }
