// Package doctor examines an agent's machine and cluster for missing requirements, and has advice for each.
//
// Begin with Examine. It changes nothing: it asks the registry, the cluster and the hub what the agent
// would ask them, reads the newest bundle to learn which kinds and permissions its objects need, and
// writes no more than one temporary file, to see whether the state folder takes it. It may run beside an
// agent.
package doctor

import (
	"context"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

// Subject is the agent to examine, as it is configured.
type Subject struct {
	StateDir string
	Cluster  bundle.ReportCluster
	// Pinned counts where Trust is empty: the trust documents that the agent has, or will begin with.
	Pinned   bundle.Trust
	Trust    bundle.TrustChain
	Adapters Adapters
	// Transport is how registries and the hub are reached; nil means http.DefaultTransport.
	Transport http.RoundTripper
	Registry  Registry
	// Further are the registries that the agent asks after Registry.
	Further []Registry
	// Kubernetes is nil where the agent knows no cluster.
	Kubernetes *rest.Config
	// Memory names the Secret and the Lease in the cluster that outlive the machine; empty is without.
	Memory types.NamespacedName
	Veto   freeze.Veto
	// SiteValues is the place of the values that the site itself sets; nil is none.
	SiteValues sitevalues.Source
	Hub        Hub
	Reports    Reports
	Listen     string        // the address of health and metrics; empty where there is none
	Serve      serve.Options // the endpoint; without an address there is none
	// Mute is why the agent that runs with StateDir does not answer, if it wraps control.ErrSilent: it is not asked again.
	Mute error
	Now  func() time.Time // nil means time.Now
}

// Adapters are the adapters of an agent, as they are configured.
type Adapters struct {
	// Only takes every assignment, whatever the release says, where it is not empty.
	Only string
	// Configured is true for each adapter that is configured, and false for the others.
	Configured map[string]bool
	// DirectoryRoot is the folder of the adapter directory; empty where it is off.
	DirectoryRoot string
	// AnsiblePlaybook and Zarf are the programs, and empty where their adapters are off.
	AnsiblePlaybook, Zarf string
	// ArgoNamespace is Argo CD's own; empty is argo.DefaultNamespace.
	ArgoNamespace string
	// Impersonate is true where the agent insists on a ServiceAccount for each workspace.
	Impersonate bool
}

// Registry is where an agent gets bundles; the zero value where they come by import only.
type Registry struct {
	// Place names it to people.
	Place string
	// Bundles and Trust open where bundles and trust documents come from. Nil is without.
	Bundles, Trust func(*http.Client) (bundle.Source, error)
}

// Hub is an agent's hub; the zero value where it has none.
type Hub struct {
	URL    string
	HasKey bool // the agent has the hub's public key, which may be without a URL
}

// Reports is the registry that an agent pushes its reports to; the zero value where it pushes none.
type Reports struct {
	Repository bundle.Source
	Place      string // that registry, for people
	AckStored  bool   // without a hub: what the registry gives back needs no acknowledgement
}

const (
	// checkTime bounds what one check asks others, and releaseTime the one that downloads: slow links are
	// what agents are for.
	checkTime   = 30 * time.Second
	releaseTime = 15 * time.Minute
	// maxSkew is a difference of clocks that TLS and the order of releases can live with.
	maxSkew = time.Minute
)

// Examine makes all checks. Its error is that of ctx.
func Examine(ctx context.Context, s Subject) (diagnosis.Report, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	return diagnosis.Run(ctx, checks(&examination{Subject: s}))
}

// checks lists all checks. Each may need what those before it have learned.
func checks(e *examination) []diagnosis.Check {
	check := func(name string, limit time.Duration, run func(context.Context, *examination) diagnosis.Finding) diagnosis.Check {
		return diagnosis.Check{Name: name, Limit: limit, Run: func(ctx context.Context) diagnosis.Finding { return run(ctx, e) }}
	}
	return []diagnosis.Check{
		check("state", checkTime, checkState),
		check("store", checkTime, checkStore),
		check("agent", checkTime, checkAgent),
		check("carry", checkTime, checkCarry),
		check("packages", checkTime, checkPackages),
		check("registry", checkTime, checkRegistry),
		check("trust", checkTime, checkTrust),
		check("release", releaseTime, checkRelease),
		check("clock", checkTime, checkClock),
		check("adapters", checkTime, checkAdapters),
		check("directory", checkTime, checkDirectory),
		check("ansible", checkTime, checkAnsible),
		check("kubernetes", checkTime, checkCluster),
		check("kinds", checkTime, checkKinds),
		check("zarf", checkTime, checkZarf),
		check("permissions", checkTime, checkPermissions),
		check("argo", checkTime, checkArgo),
		check("memory", checkTime, checkMemory),
		check("veto", checkTime, checkVeto),
		check("values", checkTime, checkSiteValues),
		check("hub", checkTime, checkHub),
		check("reports", checkTime, checkReports),
		check("queue", checkTime, checkQueue),
		check("listen", checkTime, checkListen),
		check("serve", checkTime, checkServe),
		check("identity", checkTime, checkIdentity),
	}
}

// examination is a site and what the checks have learned about it so far.
type examination struct {
	Subject

	source  bundle.Source // nil where it does not answer
	running digest.Digest // the release that runs here; empty where none does
	behind  time.Duration // how far the clock is behind the newest document that was verified here
	live    bool          // an agent answers here
	// documents opens the trust documents of the registry that source is of.
	documents func(*http.Client) (bundle.Source, error)
	carry     *carry.Status         // of the agent's carried artifacts; nil where there are none
	streams   []intake.StreamStatus // that site packages have brought
	withheld  string                // the agent's last message about credentials that it did not send; empty where it has sent them
	waiting   *outbox.Status        // nil where no state could be read
	offered   *bundle.Verified      // nil where no release could be verified
	content   *needs.Needs          // nil where its tree could not be read
	skew      *time.Duration        // of this machine's clock against the registry's; nil where no answer had a date
	issuedAt  time.Time
	served    *served // nil where the cluster does not answer
}
