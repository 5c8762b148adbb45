// Package chart renders Helm charts as "helm template" does, without the machine around it.
//
// Begin with [Read] or [ReadFolder], and [Chart.Render]. The same chart, values and options give the same bytes: no cluster is
// asked, no file and no environment variable of the machine is read, no program runs, and a random value or the time that
// reaches the output is an error. What a chart depends on must be in it. Archives, time, steps and output are bounded.
//
// Charts of HelmReleases stay archives; [Releases] says which ones there are.
package chart

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// Errors to test for. The message has the template, or the file.
var (
	// ErrTooLarge is wrapped where an archive, or what is rendered, exceeds a bound.
	ErrTooLarge = errors.New("too large")
	// ErrTooSlow is wrapped where rendering takes longer than Options.MaxTime.
	ErrTooSlow = errors.New("takes too long")
	// ErrNotReproducible is wrapped where a random value, a new key or the time would be in the output.
	ErrNotReproducible = errors.New("not reproducible")
	// ErrCapabilities is wrapped where a chart reads .Capabilities, and Options.KubeVersion is empty.
	ErrCapabilities = errors.New("the chart reads .Capabilities")
)

// Chart is a chart with all that it depends on.
type Chart struct{}

// Read reads a chart's archive, a .tgz. A link, a path that leads out of the chart, or an archive of more than 20 MiB packed,
// 100 MiB unpacked, or 5,000 files is an error.
func Read(archive io.Reader) (*Chart, error) { return nil, errors.ErrUnsupported }

// ReadFolder reads a chart from a folder of files, with the bounds of [Read]. It honours .helmignore.
func ReadFolder(files fs.FS, dir string) (*Chart, error) { return nil, errors.ErrUnsupported }

// Name is the name in Chart.yaml.
func (c *Chart) Name() string { return "" }

// Version is the version in Chart.yaml.
func (c *Chart) Version() string { return "" }

// Options are what a chart is rendered with, beside itself.
type Options struct {
	// ReleaseName and Namespace are .Release.Name, which must not be empty, and .Release.Namespace, "default" if empty.
	ReleaseName, Namespace string
	// Values go over those of the chart, as with helm template --values. See [ParseValues], [MergeValues] and [SetValue].
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

	// MaxBytes bounds the output. Zero means 16 MiB.
	MaxBytes int
	// MaxTime bounds the rendering. Zero means 30 seconds.
	MaxTime time.Duration
}

// Result is what a chart renders to.
type Result struct {
	// Files are those of crds/ first, then one for each template that gives objects, in Helm's order.
	Files []File
	// Hooks are objects that Helm would run at a moment of its own. Those for tests are left out.
	Hooks []Hook
}

// File is a rendered template, or a file of crds/.
type File struct {
	// Path is relative to the chart, such as "templates/service.yaml" or "charts/redis/templates/service.yaml".
	Path string
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

// Render renders the templates of c. Errors name the template and its line, and what to do.
func (c *Chart) Render(ctx context.Context, opts Options) (*Result, error) {
	return nil, errors.ErrUnsupported
}

// ParseValues reads a file of values.
func ParseValues(data []byte) (map[string]any, error) { return nil, errors.ErrUnsupported }

// MergeValues returns values with over on top, as Helm merges a later --values file: maps are merged, all else is replaced,
// and null removes a key. It changes neither.
func MergeValues(values, over map[string]any) map[string]any { return nil }

// SetValue sets one value by a path such as "a.b[0].c" in values, as helm's --set does, or --set-string with asText.
func SetValue(values map[string]any, path, value string, asText bool) error {
	return errors.ErrUnsupported
}
