package rewrite

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Charts returns the file names of the charts in an assignment's folder, sorted.
func Charts(files fs.FS) ([]string, error) {
	entries, err := fs.Glob(files, bundle.ChartsDir+"/*.tgz")
	for i := range entries {
		entries[i] = path.Base(entries[i])
	}
	return entries, err
}

// serveCharts points the HelmReleases among the objects at the endpoint. Fetched is true if a Kustomization brings the
// embedded manifests: their HelmReleases take charts from the namespace of that Kustomization; see Manifests.
func (r *rewriting) serveCharts(fetched bool) error {
	charts, err := Charts(r.Files)
	if err != nil {
		return err
	}
	releases := r.byKind(helmGroup, "HelmRelease")
	if len(releases) == 0 && (len(charts) == 0 || !fetched) {
		return nil
	}
	if err := r.endpoint(); err != nil {
		return err
	}
	h := &helm{assignment: r.Assignment.Name, charts: charts, namespace: r.namespace, objects: r.Objects}
	for _, o := range releases {
		name := subject(o)
		home := r.namespace(o)
		chart, from, err := h.release(o, home)
		if err != nil {
			return err
		}
		r.change(name, "spec.chartRef", from, "OCIRepository "+h.name(chart))
		r.chart(h, home, chart)
	}
	for _, o := range h.dropped() {
		r.change(subject(o), "", o.GetKind(), "")
		r.Objects = slices.DeleteFunc(r.Objects, func(other *unstructured.Unstructured) bool { return o == other })
	}
	if fetched {
		for _, chart := range charts {
			r.chart(h, home(r.Objects, r.namespace), chart)
		}
	}
	return nil
}

// home returns the namespace of the first Kustomization, or "".
func home(objects []*unstructured.Unstructured, namespace func(*unstructured.Unstructured) string) string {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return isKind(o, kustomizeGroup, "Kustomization") })
	if i < 0 {
		return ""
	}
	return namespace(objects[i])
}

// chart adds the OCIRepository of a chart to a namespace, unless it is there.
func (r *rewriting) chart(h *helm, namespace, file string) {
	o := r.repository(namespace, h.name(file))
	if slices.ContainsFunc(r.Objects, func(other *unstructured.Unstructured) bool { return subject(other) == subject(o) }) {
		return
	}
	mark(o)
	at := r.Served.Charts[file]
	spec := map[string]any{
		"interval": "10m", "url": r.url(at), "ref": map[string]any{"digest": at.Digest.String()},
		"layerSelector": map[string]any{"mediaType": reconcilers.ChartMediaType, "operation": "copy"},
	}
	r.change(subject(o), "", "", "chart "+file+" of "+r.url(at))
	r.trust(o, spec, "")
	o.Object["spec"] = spec
	r.Objects = append(r.Objects, o)
}

// helm rewrites the HelmReleases of one set of objects.
type helm struct {
	assignment string
	charts     []string // file names
	namespace  func(*unstructured.Unstructured) string
	objects    []*unstructured.Unstructured
	unused     []reference
}

// maxName bounds the name of an OCIRepository, which Flux also writes into labels.
const maxName = 63

// name is that of the OCIRepository of a chart. It has the version, so that a HelmRelease gets a new chart together with the
// values that are for it.
func (h *helm) name(file string) string {
	name := strings.ToLower(h.assignment + "-" + strings.TrimSuffix(file, ".tgz"))
	name = strings.Map(func(c rune) rune {
		if c == '+' || c == '_' || c == '/' {
			return '-'
		}
		return c
	}, name)
	if len(name) > maxName {
		sum := digest.FromString(name).Encoded()[:10]
		name = strings.TrimRight(name[:maxName-len(sum)-1], "-.") + "-" + sum
	}
	return name
}

// release has a HelmRelease take its chart from an OCIRepository in namespace. It returns the chart's file, and the source
// before.
func (h *helm) release(o *unstructured.Unstructured, namespace string) (file, from string, err error) {
	r := &rewriting{}
	r.Assignment.Namespace = h.namespace(o)
	name, version := text(o, "spec", "chart", "spec", "chart"), text(o, "spec", "chart", "spec", "version")
	source := r.referenceAt(o, "spec", "chart", "spec", "sourceRef")
	if name == "" {
		source = r.referenceAt(o, "spec", "chartRef")
		at := h.find(source)
		if at == nil {
			return "", "", reconcilers.ReleaseError(ChartNotEmbedded, "%s takes its chart from %s, which is not among the objects of the assignment", subject(o), source)
		}
		h.unused = append(h.unused, source)
		if source.kind == "HelmChart" {
			name, version = text(at, "spec", "chart"), text(at, "spec", "version")
			r.Assignment.Namespace = h.namespace(at)
			source = r.referenceAt(at, "spec", "sourceRef")
		} else {
			name = text(at, "spec", "url")
			version = cmp.Or(text(at, "spec", "ref", "tag"), text(at, "spec", "ref", "semver"))
		}
	}
	h.unused = append(h.unused, source)
	named := source.kind == "HelmRepository" // others name a folder or a repository, which may be called otherwise
	if file, err = h.match(path.Base(name), version, named); err != nil {
		return "", "", reconcilers.ReleaseError(ChartNotEmbedded, "%s: %w", subject(o), err)
	}
	spec := specOf(o)
	delete(spec, "chart")
	spec["chartRef"] = map[string]any{"kind": "OCIRepository", "name": h.name(file), "namespace": namespace}
	if text(o, "apiVersion") == helmGroup+"/v2beta1" { // has no chartRef
		o.SetAPIVersion(helmGroup + "/v2")
	}
	return file, strings.TrimSpace("chart " + name + " " + version), nil
}

