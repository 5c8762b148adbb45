// Package chart renders Helm charts as "helm template" does, without the machine around it.
//
// Begin with [Read] or [ReadFolder], and [Chart.Render]. The same chart, values and options give the same bytes: no cluster is
// asked, no file and no environment variable of the machine is read, no program runs, and a random value or the time that
// reaches the output is an error. What a chart depends on must be in it. Archives and output are bounded; time and memory are
// those of the process, which publisher/sandbox bounds.
//
// Helm's own library reads charts, composes values and executes templates, with a few functions of ours in place of its own:
// those whose results are random, are the time, or are in no order. To name the place of a call that has an effect on the
// output, the templates are executed again with each such call marked.
//
// Charts of HelmReleases stay archives; [Releases] says which ones there are.
package chart

import (
	"errors"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helm "helm.sh/helm/v4/pkg/chart/v2"

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

type file = archive.BufferedFile

// Chart is a chart with all that it depends on. It may be rendered by several goroutines.
type Chart struct {
	files    []*file // with the archives in charts/ unpacked
	metadata helm.Metadata
	folders  []string
}

// Name is the name in Chart.yaml.
func (c *Chart) Name() string { return c.metadata.Name }

// Version is the version in Chart.yaml.
func (c *Chart) Version() string { return c.metadata.Version }

// Folders lists the folders that [ReadFolder] read, sorted: the chart's own, and those of its dependencies of the kind
// file://. It is empty for an archive.
func (c *Chart) Folders() []string { return c.folders }

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
