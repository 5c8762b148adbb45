package scheduler

import (
	"errors"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Result is an environment, decided and rendered.
type Result struct {
	Environment string
	// Platform is the Platform object's name; empty if there is none.
	Platform string
	// BaseCommit is the commit in Kalypso's tracking file: that of the BaseRepo named "main".
	BaseCommit string
	// Rings are the environment's rings, narrowest first; empty if it names none.
	Rings []string
	// ClusterTypes is sorted by name and holds the types without assignments too.
	ClusterTypes []ClusterTypeResult
	// FailedPolicies are the scheduling policies with mistakes in their selectors, sorted by name. They assign
	// nothing, so their earlier assignments must stay.
	FailedPolicies []FailedPolicy
	// Accounts are the ServiceAccounts of workspaces in the Platform, by workspace: a name, which
	// means an account in each assignment's namespace, or NAMESPACE/NAME. See [Result.ServiceAccount].
	Accounts map[string]string
	// Checks are the PlatformChecks of the environment. Those about objects have been evaluated; those about publications
	// are for the publisher.
	Checks *check.Set
	// MaxRemoved bounds what a publication may remove.
	MaxRemoved MaxRemoved
	// Declared has the names of the environment's deployment targets by registration, of which each is a key. It is nil for
	// a decision that was made elsewhere.
	Declared map[string]map[string]bool
	// Workloads are the Workload objects with targets for the environment, sorted by registration and name.
	Workloads []Workload
	// Places are where the workloads of registrations were read from, by registration, "" for the platform's own. The scheduler leaves it
	// empty.
	Places map[string]Place
	// Warnings holds warnings and notes, sorted by position.
	Warnings []finding.Finding
}

// Place is a state of a git repository, or of a folder in it. It is zero for a folder that lies in no repository.
type Place struct {
	// Repo is the URL without credentials, and Ref the branch; Commit is empty for a reference that moves.
	Repo, Ref, Commit string
	// Path is a folder, and ID git's id of that folder; empty if it is not known. If a build read more than the folder, it is the digest
	// of the sorted lines "PATH ID" of all that it read.
	Path, ID string
}

// ClusterTypeResult is one cluster type with its assignments and failures.
type ClusterTypeResult struct {
	Name string
	// Labels are the cluster type's.
	Labels map[string]string
	// Annotations are the cluster type's, for the keys below wherry.dev/.
	Annotations map[string]string
	// Assignments are the rendered assignments, sorted by name.
	Assignments []Assignment
	// Failures holds the assignments that could not be rendered, sorted by name. Leaving one out of a
	// bundle orders its deletion.
	Failures []Failure
	// Sites are the site values; nil if the type declares none.
	Sites *Sites
}

// Assignment is one deployment target on one cluster type, rendered.
type Assignment struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name        string
	ClusterType string
	Workspace   string
	// Registration is the WorkloadRegistration whose source has the workload; empty for the
	// platform's own.
	Registration string
	Workload     string
	Target       string
	Namespace    string
	// ServiceAccount, as NAMESPACE/NAME, is impersonated to apply the objects, if the Platform lists
	// the workspace; else empty.
	ServiceAccount string
	// Policies names the policies that selected the pair, sorted.
	Policies []string
	// Config lists the ConfigMaps that matched, in the order in which they were merged.
	Config []ConfigSource
	// ConfigDigest identifies the composed configuration; empty if there is none.
	ConfigDigest digest.Digest
	// Adapter is the reconciler: chosen by annotation, else inferred from the rendered kinds.
	Adapter string
	// Settings are further annotations, which the agent follows.
	Settings
	// Manifests is the location of the target's manifests, as in the Workload.
	Manifests map[string]string
	// Version and Application are the workload's own values, Pinned holds the resolved references of the files, and
	// Inside the references in the manifests at those places. The scheduler sets none of them: they are filled in
	// after rendering.
	Version     string
	Application string
	Pinned      []Pinned
	Inside      []Pinned
	// Sources are the places that embedded files came from, filled in with them.
	Sources []ContentSource
	// Origin is the place of what the target's manifests name, and Taken are artifacts that embedded files were taken from or that a range
	// of versions came to. Both are filled in with Version, and are for the ledger: no bundle has them.
	Origin Place
	Taken  []Pinned
	// Files are namespace.yaml, platform-config.* and reconciler.yaml, sorted by path. As in Kalypso,
	// namespace.yaml and reconciler.yaml exist even when empty. Embedded files below manifests and charts are added after
	// rendering.
	Files []File
}

