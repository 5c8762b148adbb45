// Package fleet answers questions about a fleet: what runs where, since when, against which commit, and how that is known.
//
// Begin with Query, and with Answers for what can be asked. Rows are of now, or of a moment in the past with Query.AsOf;
// both are chosen, sorted, counted and paged by the same code.
//
// Silence is never compliance and never failure: a cluster that has not been heard of for three of its expected intervals is
// stale, whatever it said last, and each answer has the age of its proof and the way by which that came.
//
// A Fleet keeps the present of all clusters in memory and follows the feed of its store; begin with Open. A View is what
// one may see of it, and has the answers. Memory is bounded by the fleet: a deployment takes 48 bytes, texts are kept once,
// and more messages than some stay in the database.
package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Query chooses rows. All that is set has to hold; the zero Query chooses all.
type Query struct {
	// Selector is a label selector in kubectl's form, such as "region=east,gpu!=true", of the labels as registered.
	Selector string
	// Cluster is the name or uid of one cluster.
	Cluster string
	// Environments are names; none means all.
	Environments                                      []string
	Platform, Type, Ring                              string
	Workspace, Application, Workload, Target, Adapter string
	Version                                           string
	Commit                                            string        // of the platform or of its environment, or the beginning of it with at least 7 digits
	ConfigDigest, Content, Release                    digest.Digest // the beginning of the hexadecimal digits is enough, at least 7
	Image                                             string        // a reference, a repository, or a digest
	State                                             []bundle.State
	Relation                                          []Relation
	// SilentFor chooses clusters whose last word is at least that old; zero means any.
	SilentFor time.Duration
	// AsOf is the moment that is asked about; the zero time means now.
	AsOf time.Time
	// Sort names a field of the rows, one of ClusterSorts or DeploymentSorts, with "-" before it for the reverse; empty is
	// the order of the kind of rows. Rows that are equal in it are in that order.
	Sort string
	// After continues a list: it is the Next of the page before. Limit zero means all.
	After string
	Limit int
}

// ofEnvironment reports whether q chooses an environment.
func (q Query) ofEnvironment(name string) bool {
	return len(q.Environments) == 0 || slices.Contains(q.Environments, name)
}

// onlyEnvironment returns the one environment that q chooses; empty if there may be several.
func (q Query) onlyEnvironment() string {
	if len(q.Environments) == 1 {
		return q.Environments[0]
	}
	return ""
}

// mayHaveSlip reports whether the names of q have to be checked, by the number of rows that it has chosen: no row, or rows of one of
// several environments, would hide a slip.
func (q Query) mayHaveSlip(rows int) bool { return rows == 0 || len(q.Environments) > 1 }

// ClusterSorts and DeploymentSorts are the fields that rows can be sorted by. "state" has the worst first, see Severity;
// "lastSeen" the longest silent first, and before these what was never heard of; "since" the oldest first; "behind" those
// that are the most releases behind first, "failures" those that failed most often, "deployments" the clusters with the most;
// "release" is by sequence. "label:KEY" sorts by the value of a label.
var (
	ClusterSorts = []string{
		"name", "state", "environment", "type", "ring", "lastSeen", "since", "behind",
		"uid", "platform", "reason", "relation", "release", "commit", "agentVersion", "deployments",
	}
	DeploymentSorts = []string{
		"cluster", "assignment", "workspace", "workload", "version", "state", "lastSeen", "since",
		"application", "target", "adapter", "environment", "type", "ring", "reason", "config", "content", "failures", "release", "commit",
	}
)

// Severity returns the place of a state among all states, the worst first. States that are not known come before the
// compliant one.
func Severity(s bundle.State) int {
	if i := slices.Index(bySeverity, s); i >= 0 {
		return i
	}
	return len(bySeverity) - 2
}

// bySeverity is all states, the worst first: what is broken, what nobody knows, what goes on.
var bySeverity = []bundle.State{
	bundle.Failed, bundle.Rejected, bundle.Drifted, store.Stale, store.Unreported, bundle.Suspended, bundle.Pending,
	bundle.Pulling, bundle.Verifying, bundle.Applying, bundle.Progressing, bundle.Removed, bundle.Compliant,
}

