package chart

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Release is a HelmRelease of Flux with the chart that it needs.
type Release struct {
	// Namespace and Name are the HelmRelease's own.
	Namespace, Name string
	// Source is the place of the chart.
	Source Source
	// Values are those of the release, over those of ConfigMaps among the objects that valuesFrom names.
	Values map[string]any
	// ReleaseName and TargetNamespace are .Release.Name and .Release.Namespace of the templates.
	ReleaseName, TargetNamespace string
	// WithoutCRDs is true if helm-controller leaves out crds/.
	WithoutCRDs bool
	// Notes are sentences about parts that were left out, such as values from a Secret. They contain no values.
	Notes []string
	// Err is the reason why the chart is not known, such as a source that is not among the objects; else nil.
	Err error
}

// Source is a place of a chart.
type Source struct {
	// Kind is that of the source: HelmRepository, OCIRepository, GitRepository or Bucket.
	Kind string
	// Namespace and Name are the source's own.
	Namespace, Name string
	// URL is the source's. A HelmRepository of type oci has one that begins with oci://, and the chart's name belongs at its end.
	URL string
	// Chart is the chart's name, or its path in a GitRepository or Bucket. Empty with an OCIRepository.
	Chart string
	// Version is the version or range that is asked for; empty means the newest.
	Version string
	// Tag, Digest and SemVer are those of an OCIRepository's reference.
	Tag, Digest, SemVer string
	// ValuesFiles are files in the chart that stand for its values.yaml.
	ValuesFiles []string
}

// Options returns opts with the release's name, namespace and values, to render its chart for lint and to find images. What
// helm-controller installs can differ by what the Notes say.
func (r *Release) Options(opts Options) Options {
	opts.ReleaseName, opts.Namespace, opts.Values = r.ReleaseName, r.TargetNamespace, r.Values
	opts.WithoutCRDs = opts.WithoutCRDs || r.WithoutCRDs
	return opts
}

// object is a Kubernetes object with the fields that are needed of HelmReleases, their sources and their values.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec       spec              `json:"spec"`
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
}

type reference struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type chartSpec struct {
	Chart       string    `json:"chart"`
	Version     string    `json:"version"`
	SourceRef   reference `json:"sourceRef"`
	ValuesFiles []string  `json:"valuesFiles"`
}

type spec struct {
	// HelmRelease
	Chart           any            `json:"chart"` // a map with spec in a HelmRelease, a name in a HelmChart
	ChartRef        *reference     `json:"chartRef"`
	ReleaseName     string         `json:"releaseName"`
	TargetNamespace string         `json:"targetNamespace"`
	Values          map[string]any `json:"values"`
	ValuesFrom      []valuesFrom   `json:"valuesFrom"`
	Install         struct {
		CRDs     string `json:"crds"`
		SkipCRDs bool   `json:"skipCRDs"`
	} `json:"install"`
	PostRenderers []any `json:"postRenderers"`
	// HelmChart
	Version     string    `json:"version"`
	SourceRef   reference `json:"sourceRef"`
	ValuesFiles []string  `json:"valuesFiles"`
	// sources
	URL      string `json:"url"`
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	Ref      struct {
		Tag    string `json:"tag"`
		Digest string `json:"digest"`
		SemVer string `json:"semver"`
	} `json:"ref"`
}

type valuesFrom struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	ValuesKey  string `json:"valuesKey"`
	TargetPath string `json:"targetPath"`
	Optional   bool   `json:"optional"`
}

const (
	helmGroup   = "helm.toolkit.fluxcd.io/"
	sourceGroup = "source.toolkit.fluxcd.io/"
)

// Releases lists the HelmReleases among objects, in their order, with their charts. It asks nobody, and changes no object.
func Releases(objects []map[string]any) []Release {
	var all []object
	for _, o := range objects {
		version, _ := o["apiVersion"].(string)
		kind, _ := o["kind"].(string)
		if !strings.HasPrefix(version, helmGroup) && !strings.HasPrefix(version, sourceGroup) && (version != "v1" || kind != "ConfigMap") {
			continue
		}
		var read object
		if data, err := yaml.Marshal(o); err == nil && yaml.Unmarshal(data, &read) == nil {
			all = append(all, read)
		}
	}
	var found []Release
	for i := range all {
		if o := &all[i]; o.Kind == "HelmRelease" && strings.HasPrefix(o.APIVersion, helmGroup) {
			found = append(found, all[i].release(all))
		}
	}
	return found
}

// release finds the chart and the values of a HelmRelease among objects.
func (o *object) release(all []object) Release {
	r := Release{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, TargetNamespace: cmp.Or(o.Spec.TargetNamespace, o.Metadata.Namespace, "default")}
	r.ReleaseName = cmp.Or(o.Spec.ReleaseName, releaseName(o.Spec.TargetNamespace, o.Metadata.Name))
	r.WithoutCRDs = o.Spec.Install.SkipCRDs || o.Spec.Install.CRDs == "Skip"
	if len(o.Spec.PostRenderers) > 0 {
		r.Notes = append(r.Notes, "postRenderers change the objects on the cluster, and are left out here")
	}
	r.Source, r.Err = o.source(all)
	if r.Err != nil {
		r.Err = fmt.Errorf("HelmRelease %s: %w", joined(r.Namespace, r.Name), r.Err)
	}
	o.values(all, &r)
	return r
}