// match returns the file of a chart. The version may be a range, as long as only one chart of that name is there. Unless
// named is true, the only chart there is may have another name.
func (h *helm) match(name, version string, named bool) (string, error) {
	version = strings.ReplaceAll(strings.TrimPrefix(version, "v"), "_", "+") // tags have no +
	var found []string
	for _, file := range h.charts {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(file, ".tgz"), name+"-")
		if digits := strings.TrimPrefix(rest, "v"); !ok || digits == "" || digits[0] < '0' || digits[0] > '9' {
			continue
		}
		if version != "" && strings.TrimPrefix(rest, "v") == version {
			return file, nil
		}
		found = append(found, file)
	}
	switch len(found) {
	case 0:
		if len(h.charts) == 1 && !named {
			return h.charts[0], nil
		}
		return "", fmt.Errorf("chart %q is not among the embedded ones", name)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d versions of chart %q are embedded (%s): name one of them in spec.chart.spec.version", len(found), name, strings.Join(found, ", "))
}

func (h *helm) find(f reference) *unstructured.Unstructured {
	for _, o := range h.objects {
		if isKind(o, sourceGroup, f.kind) && h.namespace(o) == f.namespace && o.GetName() == f.name {
			return o
		}
	}
	return nil
}

// dropped returns the sources that nobody needs any more: Flux could not reach them.
func (h *helm) dropped() (out []*unstructured.Unstructured) {
	for _, f := range h.unused {
		o := h.find(f)
		needed := o == nil || slices.Contains(out, o) || slices.ContainsFunc(h.objects, func(k *unstructured.Unstructured) bool {
			r := &rewriting{}
			r.Assignment.Namespace = h.namespace(k)
			return isKind(k, kustomizeGroup, "Kustomization") && r.referenceAt(k, "spec", "sourceRef") == f
		})
		if !needed && !IsServed(o) {
			out = append(out, o)
		}
	}
	return out
}

// Manifests returns the files of bundle.ManifestsDir that differ in the artifact that Flux fetches, by their path in that
// folder: those with a HelmRelease, which takes its chart from the endpoint, or with the source of one, which goes. It is a
// function of the assignment's name, namespace and files. Without charts no file differs.
func Manifests(a bundle.Assignment, files fs.FS) (map[string][]byte, error) {
	charts, err := Charts(files)
	if err != nil || len(charts) == 0 {
		return nil, err
	}
	rendered, err := Rendered(files)
	if err != nil {
		return nil, err
	}
	r := &rewriting{Assignment: a}
	namespace := home(rendered, r.namespace)
	inner, err := fs.Sub(files, bundle.ManifestsDir)
	if err != nil || namespace == "" {
		return nil, err
	}
	parsed, all, err := parseAll(inner)
	if err != nil {
		return nil, err
	}
	h := &helm{assignment: a.Name, charts: charts, namespace: r.namespace, objects: all}
	changed := map[*unstructured.Unstructured]bool{}
	for _, o := range all {
		if isKind(o, helmGroup, "HelmRelease") {
			if _, _, err := h.release(o, namespace); err != nil {
				return nil, err
			}
			changed[o] = true
		}
	}
	gone := h.dropped()
	out := map[string][]byte{}
	for name, objects := range parsed {
		differs := func(o *unstructured.Unstructured) bool { return changed[o] || slices.Contains(gone, o) }
		if !slices.ContainsFunc(objects, differs) {
			continue
		}
		if out[name], err = printed(slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return slices.Contains(gone, o) })); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// parseAll returns the objects of all YAML files by file, and in the order of the files.
func parseAll(files fs.FS) (map[string][]*unstructured.Unstructured, []*unstructured.Unstructured, error) {
	byFile, all := map[string][]*unstructured.Unstructured{}, []*unstructured.Unstructured(nil)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !manifests.IsFile(name) {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if byFile[name], err = manifests.Decode(name, data); err != nil {
			return err
		}
		all = append(all, byFile[name]...)
		return nil
	})
	return byFile, all, err
}

func printed(objects []*unstructured.Unstructured) ([]byte, error) {
	var out []byte
	for i, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, "---\n"...)
		}
		out = append(out, data...)
	}
	return out, nil
}