// Relation compares the release that a cluster runs with those published for it.
type Relation string

// The relations. They are unknown, and absent from rows, for clusters whose environment's records the hub does not follow.
const (
	// Current means that it runs what it should run: that release, or another one with the same content.
	Current Relation = "current"
	// Behind means that it runs an older release of its stream, with other content.
	Behind Relation = "behind"
	// Ahead means that it runs a newer release than it should run, such as one of a narrower ring.
	Ahead Relation = "ahead"
	// Foreign means that it runs a release that was never published here, or not for its cluster type.
	Foreign Relation = "foreign"
	// Nothing means that it runs no release.
	Nothing Relation = "nothing"
)

// Relations lists every relation.
func Relations() []Relation { return []Relation{Current, Behind, Ahead, Foreign, Nothing} }

// Desired is what a cluster should run, and how far it is from that.
type Desired struct {
	Release  *bundle.ReportRelease `json:"release,omitempty"` // the release that it should run
	Relation Relation              `json:"relation"`
	// Behind counts the releases of its stream and ring after the one that runs, up to the desired one, but for those that
	// have the content of the one before them. BehindSince is when the first of them was issued.
	Behind      int       `json:"behind,omitempty"`
	BehindSince time.Time `json:"behindSince,omitzero"`
}

// Cluster is a row about a cluster.
type Cluster struct {
	store.ClusterStatus
	// Desired is nil if the hub does not follow what is published for it.
	Desired     *Desired    `json:"desired,omitempty"`
	Proof       store.Proof `json:"proof,omitzero"`
	Deployments int         `json:"deployments"`
	// Reporting is store.NotReporting for a cluster that is registered as sending no reports, and empty for others.
	Reporting string `json:"reporting,omitempty"`
	// KeyIDs names the keys in force, ExpectedSeconds is the longest usual time between two reports, AddedAt the time of
	// registration.
	KeyIDs          []string  `json:"keyIDs,omitempty"`
	ExpectedSeconds int64     `json:"expectedSeconds,omitempty"`
	AddedAt         time.Time `json:"addedAt,omitzero"`
	// ProofAgeSeconds is the age of the cluster's last word at the moment that is asked about; absent without one.
	ProofAgeSeconds int64 `json:"proofAgeSeconds,omitempty"`
}

// Clusters is a page of clusters, by name.
type Clusters struct {
	// AsOf is the moment of the rows; zero for now. ReadAt is zero but while the hub cannot read its database: then the
	// answer is from its memory, as of that time.
	AsOf     time.Time `json:"asOf,omitzero"`
	ReadAt   time.Time `json:"readAt,omitzero"`
	Totals   Totals    `json:"totals"`
	Clusters []Cluster `json:"clusters"`
	Next     string    `json:"next,omitempty"`
}

// Totals counts all rows that a query chooses, not only those of its page, by state.
type Totals struct {
	Count  int                  `json:"count"`
	States map[bundle.State]int `json:"states"`
	// Relations is empty for deployments.
	Relations map[Relation]int `json:"relations,omitempty"`
}

// Deployment is a row about an assignment on a cluster.
type Deployment struct {
	store.DeploymentStatus
	Application string `json:"application,omitempty"`
	Ring        string `json:"ring,omitempty"`
	// BaseCommit and EnvironmentCommit are of the release that runs.
	BaseCommit        string `json:"baseCommit,omitempty"`
	EnvironmentCommit string `json:"environmentCommit,omitempty"`
	// Desired is the content that the assignment should have; empty if that is unknown, or the assignment should not
	// be there.
	Desired         digest.Digest `json:"desired,omitempty"`
	Proof           store.Proof   `json:"proof,omitzero"`
	ProofAgeSeconds int64         `json:"proofAgeSeconds,omitempty"`
}

