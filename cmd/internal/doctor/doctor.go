// Package doctor finds out what an agent lacks on its machine and its cluster, and says what to do about
// it.
//
// Begin with Examine. It changes nothing: it asks the registry, the cluster and the hub what the agent
// would ask them, reads the newest bundle to learn which kinds and permissions its objects need, and
// writes no more than one temporary file, to see whether the state folder takes it. It may run beside an
// agent.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/needs"
)

// Result is how a check ended.
type Result string

// The results.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Warning Result = "warning" // nothing is missing yet
	Skipped Result = "skipped" // not configured, or what it builds on has failed
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Remedy says what to do about a check that has failed, or warns.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what Examine found, in the order of the checks.
type Report struct {
	OK     bool      `json:"ok"`
	Checks []Finding `json:"checks"`
}

// Subject is the agent to examine, as it is configured.
type Subject struct {
	StateDir string
	Cluster  bundle.ReportCluster
	// Pinned counts where Trust is empty: the trust documents that the agent has, or will begin with.
	Pinned bundle.Trust
	Trust  bundle.TrustChain
	// Adapter takes every assignment, whatever the release says, where it is not empty.
	Adapter string
	// Adapters says of each adapter that there is whether it is configured.
	Adapters map[string]bool
	// DirectoryRoot is the folder of the adapter directory; empty where it is off.
	DirectoryRoot string
	// Transport is how registries and the hub are reached; nil means http.DefaultTransport.
	Transport http.RoundTripper
	// Source opens where bundles come from. Nil where they come by import only.
	Source func(*http.Client) (bundle.Source, error)
	// TrustSource opens where trust documents come from, where Source is set.
	TrustSource func(*http.Client) (bundle.Source, error)
	// Kubernetes is nil where the agent knows no cluster.
	Kubernetes *rest.Config
	// Memory names the Secret and the Lease in the cluster that outlive the machine; empty is without.
	Memory types.NamespacedName
	// Impersonate is true where the agent insists on a ServiceAccount for each workspace.
	Impersonate bool
	// ArgoNamespace is Argo CD's own; empty is argo.DefaultNamespace.
	ArgoNamespace string
	// AnsiblePlaybook and Zarf are the programs, and empty where their adapters are off.
	AnsiblePlaybook, Zarf string
	Veto                  agent.Veto
	HubURL                string // empty where there is none
	HasHubKey             bool
	// Reports is where this agent's reports lie in the registry that they are pushed to, and nil where there is none.
	Reports     bundle.Source
	ReportPlace string           // that registry
	AckStored   bool             // without a hub: what the registry gives back needs no acknowledgement
	Listen      string           // the address of health and metrics; empty where there is none
	Now         func() time.Time // nil means time.Now
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
func Examine(ctx context.Context, s Subject) (Report, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	e := &examination{Subject: s}
	for _, check := range []struct {
		limit time.Duration
		run   func(context.Context)
	}{
		{checkTime, e.state},
		{checkTime, e.store},
		{checkTime, e.agent},
		{checkTime, e.registry},
		{checkTime, e.trust},
		{releaseTime, e.release},
		{checkTime, e.clock},
		{checkTime, e.adapters},
		{checkTime, e.directory},
		{checkTime, e.ansible},
		{checkTime, e.cluster},
		{checkTime, e.kinds},
		{checkTime, e.zarf},
		{checkTime, e.permissions},
		{checkTime, e.argo},
		{checkTime, e.memory},
		{checkTime, e.veto},
		{checkTime, e.hub},
		{checkTime, e.reports},
		{checkTime, e.queue},
		{checkTime, e.listen},
		{checkTime, e.identity},
	} {
		bounded, cancel := context.WithTimeout(ctx, check.limit)
		check.run(bounded)
		cancel()
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
	}
	r := Report{OK: true, Checks: e.findings}
	for _, f := range r.Checks {
		r.OK = r.OK && f.Result != Failed
	}
	return r, nil
}

// examination is what the checks know of one another.
type examination struct {
	Subject
	findings []Finding

	source   bundle.Source      // nil where it does not answer
	running  digest.Digest      // what runs here; empty where nothing does
	behind   time.Duration      // how far the clock is behind the newest document that was verified here
	live     bool               // an agent answers here
	withheld string             // what the agent has said last of credentials that it did not send; empty where it has sent them
	waiting  *agent.QueueStatus // nil where no state could be read
	offered  *bundle.Verified   // nil where no release could be verified
	content  *needs.Needs       // nil where its tree could not be read
	skew     *time.Duration     // of this machine's clock against the registry's; nil where nothing was heard
	issuedAt time.Time
	served   *served // nil where the cluster does not answer
}

func (e *examination) ok(check, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Result: OK, Message: fmt.Sprintf(format, args...)})
}

func (e *examination) failed(check, remedy, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Result: Failed, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (e *examination) warned(check, remedy, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Result: Warning, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (e *examination) skipped(check, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Result: Skipped, Message: fmt.Sprintf(format, args...)})
}