// Pinned is a reference to an artifact outside of the bundle, with its digest.
type Pinned struct {
	Type, Name, Reference string
	Digest                string // empty if unknown
	Size                  int64  // in bytes; zero if unknown
	// Version is what a range came to; empty if the reference is no range.
	Version string
}

// ContentSource is a place that embedded files came from; see bundle.ContentSource.
type ContentSource struct {
	Type, Name, Revision, Path, Chart, Version string
	Files                                      []string
}

// File is a rendered file.
type File struct {
	Path string // below the assignment's folder
	Data []byte
}

// ConfigSource is a ConfigMap with its position.
type ConfigSource struct {
	Name string
	finding.Position
}

// Failure is an assignment that could not be rendered.
type Failure struct {
	Name        string
	ClusterType string
	Reason      FailureReason
	// Taken is true if another target has the name, whose assignment or failure is in the result as well: the
	// last release's assignment of that name does not belong to the failed target. Registration is then the
	// failed target's.
	Taken        bool
	Registration string
	// Err names the file and line of the cause.
	Err error
}

// FailedPolicy is a scheduling policy with an unknown field in its selectors. Read without it, a misspelt term would
// select everything.
type FailedPolicy struct {
	Name string
	// Err names the file and line of each unknown field.
	Err error
}

// FailureReason is the class of a failure. It contains no text of the input, so that it can travel in a
// bundle, and does not change when lines move.
type FailureReason string

// The reasons for which an assignment fails.
const (
	NameClash      FailureReason = "NameClash"      // two deployment targets have one name
	NameTooLong    FailureReason = "NameTooLong"    // the namespace is too long for Kubernetes
	SchemaViolated FailureReason = "SchemaViolated" // the configuration violates a schema
	TemplateFailed FailureReason = "TemplateFailed" // a template is missing or cannot be evaluated
	BadAnnotation  FailureReason = "BadAnnotation"  // an annotation of wherry's has an invalid value
	PinFailed      FailureReason = "PinFailed"      // a reference cannot be resolved
	EmbedFailed    FailureReason = "EmbedFailed"    // what its manifests name cannot be put into the bundle
	CarryFailed    FailureReason = "CarryFailed"    // an artifact that agents are to carry has no digest, or is in no registry
	NoDigest       FailureReason = "NoDigest"       // an artifact for the adapter directory has no digest
	TargetUnknown  FailureReason = "TargetUnknown"  // a decision names it, and no readable source of an app team has it
	CheckFailed    FailureReason = "CheckFailed"    // a PlatformCheck refuses an object of it
	LimitExceeded  FailureReason = "LimitExceeded"  // its registration exceeds a limit of the Platform
	RenderFailed   FailureReason = "RenderFailed"   // anything else

	// WorkspaceNotAllowed is the reason of a registration that names a repository, or a workspace, that the Platform does
	// not allow it.
	WorkspaceNotAllowed FailureReason = "WorkspaceNotAllowed"
)

// because returns err with a reason.
func because(reason FailureReason, err error) error { return &reasonedError{reason, err} }

type reasonedError struct {
	reason FailureReason
	error
}

func (e *reasonedError) Unwrap() error { return e.error }

// ReasonOf returns the reason of an error of [Model.Load], such as LimitExceeded, or otherwise if it has none.
func ReasonOf(err error, otherwise FailureReason) FailureReason {
	var known *reasonedError
	if errors.As(err, &known) {
		return known.reason
	}
	return otherwise
}

// newFailure returns the failure with err's reason and cause.
func newFailure(name, clusterType string, err error) Failure {
	f := Failure{Name: name, ClusterType: clusterType, Reason: RenderFailed, Err: err}
	var known *reasonedError
	if errors.As(err, &known) {
		f.Reason, f.Err = known.reason, known.error
	}
	return f
}