// Deployments is a page of deployments, by cluster and assignment.
type Deployments struct {
	AsOf        time.Time    `json:"asOf,omitzero"`
	ReadAt      time.Time    `json:"readAt,omitzero"` // see Clusters
	Totals      Totals       `json:"totals"`
	Deployments []Deployment `json:"deployments"`
	Next        string       `json:"next,omitempty"`
}

// Counts is how many rows there are by up to four dimensions, such as environment and state, by those.
type Counts struct {
	AsOf   time.Time `json:"asOf,omitzero"`
	ReadAt time.Time `json:"readAt,omitzero"` // see Clusters
	// Of is "clusters" or "deployments".
	Of   string   `json:"of"`
	By   []string `json:"by"`
	Rows []Count  `json:"rows"`
}

// Count is one number.
type Count struct {
	// Values are in the order of Counts.By.
	Values []string `json:"values"`
	Count  int      `json:"count"`
}

// Release is a row about a published release, or one that runs and was never published here.
type Release struct {
	bundle.ReportRelease
	Platform          string    `json:"platform"`
	Environment       string    `json:"environment"`
	Type              string    `json:"type"`
	Rings             []string  `json:"rings,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	Message           string    `json:"message,omitempty"`
	ExpiresAt         time.Time `json:"expiresAt,omitzero"`
	KeyIDs            []string  `json:"keyIDs,omitempty"`
	// Foreign is true if it was never published here.
	Foreign bool `json:"foreign,omitempty"`
	// Current is true while an environment record names it as the newest of its stream or of a ring.
	Current bool `json:"current,omitempty"`
	// Clusters counts the clusters that should run it; Compliant, Failed, Progressing, Unknown are those of them that
	// run it, or another one with its content, by state, and Waiting those that are known to run other content. Unknown are the
	// silent ones.
	Clusters    int `json:"clusters"`
	Compliant   int `json:"compliant"`
	Progressing int `json:"progressing"`
	Failed      int `json:"failed"`
	Waiting     int `json:"waiting"`
	Unknown     int `json:"unknown"`
	// Running counts the clusters that run it, desired or not.
	Running int `json:"running"`
}

// Releases is a page of releases, newest first.
type Releases struct {
	// Count is the number of all releases that the query chooses.
	Count    int       `json:"count"`
	Releases []Release `json:"releases"`
	Next     string    `json:"next,omitempty"`
}

// Environment is a row about an environment.
type Environment struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	// Record is the digest of the newest environment record; empty if the hub follows none.
	Record            digest.Digest `json:"record,omitempty"`
	BaseCommit        string        `json:"baseCommit,omitempty"`
	EnvironmentCommit string        `json:"environmentCommit,omitempty"`
	IssuedAt          time.Time     `json:"issuedAt,omitzero"`
	// Since is when the environment got the commit that it has: records are made again for other reasons.
	Since time.Time `json:"since,omitzero"`
	// PreviousCommit is the one that it had before; empty for the first.
	PreviousCommit string   `json:"previousCommit,omitempty"`
	Incomplete     []string `json:"incomplete,omitempty"`
	Types          int      `json:"types"`
	Totals         Totals   `json:"totals"`
	// Judged is what a judge has posted about it, in the present; nil if nobody has, and for a scope with a part of the environment.
	Judged *Judged `json:"judged,omitempty"`
}

// Judged is what a judge has posted about an environment.
type Judged struct {
	JudgedAt time.Time `json:"judgedAt"`
	NextLook time.Time `json:"nextLook"`
	Version  string    `json:"version,omitempty"`
	// Old is true if nobody has judged for two looks.
	Old bool `json:"old,omitempty"`
	// Place is that in the chain, 1 for the first environment.
	Place int `json:"place"`
	store.JudgedEnvironment
}

// Gate returns the gate of the environment, or of a ring; nil if nothing is said of it.
func (j *Judged) Gate(ring string) *store.JudgedGate {
	if j == nil {
		return nil
	}
	for i := range j.Gates {
		if j.Gates[i].Ring == ring {
			return &j.Gates[i]
		}
	}
	return nil
}

// Environments is all environments, by platform, and within one in the order of its chain, as a judge has posted it. If nobody has, an environment
// comes after those that had its commits before it, and those of which nothing tells the order are by name.
type Environments struct {
	Environments []Environment `json:"environments"`
}

// Before returns the environment before one in the chain of its platform, as far as the hub knows that; empty for the first, and for one that is
// not there.
func (e Environments) Before(platform, environment string) string {
	at := slices.IndexFunc(e.Environments, func(c Environment) bool { return c.Platform == platform && c.Environment == environment })
	if at < 1 || e.Environments[at-1].Platform != platform || e.Environments[at-1].Record == "" {
		return ""
	}
	if this, before := e.Environments[at].Judged, e.Environments[at-1].Judged; this != nil && (before == nil || before.Place != this.Place-1) { // the one between is out of sight
		return ""
	}
	return e.Environments[at-1].Environment
}

// RolloutQuery chooses the clusters of a rollout, and says what counts. The zero value is as the hub itself sees it.
type RolloutQuery struct {
	Query
	// Rings are the rings whose clusters count, the narrowest first; nil means all. A cluster has to run the content that the last of them has, or
	// later content: that may change without a new commit. Query.Ring is for one, and not for both.
	Rings []string
	// RegisteredBefore leaves out clusters that were registered at that time or later; they are counted in Rollout.Later.
	// Retired ones never count. The zero time means all.
	RegisteredBefore time.Time
	// MaxReportAge is the age above which a cluster's last word does not count: it is unknown then. Zero means three of its
	// own expected intervals, which do not matter otherwise.
	MaxReportAge time.Duration
	// FailuresSince has Rollout.Failures counted since that time, from the database. The zero time means that they are not
	// counted. It is not for AsOf.
	FailuresSince time.Time
}

// Rollout is how far the clusters of an environment are with a commit of the platform.
type Rollout struct {
	AsOf        time.Time `json:"asOf,omitzero"`
	ReadAt      time.Time `json:"readAt,omitzero"` // see Clusters
	Environment string    `json:"environment"`
	Commit      string    `json:"commit"` // all of it
	// Done is true if all clusters are compliant with the commit. Failed means that it will not become so by waiting alone.
	Done   bool `json:"done"`
	Failed bool `json:"failed"`
	// Followed is true if the hub knows what is published in the environment, and Published if a record with the commit is
	// among that.
	Followed    bool   `json:"followed"`
	Published   bool   `json:"published"`
	Why         string `json:"why,omitempty"` // not Done, for people
	Clusters    int    `json:"clusters"`
	Compliant   int    `json:"compliant"`
	Progressing int    `json:"progressing"`
	FailedCount int    `json:"failedClusters"`
	Waiting     int    `json:"waiting"`
	Unknown     int    `json:"unknown"`
	// Reached is the same of the clusters that should have the commit by now. The others are in rings that it has not reached.
	Reached RolloutCounts `json:"reached"`
	// NotReporting counts clusters that are registered as sending no reports, and Later those that were registered after
	// RolloutQuery.RegisteredBefore. Neither are in the numbers above.
	NotReporting int `json:"notReporting"`
	Later        int `json:"later"`
	// Quarantined counts clusters whose newest report, however old, says that a release with the commit is in quarantine there.
	Quarantined int `json:"quarantined"`
	// Failures is how often assignments of the clusters have failed since FailuresSince, which is the time that was asked for, or
	// the beginning of the hub's history if that is later; zero if nobody asked. See store.Past.
	Failures      int64     `json:"failures"`
	FailuresSince time.Time `json:"failuresSince,omitzero"`
	// OldestProofSeconds is the age of the oldest proof among the compliant ones.
	OldestProofSeconds int64 `json:"oldestProofSeconds,omitempty"`
	// Open are the clusters that are not compliant with it, worst first, at most the query's limit.
	Open []OpenCluster `json:"open"`
	// Types are the cluster types of the environment, by name.
	Types []TypeRollout `json:"types"`
	// Rings are the rings of the clusters, the narrowest first, and last the clusters without one; empty without rings.
	Rings []RingRollout `json:"rings,omitempty"`
}

// OpenCluster is a cluster that is not compliant with a commit.
type OpenCluster struct {
	UID       string       `json:"uid"`
	Cluster   string       `json:"cluster"`
	Type      string       `json:"type"`
	Ring      string       `json:"ring,omitempty"`
	State     bundle.State `json:"state"`
	LastState bundle.State `json:"lastState,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Message   string       `json:"message,omitempty"`
	// Verdict is progressing, failed, waiting or unknown.
	Verdict  string    `json:"verdict"`
	Release  string    `json:"release,omitempty"` // that runs, as people call it
	LastSeen time.Time `json:"lastSeen,omitzero"`
	Via      store.Via `json:"via,omitempty"`
}

