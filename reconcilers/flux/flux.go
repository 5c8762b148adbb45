// Package flux brings assignments to a cluster with Flux: it applies Flux's objects, which define the content to
// fetch, and follows their status until Flux has applied that content.
//
// The objects are applied, compared, pruned and removed by package kubernetes, with all that it promises.
// After that, the work is Flux's, and its status in the objects decides: a GitRepository or another
// source has to be ready in the generation that was applied, and a Kustomization or HelmRelease has to have
// applied the newest revision of its source. A verdict on an older generation or revision, good or bad,
// counts as Progressing. Failures have Flux's own reason and message.
//
// For an assignment with embedded delivery, the sources become OCIRepositories of the agent's endpoint; see package rewrite.
// If Flux cannot fetch from there, the site is at fault.
//
// The Kustomizations of an assignment with site values get them as variables, from a ConfigMap.
//
// If a source follows a branch, a tag or a range of versions, the result is Floating and Revision is the one
// that Flux has applied. The caller decides how long Flux may take, and how long the result has to stay Compliant.
package flux

import (
	"io/fs"
	"log/slog"
	"strings"
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
	// Impersonate is that of kubernetes.Options.
	Impersonate bool
	// Now is the clock of the requests to Flux; nil is time.Now.
	Now func() time.Time
}

// Reconciler is the engine for one cluster. It may be used by several goroutines, each with an
// assignment of its own.
type Reconciler struct {
	*kubernetes.Reconciler
}

var (
	_ reconcilers.Reconciler = (*Reconciler)(nil)
	_ reconcilers.Fetcher    = (*Reconciler)(nil)
)

// EmbeddedFiles returns the files with HelmReleases, which take their charts from the endpoint.
func (*Reconciler) EmbeddedFiles(a bundle.Assignment, files fs.FS) (map[string][]byte, error) {
	return rewrite.Manifests(a, files)
}

// New returns a reconciler for the cluster that config reaches; see kubernetes.New. The ledger must not be
// that of another adapter.
func New(config *rest.Config, ledger reconcilers.Ledger, opts Options) (*Reconciler, error) {
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	objects, err := kubernetes.New(config, ledger, kubernetes.Options{
		Log:         opts.Log,
		Impersonate: opts.Impersonate,
		Engine: &kubernetes.Engine{
			Owns:    owns,
			Install: "install Flux",
			Embed:   rewrite.Flux,

			Substitute: rewrite.Substitute,
			Drive:      requests(now),
			Judge:      judgeObject,
			Release:    leave(now),
		},
	})
	if err != nil {
		return nil, err
	}
	return &Reconciler{objects}, nil
}

func owns(kind schema.GroupKind) bool { return strings.HasSuffix(kind.Group, ".toolkit.fluxcd.io") }

// Groups of the kinds that are judged by more than their conditions.
const (
	sourceGroup    = "source.toolkit.fluxcd.io"
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
)
