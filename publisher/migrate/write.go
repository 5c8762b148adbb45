package migrate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// engine is the engine of the imported cluster types, with its template.
type engine struct {
	name     string // of the adapter and of the template
	template []string
}

// object is a YAML mapping whose keys come out sorted.
type object = map[string]any

// files writes the platform.
func (e *estate) files(environments []string, types []*clusterType, policies []policy) []File {
	made := map[string]*bytes.Buffer{}
	put := func(path, comment string, o object) {
		b := made[path]
		if b == nil {
			b = new(bytes.Buffer)
			made[path] = b
		}
		write(b, comment, o)
	}
	short := map[string]bool{}
	for _, ct := range types {
		short[ct.environment] = true
	}
	for _, w := range e.workloads {
		for _, t := range w.targets {
			short[t.environment] = true
		}
	}
	declared := map[string]bool{}
	for _, name := range sortedKeys(short) {
		if o := e.declaration(name); o != nil {
			declared[name] = true
			put(name+"/site-values.yaml", "The values in which clusters of one type differ. Give keys descriptions, conditions and defaults.", o)
		}
		put(".environments/"+name+".yaml", "", kalypso("Environment", name, nil, object{"controlPlane": object{"path": name}}))
	}
	for _, ct := range types {
		o := kalypso("ClusterType", ct.name, ct.labels, object{"reconciler": e.engine.name, "namespaceService": "namespace", "configType": kinds.ConfigMapType})
		annotations := object{kinds.AnnotationPrefix + "adapter": e.engine.name}
		if declared[ct.environment] {
			annotations[kinds.SiteValues] = siteValuesName
		}
		o["metadata"].(object)["annotations"] = annotations
		put(ct.environment+"/cluster-types.yaml", fmt.Sprintf("Clusters: %s", list(ct.clusters)), o)
		for _, c := range ct.clusters {
			put(ct.environment+"/clusters.yaml", strings.Join(append([]string{"From " + c.at.String()}, c.remarks...), "\n"), object{
				"apiVersion": kinds.WherryAPI, "kind": "Cluster", "metadata": object{"name": c.name},
				"spec": withLabels(withValues(object{"clusterType": ct.name, "uid": c.name, "reporting": kinds.ReportingNone}, c.values), c.labels),
			})
		}
	}
	for _, p := range policies {
		put(p.rule.environment+"/policies.yaml", "From "+p.rule.object+" at "+p.rule.at.String(), kalypso("SchedulingPolicy", p.name, nil, object{
			"deploymentTargetSelector": object{"labelSelector": p.targets}, "clusterTypeSelector": object{"labelSelector": p.types},
		}))
	}
	for _, w := range e.workloads {
		put("workloads/"+w.name+".yaml", "From "+w.object+" at "+w.at.String(), workloadObject(w))
	}
	put("templates/namespace.yaml", "Every assignment has a namespace of its own. A target can make another one.", kalypso("Template", "namespace", nil, object{"type": "namespace", "manifests": []string{namespaceTemplate}}))
	put("templates/"+e.engine.name+".yaml", "", kalypso("Template", e.engine.name, nil, object{"type": "reconciler", "manifests": e.engine.template}))
	var files []File
	for _, path := range sortedKeys(made) {
		files = append(files, File{path, made[path].Bytes()})
	}
	return files
}

func workloadObject(w *workload) object {
	var targets []object
	annotations := object{}
	for _, t := range w.targets {
		labels := map[string]string{}
		for key, value := range t.labels {
			labels[key] = value
		}
		if len(w.targets) > 1 {
			labels[variantLabel] = t.name
		}
		one := withLabels(object{"name": t.name, "environment": t.environment}, labels)
		if len(t.manifests) > 0 {
			one["manifests"] = t.manifests
		}
		targets = append(targets, one)
		if len(t.uses) > 0 {
			annotations[t.name+"."+kinds.AnnotationPrefix+"uses-site-values"] = strings.Join(t.uses, ", ")
		}
		if len(t.after) > 0 {
			var names []string
			for _, other := range t.after {
				names = append(names, other.name)
			}
			slices.Sort(names)
			annotations[t.name+"."+kinds.AnnotationPrefix+"depends-on"] = strings.Join(slices.Compact(names), ", ")
		}
	}
	if w.keep {
		annotations[kinds.AnnotationPrefix+"on-remove"] = "orphan"
		annotations[kinds.AnnotationPrefix+"delivery"] = "reference" // it has no manifests that could be embedded
	}
	o := kalypso("Workload", w.name, nil, object{"deploymentTargets": targets})
	if len(annotations) > 0 {
		o["metadata"].(object)["annotations"] = annotations
	}
	return o
}