// TypeRollout is how far the clusters of a type are with a commit.
type TypeRollout struct {
	Type string `json:"type"`
	// Release is the release of the type at that commit; empty if there is none, such as where it failed.
	Release    string `json:"release,omitempty"`
	Incomplete bool   `json:"incomplete,omitempty"`
	RolloutCounts
}

// RingRollout is how far the clusters of a ring are with a commit.
type RingRollout struct {
	Ring string `json:"ring"` // empty for clusters without one
	// Reached is true if a cluster of the ring should have the commit by now.
	Reached bool `json:"reached"`
	RolloutCounts
}

// RolloutCounts is how many clusters there are, and the verdicts on them.
type RolloutCounts struct {
	Clusters    int `json:"clusters"`
	Compliant   int `json:"compliant"`
	Progressing int `json:"progressing"`
	Failed      int `json:"failed"`
	Waiting     int `json:"waiting"`
	Unknown     int `json:"unknown"`
}

// Shown returns the counts that tell people how far a commit is, those of Reached, and how many clusters are in rings that it has not
// reached. It is all clusters if it has reached none.
func (r *Rollout) Shown() (counts RolloutCounts, beyond int) {
	if r.Reached.Clusters == 0 {
		return RolloutCounts{r.Clusters, r.Compliant, r.Progressing, r.FailedCount, r.Waiting, r.Unknown}, 0
	}
	return r.Reached, r.Clusters - r.Reached.Clusters
}

