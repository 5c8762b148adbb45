package store

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Scope restricts which clusters are read. The zero Scope is all of them.
type Scope struct {
	// UIDs chooses clusters by uid; nil means all.
	UIDs                        []string
	Platform, Environment, Type string
	// Workspace, Workload and Assignment choose deployments, and the clusters that have one.
	Workspace, Workload, Assignment string
	// WithoutDeployments leaves ClusterState.Deployments empty.
	WithoutDeployments bool
	// WithRetired includes clusters that were retired.
	WithRetired bool
}

// ClusterState is a registered cluster with its deployments, as of its newest report, or as of a time.
type ClusterState struct {
	Registration
	// Change is the newest change of the feed that the state includes.
	Change Position
	// Newest is the newest report. All below are its values, and zero without one.
	State           bundle.State
	Reason, Message string
	Since           time.Time
	Offered         *bundle.ReportRelease
	Observed        *bundle.ReportRelease
	AgentVersion    string
	Claims          bundle.ReportCluster
	Proof           Proof
	// LastSeen is the time at which the cluster was last known to be alive; see timeline.Present.
	LastSeen time.Time
	// Deployments are those that the newest report lists, by assignment.
	Deployments []Deployment
}

// StateAt returns the state as of now: Unreported before the first report, Stale after three expected intervals of silence,
// and the reported state otherwise.
func (c *ClusterState) StateAt(now time.Time) bundle.State {
	switch {
	case c.LastSeen.IsZero() && c.Newest == (Order{}):
		return Unreported
	case Millis(c.LastSeen) < Millis(now)-3*c.ExpectedInterval.Milliseconds():
		return Stale
	}
	return c.State
}

// Proof is the report from which a state is known.
type Proof struct {
	Report digest.Digest `json:"report,omitempty"` // bundle.ReportID
	At     Order         `json:"-"`
	// OccurredAt is the agent's clock, ReceivedAt the hub's.
	OccurredAt time.Time `json:"occurredAt,omitzero"`
	ReceivedAt time.Time `json:"receivedAt,omitzero"`
	Via        Via       `json:"via,omitempty"`
}

// Deployment is an assignment on a cluster.
type Deployment struct {
	Assignment                               string
	Workspace, Application, Workload, Target string
	Adapter                                  string
	State                                    bundle.State
	Reason, Message                          string
	Since                                    time.Time
	Version, Revision                        string
	ConfigDigest, Content, SiteValues        digest.Digest
	Failures                                 int64
	Floating                                 bool
}

// Past reads whole states, of now and of then.
type Past interface {
	// Scan calls each with the registered clusters that s chooses, by name, as one consistent read. Each may keep what it
	// gets. An error of each ends the scan and is returned.
	Scan(ctx context.Context, s Scope, each func(ClusterState) error) error
	// ScanAt is Scan as of a time: the clusters that were registered then, with the identity and labels of then, and the
	// values of the last report, in order, whose time was not after it. A cluster that was not registered then is there too if
	// it was registered later and a report tells of then; its identity, labels and AddedAt are those of that registration. A report's time is that of the agent's clock, but
	// not later than it was received. Messages are not kept for the past, and keys are those of no time. LastSeen is the time
	// of that report, or when it was received over HTTP if that was not after at either. The error wraps ErrForgotten if
	// retention has removed what it needs.
	ScanAt(ctx context.Context, at time.Time, s Scope, each func(ClusterState) error) error
	// Transitions returns changes, newest first. The identity in a change is that of now. The error wraps ErrInvalid if After
	// is not the Next of a page.
	Transitions(ctx context.Context, f TransitionFilter) (TransitionList, error)
	// Failures calls each with the failures of assignments that the history has since a time, by uid and workspace; of clusters
	// that are registered now and that s chooses by uid, platform, environment and type. It returns the time since which they
	// are counted: from, or the beginning of the history if that is later. An assignment fails when a report has it in the
	// state failed and the one before did not, and as often as its own count has risen by then; failures of which no report ever
	// came count with the next that is seen. Times are those of ScanAt.
	Failures(ctx context.Context, from time.Time, s Scope, each func(Failures) error) (since time.Time, err error)
}

// Failures is how often assignments of a workspace have failed on a cluster.
type Failures struct {
	UID, Workspace string
	Count          int64
}

// TransitionFilter chooses changes. The zero filter chooses all, newest first.
type TransitionFilter struct {
	Scope
	// From and Until bound the time of the change, From included; zero means no bound.
	From, Until time.Time
	// WholeAgent chooses changes of agents as a whole; false, those of assignments. Both chooses both.
	WholeAgent, Both bool
	// First and Last bound the places of the reports, themselves included; the zero Order means no bound. They are for one
	// cluster.
	First, Last Order
	// After continues a list: it is the Next of the page before. Limit zero means DefaultLimit.
	After string
	Limit int
}

// DefaultLimit is the number of rows of a page whose filter has no limit.
const DefaultLimit = 500

// TransitionList is a page of changes.
type TransitionList struct {
	Transitions []Change
	Next        string
}

// Change is a change of one assignment on one cluster, or of an agent as a whole, with what there was before.
type Change struct {
	UID, Cluster, Environment, Type string
	// Assignment is empty for the agent as a whole.
	Assignment                               string
	Workspace, Application, Workload, Target string
	From, To                                 Point
	// Returns is true if it goes back to a version, or else a content, that the assignment had before; for the agent as a
	// whole, to a release.
	Returns bool
	Proof   Proof
}

// Point is one side of a Change. The zero Point is that of an assignment that was not there.
type Point struct {
	State                         bundle.State
	Reason                        string
	Version, Revision             string
	ConfigDigest, Content         digest.Digest
	Failures                      int64
	Release                       digest.Digest // that ran
	BaseCommit, EnvironmentCommit string        // of that release, empty if unknown
}