func kalypso(kind, name string, labels map[string]string, spec object) object {
	return object{"apiVersion": kinds.KalypsoAPI, "kind": kind, "metadata": withLabels(object{"name": name}, labels), "spec": spec}
}

func withValues(o object, values map[string]any) object {
	if len(values) > 0 {
		o["values"] = values
	}
	return o
}

func withLabels(o object, labels map[string]string) object {
	if len(labels) > 0 {
		o["labels"] = labels
	}
	return o
}

// write adds a document with a comment above it.
func write(b *bytes.Buffer, comment string, o object) {
	if b.Len() > 0 {
		b.WriteString("---\n")
	}
	if comment != "" {
		for line := range strings.Lines(comment) {
			b.WriteString("# " + printable(line) + "\n")
		}
	}
	e := yaml.NewEncoder(b)
	e.SetIndent(2)
	_ = e.Encode(o) // maps of texts cannot fail
	_ = e.Close()
}

// printable returns a line that is safe in a comment.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimRight(line, "\r\n"))
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// list names clusters, not all of a hundred.
func list(clusters []*cluster) string {
	const shown = 10
	var names []string
	for _, c := range clusters[:min(shown, len(clusters))] {
		names = append(names, c.name)
	}
	if len(clusters) > shown {
		names = append(names, fmt.Sprintf("and %d more", len(clusters)-shown))
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

const namespaceTemplate = `apiVersion: v1
kind: Namespace
metadata:
  name: "{{ .Namespace }}"
  labels:
    environment: "{{ .Environment }}"
    workload: "{{ .Workload }}"
{{- if index .Manifests "makeNamespace" }}
---
apiVersion: v1
kind: Namespace
metadata:
  name: "{{ index .Manifests "makeNamespace" }}"
{{- end }}
`

// fluxTemplate brings manifests and charts of git, and charts of repositories. The keys of a target depend on its kind, so
// the template reads them with index, which gives "" for those that are not there.
var fluxTemplate = []string{`{{- if index .Manifests "chart" }}
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata:
  name: "{{ .DeploymentTargetName }}"
  namespace: flux-system
spec:
  interval: 1h
  url: {{ index .Manifests "repo" | quote }}
  {{- if hasPrefix "oci://" (index .Manifests "repo") }}
  type: oci
  {{- end }}
{{- else if index .Manifests "repo" }}
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: "{{ .DeploymentTargetName }}"
  namespace: flux-system
spec:
  interval: 5m
  url: {{ index .Manifests "repo" | quote }}
  ref:
    {{- if index .Manifests "commit" }}
    commit: {{ index .Manifests "commit" | quote }}
    {{- else }}
    branch: {{ index .Manifests "branch" | default "main" | quote }}
    {{- end }}
  {{- if index .Manifests "ignore" }}
  ignore: |
{{ index .Manifests "ignore" | indent 4 }}
  {{- end }}
{{- end }}
{{- $chart := index .Manifests "chart" | default (index .Manifests "chartPath") }}
{{- if $chart }}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: "{{ .DeploymentTargetName }}"
  namespace: flux-system
spec:
  interval: 5m
  targetNamespace: {{ index .Manifests "namespace" | default .Namespace | quote }}
  install:
    createNamespace: true
  {{- if index .Manifests "releaseName" }}
  releaseName: {{ index .Manifests "releaseName" | quote }}
  {{- end }}
  chart:
    spec:
      chart: {{ $chart | quote }}
      {{- if index .Manifests "version" }}
      version: {{ index .Manifests "version" | quote }}
      {{- end }}
      sourceRef:
        kind: {{ if index .Manifests "chart" }}HelmRepository{{ else }}GitRepository{{ end }}
        name: "{{ .DeploymentTargetName }}"
  {{- if index .Manifests "values" }}
  values:
{{ index .Manifests "values" | indent 4 }}
  {{- end }}
  {{- if index .Manifests "postRenderers" }}
  postRenderers:
{{ index .Manifests "postRenderers" | indent 4 }}
  {{- end }}
{{- else if index .Manifests "path" }}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: "{{ .DeploymentTargetName }}"
  namespace: flux-system
spec:
  interval: 5m
  targetNamespace: {{ index .Manifests "namespace" | default .Namespace | quote }}
  sourceRef:
    kind: GitRepository
    name: "{{ .DeploymentTargetName }}"
  path: {{ index .Manifests "path" | quote }}
  prune: true
  wait: true
{{- end }}
`}

// argoTemplate writes the spec of an Application as it was generated, for the Argo CD on the cluster itself.
var argoTemplate = []string{`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: "{{ .DeploymentTargetName }}"
  namespace: argocd
spec:
{{ index .Manifests "spec" | indent 2 }}
`}