// Side is one side of a comparison.
type Side struct {
	Query
	// Name is as people called it.
	Name string
}

// CompareOptions say how two sides are compared. The zero value compares everything and answers with everything.
type CompareOptions struct {
	// OnlyDiff leaves out what is the same on both sides.
	OnlyDiff bool
	// Ignore names what is not compared, of Comparable. The content of an assignment has its version and its configuration in it, so
	// content is not compared either where one of these is not.
	Ignore []string
}

// Comparison is what differs between two parts of the fleet, or two moments, by workload and target.
type Comparison struct {
	ReadAt time.Time       `json:"readAt,omitzero"` // see Clusters
	Left   string          `json:"left"`
	Right  string          `json:"right"`
	Same   int             `json:"same"`
	Rows   []ComparisonRow `json:"rows"`
}

// ComparisonRow is one deployment target.
type ComparisonRow struct {
	Workspace string `json:"workspace,omitempty"`
	Workload  string `json:"workload"`
	Target    string `json:"target"`
	// RightTarget is the target of the right side, if the workload has one target that is on the left side alone and one that
	// is on the right side alone; empty otherwise.
	RightTarget string `json:"rightTarget,omitempty"`
	// Differs names what differs: "missing left", "missing right", "version", "config", "content" or "state".
	Differs []string `json:"differs,omitempty"`
	// Left and Right have an entry for each combination of version, configuration and content, the most frequent first.
	Left  []Variant `json:"left"`
	Right []Variant `json:"right"`
}

