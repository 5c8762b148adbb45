package argo

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// omitted lists fields, by their parent, that Argo CD drops if they have no value whenever it writes an Application, as it
// does before each automatic sync. Argo CD treats an absent field and an empty one alike.
var omitted = map[string][]string{
	"automated":   {"allowEmpty", "prune", "selfHeal"},
	"retry":       {"limit", "refresh"},
	"source":      {"chart", "path", "ref", "targetRevision"},
	"destination": {"name", "namespace", "server"},
	"directory":   {"exclude", "include", "jsonnet", "recurse"},
	"helm":        {"ignoreMissingValueFiles", "passCredentials", "releaseName", "skipCrds", "skipSchemaValidation", "skipTests", "values", "version"},
	"kustomize":   {"commonAnnotationsEnvsubst", "forceCommonAnnotations", "forceCommonLabels", "labelWithoutSelector", "namePrefix", "nameSuffix", "namespace", "version"},
}

// vanishing lists fields that Argo CD drops as a whole when they are empty.
var vanishing = []string{"directory", "helm", "kustomize", "syncPolicy"}

// fit removes such fields from o that the live Application lacks. If somebody has set one, it stays in o, and is drift.
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
