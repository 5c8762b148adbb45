package scheduler

import (
	"errors"

	"github.com/opencontainers/go-digest"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Result is an environment, decided and rendered.
type Result struct {
	Environment string
	// Platform is the Platform object's name; empty where there is none.
	Platform string
	// BaseCommit is the commit that Kalypso's tracking file names: that of the BaseRepo called "main".
	BaseCommit string
	// Rings are the environment's, narrowest first; none where none are named.
	Rings []string
	// ClusterTypes is sorted by name and holds the types without assignments too.
	ClusterTypes []ClusterTypeResult
	// FailedPolicies are the scheduling policies with mistakes in their selectors, sorted by name. They assign
	// nothing, so their earlier assignments must stay.
	FailedPolicies []FailedPolicy
	// Accounts are the ServiceAccounts that the Platform gives to workspaces, by workspace: a name, which
	// stands for one in each assignment's namespace, or NAMESPACE/NAME. See [Result.ServiceAccount].
	Accounts map[string]string
	// Warnings holds warnings and notes, sorted by position.
	Warnings []finding.Finding
}

// ClusterTypeResult is one cluster type with its assignments and failures.
type ClusterTypeResult struct {
	Name string
	// Annotations are the cluster type's, for the keys below wherry.dev/.
	Annotations map[string]string
	// Assignments are the rendered assignments, sorted by name.
	Assignments []Assignment
	// Failures holds the assignments that could not be rendered, sorted by name. Leaving one out of a
	// bundle orders its deletion.
	Failures []Failure
}

// Assignment is one deployment target on one cluster type, rendered.
type Assignment struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name        string
	ClusterType string
	Workspace   string
	// Registration is the WorkloadRegistration whose source the workload was found in; empty for the
	// platform's own.
	Registration string
	Workload     string
	Target       string
	Namespace    string
	// ServiceAccount, as NAMESPACE/NAME, is in whose name the objects are applied, where the Platform lists
	// the workspace; else empty.
	ServiceAccount string
	// Policies names those that selected the pair, sorted.
	Policies []string
	// Config lists the ConfigMaps that matched, in the order in which they were merged.
	Config []ConfigSource
	// ConfigDigest identifies the composed configuration; empty where there is none.
	ConfigDigest digest.Digest
	// Adapter is the reconciler: chosen by annotation, else inferred from the rendered kinds.
	Adapter string
	// Settings are further annotations, which the agent follows.
	Settings
	// Manifests says where the target's manifests are, as the Workload has it.
	Manifests map[string]string
	// Version and Application are the workload's own words, Pinned is what names in the files stood for when
	// they were resolved, and Inside is what the manifests name that were found there. The scheduler knows
	// none of them: they are filled in after rendering.
	Version     string
	Application string
	Pinned      []Pinned
	Inside      []Pinned
	// Files are namespace.yaml, platform-config.* and reconciler.yaml, sorted by path. As in Kalypso,
	// namespace.yaml and reconciler.yaml exist even when empty.
	Files []File
}

// Pinned is a reference to an artifact outside of the bundle, and its digest.
type Pinned struct {
	Type, Name, Reference string
	Digest                string // empty where nobody has asked
	Size                  int64  // in bytes; zero where it is not known
}

// File is a rendered file.
type File struct {
	Path string // below the assignment's folder
	Data []byte
}

// ConfigSource is a ConfigMap and where it stands.
type ConfigSource struct {
	Name string
	finding.Position
}

// Failure is an assignment that could not be rendered.
type Failure struct {
	Name        string
	ClusterType string
	Reason      FailureReason
	// Taken is true where another target has the name, whose assignment or failure is in the result as well: what the
	// last release has under this name is not of the one that failed. Registration is then whose it is.
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

// FailureReason is the class of a failure. It holds nothing of the input, so that it can travel in a
// bundle, and does not change with a line that moves.
type FailureReason string

// The reasons for which an assignment fails.
const (
	NameClash      FailureReason = "NameClash"      // two deployment targets have one name
	NameTooLong    FailureReason = "NameTooLong"    // the namespace is no name that Kubernetes takes
	SchemaViolated FailureReason = "SchemaViolated" // the configuration is not what a schema asks for
	TemplateFailed FailureReason = "TemplateFailed" // a template is missing or cannot be evaluated
	BadAnnotation  FailureReason = "BadAnnotation"  // an annotation of wherry's has no such value
	PinFailed      FailureReason = "PinFailed"      // something that it names cannot be resolved
	NoDigest       FailureReason = "NoDigest"       // what the adapter directory is to fetch is not named by digest
	TargetUnknown  FailureReason = "TargetUnknown"  // a decision names it, and no app team's source that could be read
	LimitExceeded  FailureReason = "LimitExceeded"  // its registration brings more than the Platform allows
	RenderFailed   FailureReason = "RenderFailed"   // anything else
)

// because gives err a reason.
func because(reason FailureReason, err error) error { return &reasonedError{reason, err} }

type reasonedError struct {
	reason FailureReason
	error
}

func (e *reasonedError) Unwrap() error { return e.error }

// ReasonOf returns the reason that an error of [Model.Load] has, or else; such as LimitExceeded.
func ReasonOf(err error, otherwise FailureReason) FailureReason {
	var known *reasonedError
	if errors.As(err, &known) {
		return known.reason
	}
	return otherwise
}

// newFailure takes the reason off err.
func newFailure(name, clusterType string, err error) Failure {
	f := Failure{Name: name, ClusterType: clusterType, Reason: RenderFailed, Err: err}
	var known *reasonedError
	if errors.As(err, &known) {
		f.Reason, f.Err = known.reason, known.error
	}
	return f
}
