// Package reconcilers holds what every way of bringing a cluster or a host to its assignments has in
// common. There is one package per engine below it, and one conformance suite that all of them pass.
//
// A reconciler is handed one verified assignment at a time. It is idempotent and re-entrant: the agent
// may be killed at any point and calls it again with the same, or with newer, content.
//
// To add one, implement Reconciler, give reconcilertest.Run an Adapter that starts the engine, and add the reconciler to
// the table in agent/config. Return failures as Error. An engine that is slow returns Progressing and is observed later; one
// that applies files itself reports the assignment's content digest as its revision. Cases that the engine cannot have are
// declared in Adapter.Without, each with its reason.
package reconcilers

import (
	"context"
	"io/fs"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Reconciler is one engine.
//
// The three calls end when ctx does, and then return the last known state, as Progressing or Failed. An
// error is part of the result: the state tells whether another call can help (Pending, Progressing)
// or not (Failed). Calls come from several goroutines, never two at a time for one assignment.
//
// A Reconciler may also be a Releaser, a Foreteller, a Settler, a Runner and a Fetcher. If it is an io.Closer, it runs
// work between calls: Close, after the last call, ends that work, so that the Reconciler of a later process can
// continue it.
type Reconciler interface {
	// Apply moves the engine toward a. It returns without waiting for slow engines to finish.
	Apply(ctx context.Context, a Assignment) Result
	// Observe returns the state of a, without changing anything. It works without an Apply in this process.
	Observe(ctx context.Context, a Assignment) Result
	// Remove deletes everything that Apply has created for any earlier content of a, and nothing else. State
	// Removed means that it is gone. Only a.Name is sure to be set.
	Remove(ctx context.Context, a Assignment) Result
}

// Releaser is a Reconciler that marks the objects that it applies as the assignment's. Other reconcilers have nothing to
// do for an assignment whose objects stay when it goes.
type Releaser interface {
	// Release removes the marks and keeps everything else, so that another owner can take the objects over.
	// It deletes the ledger's entry, and ends running work. State Removed means that
	// the assignment owns nothing any more. Only a.Name is sure to be set.
	Release(ctx context.Context, a Assignment) Result
}

// Foreteller is a Reconciler that can predict the objects of an Apply. The agent stores the prediction off this machine,
// so that the objects are found again if the machine is lost before the agent can store the result.
type Foreteller interface {
	// Foretell returns the entry, as JSON, that the ledger has while Apply is at work on a. It changes neither
	// the cluster nor the ledger. An error means that Apply could not begin either.
	Foretell(ctx context.Context, a Assignment) ([]byte, error)
}

// Settler is a Reconciler whose engine may call an assignment compliant too early.
type Settler interface {
	// SettleTime returns the default for the time that Compliant has to last before it counts.
	SettleTime() time.Duration
}

// Runner is a Reconciler whose work is done by programs that end with this process.
type Runner interface {
	// Working reports whether any program runs or is about to. Each ends by itself, or at its deadline.
	Working() bool
}

// Fetcher is a Reconciler whose engine fetches the content of assignments with embedded delivery from the agent's endpoint.
// It is handed Assignment.Served. Others take the files as they are.
type Fetcher interface {
	// EmbeddedFiles returns the files of bundle.ManifestsDir that differ in the artifact that the engine fetches, by their
	// path in that folder. Files is the assignment's folder, and the result is a function of the arguments.
	EmbeddedFiles(a bundle.Assignment, files fs.FS) (map[string][]byte, error)
}

// Assignment is one assignment with its files.
type Assignment struct {
	bundle.Assignment
	// Dir is the folder with the assignment's verified files. It belongs to the agent; reconcilers do not write there.
	Dir string
	// Served has the manifests and charts of an assignment with embedded delivery as artifacts at the agent's own
	// endpoint, for engines that fetch. It is nil for other assignments, and if the agent serves nothing.
	Served *Served
	// Values are the site values that the assignment uses, by key, in the form in which texts contain them.
	Values map[string]string
	// ValuesDigest identifies Values; empty if there are none.
	ValuesDigest digest.Digest
}

// Desired identifies all inputs: the assignment's own, and the values. See bundle.Assignment.Desired.
func (a Assignment) Desired() digest.Digest { return a.DesiredWith(a.ValuesDigest) }

// Files identifies the files together with the values; it is Content if there are no values.
func (a Assignment) Files() digest.Digest {
	if a.ValuesDigest == "" {
		return a.Content
	}
	return digest.FromString(a.Content.String() + "\nvalues " + a.ValuesDigest.String())
}

// Served is the content of one assignment at the agent's endpoint.
type Served struct {
	// Err tells why there is no artifact, for example since the disk is full. The other fields are empty then.
	Err error
	// Host is HOST:PORT of the endpoint as the engine reaches it.
	Host string
	// CA has the certificates, in PEM, by which the endpoint is verified; nil if the system's are sufficient.
	CA []byte
	// Plain means HTTP without TLS.
	Plain bool
	// Manifests is the artifact of the folder bundle.ManifestsDir: one layer, a tar+gzip whose root is that folder.
	Manifests ServedArtifact
	// Charts are the charts in bundle.ChartsDir, as Helm stores charts in registries, by file name.
	Charts map[string]ServedArtifact
}

// ServedArtifact is an OCI artifact by its digest.
type ServedArtifact struct {
	Repository string // without the host
	Digest     digest.Digest
}

// Result is the state of an assignment after a call.
type Result struct {
	State bundle.State
	// Reason is a code in CamelCase, such as Conflict; empty if the state needs no explanation.
	Reason string
	// Fault tells who can fix a failure. It is set if State is Failed, and empty otherwise.
	Fault Fault
	// Message is for people and at most bundle.MaxMessageBytes long.
	Message string
	// Revision is the applied revision in the engine's terms; for engines that apply the files themselves, the
	// assignment's content digest.
	Revision string
	// Floating is true if Revision follows a branch or a tag.
	Floating bool
	// Changes lists what this call changed, in the order of the changes.
	Changes []Change
}

// Action is the outcome for one object.
type Action string

// The actions of an engine.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
	Kept       Action = "kept"
)

// Change is one object or file and its Action.
type Change struct {
	Object string // such as ConfigMap/shop/platform-config, or a path
	Action Action
}

// Failure returns a Failed result that another release could fix, with a message cut to the permitted length.
func Failure(reason string, err error) Result {
	return (&Error{Reason: reason, Fault: FaultRelease, Err: err}).Result()
}

// Waiting returns a Pending result: the cause lies outside the assignment, and trying again can help.
func Waiting(reason string, err error) Result {
	return (&Error{Reason: reason, Err: err}).Result()
}

// ReasonInterrupted is the reason of calls that ended because their context did.
const ReasonInterrupted = "Interrupted"

// Interrupted returns the result of a call that its context ended. The next call continues the work.
func Interrupted(err error) Result {
	return Result{State: bundle.Progressing, Reason: ReasonInterrupted, Message: Clip(err.Error())}
}

// Clip is bundle.Clip.
func Clip(s string) string { return bundle.Clip(s) }

// Ledger stores, for each assignment, an entry with the objects that a reconciler has put on the cluster, so that they can
// be found again after a crash. An empty entry means none: Load returns one for an unknown assignment, and saving one
// deletes. An entry is durable when Save returns nil.
type Ledger interface {
	Load(assignment string) ([]byte, error)
	Save(assignment string, entry []byte) error
}