// Variant is what some clusters run of a deployment target.
type Variant struct {
	Version      string        `json:"version,omitempty"`
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	Content      digest.Digest `json:"content,omitempty"`
	Clusters     int           `json:"clusters"`
	Compliant    int           `json:"compliant"`
}

// Drift is a deployment, or a cluster, that is not in its desired state.
type Drift struct {
	UID        string `json:"uid"`
	Cluster    string `json:"cluster"`
	Type       string `json:"type"`
	Assignment string `json:"assignment,omitempty"`
	// Kind is drifted (its reconciler says so), content, missing, extra, behind, foreign.
	Kind    string       `json:"kind"`
	State   bundle.State `json:"state"`
	Desired string       `json:"desired,omitempty"`
	Running string       `json:"running,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	Message string       `json:"message,omitempty"`
}

// Drifts is all drift that a query chooses, by cluster.
type Drifts struct {
	AsOf   time.Time      `json:"asOf,omitzero"`
	Kinds  map[string]int `json:"kinds"`
	Drifts []Drift        `json:"drifts"`
	Next   string         `json:"next,omitempty"`
}

// HistoryQuery chooses changes: of a workload, or of a cluster.
type HistoryQuery struct {
	Query
	From, Until time.Time
}

// History is changes, newest first.
type History struct {
	Changes []HistoryRow `json:"changes"`
	Next    string       `json:"next,omitempty"`
}

// HistoryRow is a change.
type HistoryRow struct {
	At          time.Time `json:"at"`
	UID         string    `json:"uid"`
	Cluster     string    `json:"cluster"`
	Environment string    `json:"environment"`
	Type        string    `json:"type"`
	Assignment  string    `json:"assignment,omitempty"` // empty for the agent as a whole
	Workspace   string    `json:"workspace,omitempty"`
	Application string    `json:"application,omitempty"`
	Workload    string    `json:"workload,omitempty"`
	Target      string    `json:"target,omitempty"`
	// What names what changed: state, version, config, content, release, removed, added.
	What       []string      `json:"what"`
	From       HistoryPoint  `json:"from,omitzero"`
	To         HistoryPoint  `json:"to"`
	Rollback   bool          `json:"rollback,omitempty"` // to a release, or a version, that ran there before
	ReceivedAt time.Time     `json:"receivedAt"`
	Via        store.Via     `json:"via"`
	Report     digest.Digest `json:"report"`
}

// HistoryPoint is one side of a change.
type HistoryPoint struct {
	State             bundle.State  `json:"state,omitempty"`
	Reason            string        `json:"reason,omitempty"`
	Version           string        `json:"version,omitempty"`
	ConfigDigest      digest.Digest `json:"configDigest,omitempty"`
	Content           digest.Digest `json:"content,omitempty"`
	Release           digest.Digest `json:"release,omitempty"`
	ReleaseName       string        `json:"releaseName,omitempty"`
	BaseCommit        string        `json:"baseCommit,omitempty"`
	EnvironmentCommit string        `json:"environmentCommit,omitempty"`
}

// Reports is a page of the stored reports of a cluster, newest first.
type Reports struct {
	Cluster string   `json:"cluster"`
	UID     string   `json:"uid"`
	Reports []Report `json:"reports"`
	Next    string   `json:"next,omitempty"`
}

// Report is a row about a stored report.
type Report struct {
	// Name is bundle.ReportTag, by which the report is asked for.
	Name       string        `json:"name"`
	ID         digest.Digest `json:"id"`
	Kind       string        `json:"kind"`
	OccurredAt time.Time     `json:"occurredAt"`
	ReceivedAt time.Time     `json:"receivedAt"`
	Via        store.Via     `json:"via"`
	KeyID      string        `json:"keyID"`
	Kept       bool          `json:"kept"` // its envelope is stored
}

// ReportDetail is a stored report with its body, and the verdict on its signature as of now.
type ReportDetail struct {
	Report
	Body bundle.Report `json:"body"`
	// Signature is "good", "previous" (by a key that was replaced later), "revoked" or "bad".
	Signature string `json:"signature"`
	// Envelope is the signed bytes.
	Envelope []byte `json:"envelope"`
}

// Event is a change in the fleet, for those who follow it.
type Event struct {
	// ID is where to go on after it.
	ID   store.Position `json:"id"`
	At   time.Time      `json:"at"`
	Kind string         `json:"kind"` // change, cluster, published or decision
	// Change is set for changes, one event each; several may have the same ID.
	Change *HistoryRow `json:"change,omitempty"`
	// More is true if more events of the same ID follow.
	More bool `json:"more,omitempty"`
	// Cluster names the cluster that was registered, changed or retired.
	Cluster     string        `json:"cluster,omitempty"`
	UID         string        `json:"uid,omitempty"`
	Platform    string        `json:"platform,omitempty"`
	Environment string        `json:"environment,omitempty"`
	Digest      digest.Digest `json:"digest,omitempty"`
	// Decision is set for decisions that are still stored; Digest is that of the envelope.
	Decision *Decided `json:"decision,omitempty"`
}

// Answers is what can be asked. A *View of a *Fleet answers in this process, and hub/client's Client over HTTP. Errors wrap
// store.ErrInvalid for a query that is not acceptable, store.ErrUnknownCluster, store.ErrUnknownRelease, store.ErrUnknownReport,
// store.ErrForgotten, or are an *UnknownNameError.
type Answers interface {
	Clusters(ctx context.Context, q Query) (Clusters, error)
	Deployments(ctx context.Context, q Query) (Deployments, error)
	// Count counts rows of "clusters" or "deployments" by up to MaxDimensions of Dimensions.
	Count(ctx context.Context, of string, by []string, q Query) (Counts, error)
	// Facets counts rows by each of several of Dimensions, or of EachLabel.
	Facets(ctx context.Context, of string, by []string, q Query) (Facets, error)
	// Search finds names in the fleet of now that have a text. The error wraps store.ErrInvalid for fewer than MinSearch letters.
	Search(ctx context.Context, text string) (Found, error)
	Releases(ctx context.Context, q Query) (Releases, error)
	// Release returns one release with the assignments that it has; d may be a beginning, or a number with an environment
	// and a type in q.
	Release(ctx context.Context, name string, q Query) (ReleaseDetail, error)
	Environments(ctx context.Context, q Query) (Environments, error)
	// Candidate returns what an environment of a platform would get from another one, or if ring is not empty what that would get from the ring
	// before it. An empty from is the environment before it. The error wraps store.ErrOutOfScope for a scope with parts of environments,
	// store.ErrUnknownRelease if the hub lacks the record or a release, and store.ErrInvalid if there is nothing to get.
	Candidate(ctx context.Context, platform, from, environment, ring string) (Candidate, error)
	Rollout(ctx context.Context, environment, commit string, q RolloutQuery) (Rollout, error)
	// Content returns how far the clusters of an environment's last ring are with the workloads of a record.
	Content(ctx context.Context, environment string, q ContentQuery) (Content, error)
	Compare(ctx context.Context, left, right Side, o CompareOptions) (Comparison, error)
	Drift(ctx context.Context, q Query) (Drifts, error)
	History(ctx context.Context, q HistoryQuery) (History, error)
	Reports(ctx context.Context, cluster string, q Query) (Reports, error)
	// Report returns one report of a cluster, by its name or id.
	Report(ctx context.Context, cluster, name string) (ReportDetail, error)
	// Events calls each with the events after a position, and goes on until ctx ends or each returns an error. A position of
	// -1 begins with the next event. If q.AsOf is set, whatever it is, Events returns nil after the last event that is stored
	// already.
	Events(ctx context.Context, after store.Position, q Query, each func(Event) error) error
}

// ReleaseDetail is a release with what it has.
type ReleaseDetail struct {
	Release
	// Known is true if the hub has what the release has; it lacks that of one that was never published here.
	Known       bool                `json:"known"`
	Assignments []bundle.Assignment `json:"assignments"`
	Artifacts   []bundle.Artifact   `json:"artifacts"`
}
