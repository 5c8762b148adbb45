package argo

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// omitted are fields, by what they are in, that Argo CD leaves out when it writes an Application, as it does
// before each sync of its own, where they have no value. It is the same to Argo CD whether they are there.
var omitted = map[string][]string{
	"automated":   {"allowEmpty", "prune", "selfHeal"},
	"retry":       {"limit", "refresh"},
	"source":      {"chart", "path", "ref", "targetRevision"},
	"destination": {"name", "namespace", "server"},
	"directory":   {"exclude", "include", "jsonnet", "recurse"},
	"helm":        {"ignoreMissingValueFiles", "passCredentials", "releaseName", "skipCrds", "skipSchemaValidation", "skipTests", "values", "version"},
	"kustomize":   {"commonAnnotationsEnvsubst", "forceCommonAnnotations", "forceCommonLabels", "labelWithoutSelector", "namePrefix", "nameSuffix", "namespace", "version"},
}

// vanishing are fields that go as a whole when they are empty.
var vanishing = []string{"directory", "helm", "kustomize", "syncPolicy"}

// fit takes such fields from an Application that the live one lacks. Where somebody has given one a value, it
// stays, and is drift.
func fit(o, live *unstructured.Unstructured) {
	if o.GroupVersionKind().GroupKind() != applicationKind {
		return
	}
	var there map[string]any
	if live != nil {
		there, _ = live.Object["spec"].(map[string]any)
	}
	if spec, ok := o.Object["spec"].(map[string]any); ok {
		trim("spec", spec, there)
	}
}

func trim(name string, fields, live map[string]any) {
	for key, value := range fields {
		_, there := live[key]
		switch value := value.(type) {
		case map[string]any:
			within, _ := live[key].(map[string]any)
			trim(key, value, within)
			if len(value) == 0 && !there && (slices.Contains(vanishing, key) || slices.Contains(omitted[name], key)) {
				delete(fields, key)
			}
		case []any:
			if key == "sources" {
				trimSources(value, live[key])
			}
		default:
			if empty(value) && !there && slices.Contains(omitted[name], key) {
				delete(fields, key)
			}
		}
	}
}

func trimSources(sources []any, live any) {
	there, _ := live.([]any)
	for i, item := range sources {
		source, _ := item.(map[string]any)
		var within map[string]any
		if i < len(there) {
			within, _ = there[i].(map[string]any)
		}
		trim("source", source, within)
	}
}
