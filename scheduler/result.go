package scheduler

import (
	"github.com/opencontainers/go-digest"
)

// Result is an environment, decided and rendered.
type Result struct {
	Environment string
	// Platform is the Platform object's name; empty where there is none.
	Platform string
	// BaseCommit is the commit that Kalypso's tracking file names: that of the BaseRepo called "main".
	BaseCommit string
	// ClusterTypes is sorted by name and holds the types without assignments too.
	ClusterTypes []ClusterTypeResult
	// Warnings holds warnings and notes, sorted by position.
	Warnings []Finding
}

// ClusterTypeResult is one cluster type with all that was decided for it.
type ClusterTypeResult struct {
	Name string
	// Annotations are the cluster type's, for the keys below wherry.dev/.
	Annotations map[string]string
	// Assignments holds what was rendered, sorted by name.
	Assignments []Assignment
	// Failures holds the assignments that could not be rendered, sorted by name. Leaving one out of a
	// bundle would order its deletion, so a type with failures must not be published as it is.
	Failures []Failure
}

// Assignment is one deployment target on one cluster type, rendered.
type Assignment struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name        string
	ClusterType string
	Workspace   string
	Workload    string
	Target      string
	Namespace   string
	// Policies names those that selected the pair, sorted.
	Policies []string
	// Config lists the ConfigMaps that matched, in the order in which they were merged.
	Config []ConfigSource
	// ConfigDigest identifies the composed configuration; empty where there is none.
	ConfigDigest digest.Digest
	// Adapter is the reconciler: chosen by annotation, else inferred from the rendered kinds.
	Adapter string
	// Files are namespace.yaml, platform-config.* and reconciler.yaml, sorted by path. As in Kalypso,
	// namespace.yaml and reconciler.yaml exist even when empty.
	Files []File
}

// File is a rendered file.
type File struct {
	Path string // below the assignment's folder
	Data []byte
}

// ConfigSource is a ConfigMap and where it stands.
type ConfigSource struct {
	Name string
	Position
}

// Failure is an assignment that could not be rendered.
type Failure struct {
	Name        string
	ClusterType string
	// Err names the file and line of the cause.
	Err error
}

// Finding is a warning or a note about the input.
type Finding struct {
	Position
	// Note marks what is only worth knowing, such as a file that holds no object: no reason to be strict.
	Note    bool
	Message string
	Hint    string
}

// Position is a place in the input. The zero value is no place.
type Position struct {
	File string
	Line int
}
