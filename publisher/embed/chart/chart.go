// Package chart describes Helm charts: what to render and with which values, and what comes out.
//
// A [Job] is what package publisher/embed/chart/render does, in a child process of publisher/sandbox. Charts of HelmReleases stay
// archives; [Releases] says which ones there are. [ParseValues], [MergeValues] and [SetValue] compose values as Helm does.
package chart

import (
	"errors"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Errors to test for. The message has the template, or the file.
var (
	// ErrTooLarge is wrapped where an archive or the output exceeds a bound.
	ErrTooLarge = errors.New("too large")
	// ErrNotReproducible is wrapped where a random value, a new key or the time would be in the output, or a template asks
	// the cluster or the network.
	ErrNotReproducible = errors.New("not reproducible")
	// ErrCapabilities is wrapped where a chart reads .Capabilities, and Options.KubeVersion is empty.
	ErrCapabilities = errors.New("the chart reads .Capabilities")
)

// Job is a chart to read, and what to do with it.
type Job struct {
	// Archive is a packed chart. If it is nil, the chart is the folder Dir of the source.
	Archive []byte `json:"-"`
	Dir     string `json:"dir"`
	// ValuesFiles are files of the chart that take the place of its values.yaml.
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// Pack asks for [Done.Archive], and Render for [Done.Rendered].
	Pack   bool `json:"pack,omitempty"`
	Render bool `json:"render,omitempty"`
	// Options are those of the rendering. Their values are the lowest: Values go over them in their order, then Parameters.
	Options    Options     `json:"options"`
	Values     []Values    `json:"-"`
	Parameters []Parameter `json:"parameters,omitempty"`
}

// Values are values as YAML or JSON.
type Values struct {
	Text []byte
	// From is where they come from, for messages.
	From string
}

// Parameter is one value, as [SetValue] takes it.
type Parameter struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	AsText bool   `json:"asText,omitempty"`
	From   string `json:"from"`
}

// Done is what a job gives.
type Done struct {
	Name, Version, AppVersion string
	// Folders are the folders of the source that were read.
	Folders []string
	// Archive is the chart as an archive: its own bytes, unless it comes from a folder or has other files of values.
	Archive  []byte
	Rendered *Result
}

// Options are what a chart is rendered with, beside itself.
type Options struct {
	// ReleaseName and Namespace are .Release.Name, which must not be empty, and .Release.Namespace, "default" if empty.
	ReleaseName, Namespace string
	// Values go over those of the chart, as with helm template --values. See [ParseValues], [MergeValues] and [SetValue].
	// They are not changed.
	Values map[string]any
	// KubeVersion is .Capabilities.KubeVersion, such as "1.31" or "v1.31.2". If empty, a chart that reads .Capabilities, or
	// that asks for a version of Kubernetes, is an error wrapping ErrCapabilities.
	KubeVersion string
	// APIVersions are added to Helm's own list of versions and kinds, such as "monitoring.coreos.com/v1/ServiceMonitor".
	APIVersions []string
	// WithoutCRDs leaves out the files of crds/.
	WithoutCRDs bool
	// WithoutSchema does not check the values against values.schema.json.
	WithoutSchema bool
	// KeysOnce refuses a key that an object has twice, as agents do. Helm takes the last one.
	KeysOnce bool

	// MaxBytes bounds the output. Zero means 16 MiB.
	MaxBytes int
}

// Result is what a chart renders to.
type Result struct {
	// Files are those of crds/ first, then one for each template that gives objects, each sorted by path.
	Files []File
	// Notes are about what could not be done as a cluster would: calls of lookup, and parts of schemas that are elsewhere. Their
	// places are in the chart.
	Notes []finding.Finding
	// Hooks are objects that Helm would run at a moment of its own, in the order of Files. Those for tests are left out.
	Hooks []Hook
}

// File is a rendered template, or a file of crds/.
type File struct {
	// Path is relative to the chart, such as "templates/service.yaml" or "charts/redis/templates/service.yaml".
	Path string
	// Data holds the objects, separated by lines of three dashes. What gives no object is left out.
	Data []byte
	// Chart and Version are those of the chart, or of the chart below it, that has the template.
	Chart, Version string
}

// Hook is an object with the annotation helm.sh/hook.
type Hook struct {
	// Path is that of the template, as in File.
	Path       string
	Kind, Name string
	// Events are the hook's moments, such as "pre-install", sorted.
	Events []string
	Weight int
	// Data is the object, with its annotations.
	Data           []byte
	Chart, Version string
}
