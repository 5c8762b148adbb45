// Package agent keeps one cluster, or one host, at the newest release for it.
//
// Begin with OpenState, then New, then Agent.Once for a single pass or Agent.Run for a service:
//
//	state, err := agent.OpenState("/var/lib/wherry-agent", nil)
//	a := agent.New(state, repository, bundle.Pinned(keys), cluster, agent.Options{Engines: engines.Options{Reconcilers: adapters}})
//	result := a.Once(ctx, 10*time.Second)
//
// A pass is a list of steps: resolve, learn, verify, fetch, stage, apply, observe, report. Each gets the results of those
// before it: pass.pull shows the first five, which fetch a release, pass.keep the next two, which bring the cluster to it,
// and pass.conclude records and reports the outcome. The agent requests no layer before
// it has checked the signature over the manifest and the release's place and order, and gives a reconciler only
// assignments that a verified release lists. It records each step before it begins the step, so that after a crash at any
// point the next pass continues or repeats it. It removes an assignment only because a newer verified release no
// longer lists it, never because content could not be read.
//
// Reports wait in the state file until the hub has acknowledged them under its own key. They never delay an apply.
//
// These rules hold in every pass:
//
//   - An item that is new waits for waves (until those below it end or reach the deadline), for dependencies (until they are
//     compliant in this release's content), for carried artifacts and for site values; the old content runs meanwhile. Only
//     a dependency makes one item's failure another's. Four calls of one adapter run at a time.
//   - Removals come after the applies and in reverse: dependents first, higher waves first.
//   - Manifests are measured with YAML aliases expanded before anything decodes them (Options.MaxManifests).
//   - An item that was applied when the process died is tried last and alone. Twice in a row at the same content and boot,
//     it is failed/AgentDied.
//   - A release that fails three times, or crashes the agent three times, is quarantined by manifest and content digest, and the last
//     good one applied again. Only what the release changed and what was not compliant in it counts; faults of the
//     site do not. Nothing goes back across an epoch.
//   - A freeze (a pause, another agent's Lease, maintenance windows, a veto) forbids calls that change something, not transfers. It
//     is asked again before each further step of an update.
//   - The memory in the cluster is written before engines are called. What comes back from it can stop updates, and never
//     make the agent accept more.
//   - The identity of applied content is the line's desired digest and that of the site values. A failure after a change of
//     the site's own values blames no release.
//   - The state file's schema number rises only if an older agent would do harm by not knowing a change. Other changes
//     are added as buckets, keys and fields whose zero value means the old behaviour.
//
// The packages below it are independent of the agent, and none of them imports this one:
//
//   - assignments: the records of assignments, and the order in which they may begin
//   - carry: the images, charts and packages of assignments in the content store
//   - backup: the data that the cluster keeps for its agent
//   - content: the releases on disk
//   - control: the socket for commands
//   - engines: the calls of reconcilers
//   - enroll: the hub that has registered the agent
//   - freeze: the reasons against changes to the cluster, and the guard that asks for them
//   - health: the probes and the watchdog
//   - identity: who the agent is
//   - intake: the streams of site packages in the content store
//   - lease: the Lease by which the agents of one cluster exclude each other
//   - metrics: the page for Prometheus
//   - outbox: the queue of reports and its sinks
//   - probation: the decision whether a failing release goes on
//   - registries: the order in which registries are asked
//   - retry: the times between attempts
//   - serve: the endpoint over the releases on disk
//   - sitevalues: the values of the site, and the files of assignments with them
//   - state: the state file
//   - trust: the keys that may sign
//   - veto: the site's veto against changes
//   - window: the times for transfers and changes
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/window"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// The defaults of Options.
const (
	DefaultInterval      = 5 * time.Minute
	DefaultMaxBackoff    = 2 * time.Hour
	DefaultDriftInterval = 6 * time.Hour
	DefaultDeadline      = 5 * time.Minute
	DefaultHeartbeat     = time.Hour
)