// releaseName is helm-controller's default, cut to the length that Helm allows.
func releaseName(targetNamespace, name string) string {
	const most = 53
	if targetNamespace != "" {
		name = targetNamespace + "-" + name
	}
	return name[:min(len(name), most)]
}

func joined(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// find returns the object that ref names. Without namespaces, as they are before an engine sets one, the name is enough.
func find(all []object, ref reference, from string) *object {
	namespace := cmp.Or(ref.Namespace, from)
	i := slices.IndexFunc(all, func(o object) bool {
		return o.Kind == ref.Kind && o.Metadata.Name == ref.Name && o.Metadata.Namespace == namespace
	})
	if i < 0 {
		i = slices.IndexFunc(all, func(o object) bool {
			return o.Kind == ref.Kind && o.Metadata.Name == ref.Name && (o.Metadata.Namespace == "" || namespace == "")
		})
	}
	if i < 0 {
		return nil
	}
	return &all[i]
}

// source is the place of a HelmRelease's chart.
func (o *object) source(all []object) (Source, error) {
	spec, namespace := chartSpec{}, o.Metadata.Namespace
	switch {
	case o.Spec.ChartRef != nil:
		ref := *o.Spec.ChartRef
		target := find(all, ref, namespace)
		if target == nil {
			return Source{}, missing(ref)
		}
		if ref.Kind != "HelmChart" {
			return target.place(chartSpec{})
		}
		name, _ := target.Spec.Chart.(string)
		spec = chartSpec{Chart: name, Version: target.Spec.Version, SourceRef: target.Spec.SourceRef, ValuesFiles: target.Spec.ValuesFiles}
		namespace = target.Metadata.Namespace
	default:
		var template struct {
			Spec chartSpec `json:"spec"`
		}
		data, err := yaml.Marshal(o.Spec.Chart)
		if err == nil {
			err = yaml.Unmarshal(data, &template)
		}
		if err != nil || template.Spec.Chart == "" {
			return Source{}, errors.New("it names no chart: set spec.chart.spec.chart or spec.chartRef")
		}
		spec = template.Spec
	}
	target := find(all, spec.SourceRef, namespace)
	if target == nil {
		return Source{}, missing(spec.SourceRef)
	}
	return target.place(spec)
}

func missing(ref reference) error {
	return finding.Errorf("", finding.Position{}, "deliver the source with the HelmRelease: the chart travels with it", "%s %s is not among the target's objects", ref.Kind, joined(ref.Namespace, ref.Name))
}

// place is what a source says about a chart.
func (o *object) place(c chartSpec) (Source, error) {
	s := Source{Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, URL: o.Spec.URL, Chart: c.Chart, Version: c.Version, ValuesFiles: c.ValuesFiles}
	switch o.Kind {
	case "HelmRepository":
		if s.Version == "*" {
			s.Version = ""
		}
	case "OCIRepository":
		s.Tag, s.Digest, s.SemVer = o.Spec.Ref.Tag, o.Spec.Ref.Digest, o.Spec.Ref.SemVer
	case "GitRepository":
	case "Bucket":
		s.URL = o.Spec.Endpoint
	default:
		return Source{}, fmt.Errorf("%s is not a source of charts (known: HelmRepository, OCIRepository, GitRepository, Bucket)", o.Kind)
	}
	if s.URL == "" {
		return Source{}, fmt.Errorf("%s %s has no URL", o.Kind, joined(s.Namespace, s.Name))
	}
	return s, nil
}

// values merges the values of a HelmRelease in helm-controller's order: valuesFrom as listed, then its own.
func (o *object) values(all []object, r *Release) {
	values := map[string]any{}
	leaveOut := func(from valuesFrom, why string) {
		r.Notes = append(r.Notes, fmt.Sprintf("the values of %s %s are left out: %s", from.Kind, from.Name, why))
	}
	for _, from := range o.Spec.ValuesFrom {
		key := cmp.Or(from.ValuesKey, "values.yaml")
		source := find(all, reference{Kind: from.Kind, Name: from.Name}, o.Metadata.Namespace)
		switch {
		case from.Kind != "ConfigMap":
			leaveOut(from, "only the cluster has them")
			continue
		case source == nil:
			leaveOut(from, "it is not among the target's objects")
			continue
		}
		text, ok := source.Data[key]
		if data, binary := source.BinaryData[key]; binary {
			text, ok = string(data), true
		}
		if !ok {
			leaveOut(from, "it has no key "+key)
			continue
		}
		if from.TargetPath != "" {
			value, quoted := unquote(strings.TrimRight(text, "\n"))
			if err := SetValue(values, from.TargetPath, value, quoted); err != nil {
				leaveOut(from, "they cannot be set at "+from.TargetPath)
			}
			continue
		}
		parsed, err := ParseValues(bytes.TrimSpace([]byte(text)))
		if err != nil {
			leaveOut(from, "they are no map in YAML")
			continue
		}
		values = MergeValues(values, parsed)
	}
	r.Values = MergeValues(values, o.Spec.Values)
}

// unquote removes the quotes by which helm-controller knows a text.
func unquote(value string) (string, bool) {
	for _, quote := range []string{`"`, "'"} {
		if len(value) >= 2 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return value[1 : len(value)-1], true
		}
	}
	return value, false
}