// Options configures an agent. The zero value works, with the defaults above. Of the options of parts, those that the agent itself
// knows are set by New, such as the clock and the log.
type Options struct {
	// Engines are the reconcilers. An assignment whose engine is missing fails alone, as AdapterUnavailable.
	Engines engines.Options
	// Interval is the time between two looks at the registry; MaxBackoff the longest while it is out of
	// reach. Both are spread by a tenth.
	Interval, MaxBackoff time.Duration
	// DriftInterval is the time between two observations of compliant assignments.
	DriftInterval time.Duration
	// TrustSource is the repository of trust documents beside the one of releases. An agent that has none
	// of them does not ask it. Nil leaves those that come by import and InstallTrust.
	TrustSource bundle.Source
	// Place names the source of releases to people, and Further are asked after it, in their order, if it has no answer
	// that counts.
	Place   string
	Further []registries.Registry
	// Content configures the store of releases, and the download of layers from a registry.
	Content content.Options
	// Window has the times for transfers.
	Window window.Transfer
	// Maintenance are the times in which the cluster may be changed. None is always.
	Maintenance []window.Maintenance
	// SiteValues is the place of the values that the site itself sets; nil is none.
	SiteValues sitevalues.Source
	// Veto is how the site says that it must not be changed.
	Veto freeze.Veto
	// MaxManifests bounds the manifests of one assignment, in bytes, with YAML aliases expanded and each value counted as some
	// more; see yamlvalues.Size. Decoding takes up to ten times as much memory. Zero is yamlvalues.MaxBytes.
	MaxManifests int64
	// Hub is where reports go; without a URL they are kept for media. Its key verifies acknowledgements; without
	// one reports are sent and none is ever deleted. If one is empty, the value of the enrollment in the state counts.
	Hub queue.Hub
	// EnrollToken has an agent that no hub has enrolled register itself at Hub; see enroll.Options.
	EnrollToken string
	// HTTPClient talks to the hub. Nil is a client with deadlines.
	HTTPClient *http.Client
	// Reports configures the queue of reports, and where they go beside Hub.
	Reports Reports
	// Listen is the TCP address, such as :8081, at which Run serves /healthz, /readyz and /metrics. Empty serves
	// none of them.
	Listen string
	// Serve is the endpoint at which Run lets others read the content store, and from which engines fetch assignments with
	// embedded delivery. Nil is none.
	Serve *serve.Endpoint
	// Ready is called once Run can be asked by the control socket. Nil is nobody.
	Ready func() error
	// Watchdog watches Run. Nil is none.
	Watchdog *metrics.Watchdog
	// Carry configures how the artifacts of assignments are brought to the content store.
	Carry carry.Options
	// Intake configures what is stored of site packages.
	Intake intake.Options
	// Traffic counts what HTTPClient and the sources send and receive, for those who wrap their transports by it.
	// Nil counts nothing.
	Traffic *metrics.Traffic
	// OnCluster is what the agent has in the cluster.
	OnCluster OnCluster
	// Boot identifies the start of this machine; empty if that is not known. An agent that dies in a power cut has not died of what
	// it was doing.
	Boot string
	// Version is the agent's, as reports carry it.
	Version string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Reports configures what becomes of reports. The zero value makes one at least every DefaultHeartbeat, and keeps them within the
// bounds of package outbox.
type Reports struct {
	// Queue bounds the reports that wait.
	Queue outbox.Limits
	// Heartbeat is the time after which a report is made though nothing has changed.
	Heartbeat time.Duration
	// Store is a registry that reports are pushed to, each cluster's to a repository of its own, and Place its name for the
	// log. Nil is none.
	Store oci.Store
	Place string
	// AckStored deletes reports once Store has stored them, where there is no hub that acknowledges.
	AckStored bool
	// AcceptOthers has Options.Serve take the reports of other agents, for somebody who carries them to the hub; see package relay.
	AcceptOthers bool
}

// OnCluster is the agent's memory and Lease in the cluster that the engines Adapters work on. Both may be nil: without Memory, a
// new machine knows nothing of the agent's past; without Lease, a second agent is not noticed.
type OnCluster struct {
	Adapters []string
	Memory   backup.Store
	Lease    lease.Lease
}

func (o Options) withDefaults() Options {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.MaxBackoff = max(cmp.Or(o.MaxBackoff, DefaultMaxBackoff), o.Interval)
	o.DriftInterval = cmp.Or(o.DriftInterval, DefaultDriftInterval)
	o.Engines.Deadline = cmp.Or(o.Engines.Deadline, DefaultDeadline)
	o.Reports.Heartbeat = cmp.Or(o.Reports.Heartbeat, DefaultHeartbeat)
	o.Reports.Queue = o.Reports.Queue.WithDefaults()
	o.Version = cmp.Or(o.Version, "(devel)")
	if o.HTTPClient == nil {
		o.HTTPClient = outbox.NewHTTPClient()
	}
	if o.Traffic == nil {
		o.Traffic = new(metrics.Traffic)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Agent is one agent. Its methods may be called by several goroutines; passes exclude each other.
type Agent struct {
	state   *State
	source  bundle.Source // nil where bundles come by import only
	pinned  bundle.Trust  // counts while the state holds no trust document
	cluster bundle.ReportCluster
	// configured is cluster as New got it. Others than passes may read it at any time.
	configured bundle.ReportCluster
	// instance tells this process from those before, and from those of a copy of this machine.
	instance  string
	opts      Options
	anonymous bool        // the configuration gives the cluster no uid
	started   bool        // others than passes read cluster
	lease     *lease.Held // of the Lease; nil without one

	busy sync.Mutex // held by the pass that runs

	relearning sync.Mutex
	relearned  bool // see relearn
	process
	shown
	signals
}

// process is what one pass leaves to the next in the same process. It belongs to the pass that runs.
type process struct {
	content    *content.Store
	artifacts  *artifact.Store
	carrier    *carry.Carrier
	intake     *intake.Keeper
	engines    *engines.Set
	values     *sitevalues.Site
	budget     *budget
	memory     *clusterMemory
	tidied     bool       // a pass has looked for left-overs
	looked     bool       // a pass has looked whether the process before has died
	lived      bool       // the process has outlived a pass in which engines changed something
	poller     oci.Poller // how registries want to be asked
	book       registries.Book
	freezeRest func(time.Duration) time.Duration
}

// shown is what a running agent shows of itself beside what the state file has.
type shown struct {
	pulse  *metrics.Pulse
	passes *metrics.Passes
	disk   metrics.Disk
	// unrecorded is why the last pass is not in the state file, such as a disk that is full; nil where it is.
	unrecorded atomic.Pointer[string]
	// endpoint serves the content store; nil while Run does not. unserved is why the newest accepted release is not whole
	// there; nil where it is.
	endpoint atomic.Pointer[serve.Server]
	unserved atomic.Pointer[string]
	// importing is the import that runs; nil while none does.
	importing atomic.Pointer[ImportProgress]
	// lastContact and nextTry are what Run knows better than the state file.
	lastContact, nextTry atomic.Pointer[time.Time]
}

// signals are for the loop of Run.
type signals struct {
	wake    chan struct{} // holds a token when something has changed that Run had not planned
	eager   atomic.Bool   // the next pass is to ask for a newer release
	heard   atomic.Bool   // a pass that a person asked for has had an answer of the registry
	rebound atomic.Bool   // another agent is to take over
}

// New returns an agent that takes the releases of cluster's stream from source, which is polled where it is an
// oci.Target. They have to be signed as
// the trust documents in the state say, or, while it holds none, as pinned says. A nil source leaves only
// Import. A cluster without a uid gets the state's. New does no I/O.
func New(state *State, source bundle.Source, pinned bundle.Trust, cluster bundle.ReportCluster, opts Options) *Agent {
	anonymous := cluster.UID == ""
	cluster.UID = cmp.Or(cluster.UID, state.who.Identity().UID)
	cluster.Name = cmp.Or(cluster.Name, cluster.UID)
	a := &Agent{
		state: state, source: source, pinned: pinned, cluster: cluster, configured: cluster, opts: opts.withDefaults(),
		anonymous: anonymous, instance: strings.ToLower(rand.Text()),
		process: process{freezeRest: freeze.Rest, budget: &budget{bytes: opts.MaxManifests}},
		signals: signals{wake: make(chan struct{}, 1)},
	}
	a.pulse, a.passes = metrics.NewPulse(a.opts.Traffic, a.opts.Engines.Deadline, time.Now), newPasses()
	files := a.opts.Content
	files.Window, files.Serving, files.Log = a.enterWindow, a.servingAs(), a.opts.Log
	files.Named = append(slices.Clone(files.Named), artifact.Named, a.namedArtifacts)
	if a.opts.Serve != nil {
		files.Named = append(files.Named, a.namedTrust)
	}
	a.content = content.New(state.db, files)
	a.values = sitevalues.New(state.db, a.content, sitevalues.Options{Source: a.opts.SiteValues, Log: a.opts.Log})
	a.artifacts = artifact.New(state.db, a.content)
	a.carrier, a.intake = a.newCarrier(), a.newKeeper()
	called := a.opts.Engines
	called.Complete = append(slices.Clone(called.Complete), a.values.Complete, a.budget.check, a.serveTo)
	called.Alive, called.Now, called.Log = func() { a.pulse.Live() }, a.opts.Now, a.opts.Log
	a.engines = engines.New(state.db, a.content, called)
	if a.opts.OnCluster.Lease != nil {
		a.lease = lease.New(state.db, a.opts.OnCluster.Lease, a.cluster.Name, a.instance[:8], a.opts.Now)
	}
	a.memory = &clusterMemory{
		store: a.opts.OnCluster.Memory, lease: a.lease, state: state, engines: a.engines, adapters: a.opts.Engines.Reconcilers, onCluster: a.opts.OnCluster.Adapters,
		now: a.opts.Now, log: a.opts.Log,
	}
	return a
}

// enterWindow enters the transfer window; see window.Transfer.Enter.
func (a *Agent) enterWindow(ctx context.Context) (context.Context, func(error) error, error) {
	return a.opts.Window.Enter(ctx, a.opts.Now())
}

// stream is the line of releases that the agent follows.
func (a *Agent) stream() bundle.Stream {
	return bundle.Stream{Platform: a.cluster.Platform, Environment: a.cluster.Environment, ClusterType: a.cluster.Type}
}

// uid is who the cluster is, also where that was found out after others had begun to read it.
func (a *Agent) uid() string {
	if a.anonymous {
		return a.state.who.Identity().UID
	}
	return a.cluster.UID
}

// enter notes the step that begins, for Status; an empty one ends the pass.
func (a *Agent) enter(step string) { a.pulse.Enter(step) }

// nudge puts a token into c if it holds none.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
