package impact

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle/yamlvalues"
)

// configFile has the platform's configuration, which restart-on-config is about.
const configFile = "platform-config.yaml"

// State is an assignment as clusters have it, or are to have it.
type State struct {
	// Files are the rendered files, by path.
	Files map[string][]byte
	// Adapter names the reconciler.
	Adapter string
	// Embedded is true if the manifests are in Files, whatever the adapter.
	Embedded bool
	// Config is the digest of the configuration for which workloads restart; empty if they do not.
	Config digest.Digest
}

// Restarts returns the Deployments, StatefulSets and DaemonSets, as Kind/name, whose pods are replaced when old becomes now:
// their pod template differs, or they use a configuration that differs and that restarts them. Known is false if the
// manifests are not in the files, because another engine fetches them.
//
// A workload that replaces no pods by itself is not listed: one that is paused, has no replicas, or waits for its pods to be
// deleted.
func Restarts(old, now State) (workloads []string, known bool) {
	if now.Adapter != "kubernetes" && !now.Embedded {
		return nil, false
	}
	before := workloadsOf(old)
	for id, w := range workloadsOf(now) {
		was, there := before[id]
		if there && w.rolls() && (!reflect.DeepEqual(was.template, w.template) || was.config != w.config) {
			workloads = append(workloads, w.kind+"/"+w.name)
		}
	}
	slices.Sort(workloads)
	return slices.Compact(workloads), true
}

// workload is an object that has pods and replaces them when their template changes.
type workload struct {
	kind, namespace, name string
	spec, template        map[string]any
	config                digest.Digest // as the agent stamps it on the template
}

// rolls reports whether the workload replaces its pods by itself.
func (w workload) rolls() bool {
	strategy, _ := w.spec["updateStrategy"].(map[string]any)
	return w.spec["paused"] != true && w.spec["replicas"] != 0 && strategy["type"] != "OnDelete"
}

// workloadsOf returns the workloads in the files of an assignment, by kind, namespace and name.
func workloadsOf(s State) map[string]workload {
	all, configs := map[string]workload{}, map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(s.Files)) {
		for _, o := range objectsOf(s.Files[file]) {
			meta, _ := o["metadata"].(map[string]any)
			kind, name, namespace := textOf(o["kind"]), textOf(meta["name"]), textOf(meta["namespace"])
			switch kind {
			case "ConfigMap":
				if file == configFile {
					configs[namespace+"/"+name] = true
				}
			case "Deployment", "StatefulSet", "DaemonSet":
				spec, _ := o["spec"].(map[string]any)
				template, _ := spec["template"].(map[string]any)
				if strings.HasPrefix(textOf(o["apiVersion"]), "apps/") {
					all[kind+"/"+namespace+"/"+name] = workload{kind: kind, namespace: namespace, name: name, spec: spec, template: template}
				}
			}
		}
	}
	for id, w := range all {
		if slices.ContainsFunc(configMapsOf(w.template), func(name string) bool { return configs[w.namespace+"/"+name] }) {
			w.config = s.Config
			all[id] = w
		}
	}
	return all
}

// objectsOf returns the objects in a YAML file up to the first mistake; none of a file that is no YAML.
func objectsOf(data []byte) []map[string]any {
	var all []map[string]any
	documents := yamlvalues.NewDecoder(data)
	for {
		var o any
		if documents.Decode(&o) != nil { // io.EOF, or text that no agent applies either
			return all
		}
		if object, ok := o.(map[string]any); ok {
			all = append(all, object)
		}
	}
}

// configMapsOf names the ConfigMaps that the pods of a template use, in their environment or as files. Agents decide by
// the same places whether a new configuration restarts a workload.
func configMapsOf(template map[string]any) []string {
	var names []string
	spec, _ := template["spec"].(map[string]any)
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range listOf(spec[list]) {
			for _, from := range listOf(c["envFrom"]) {
				names = append(names, nameIn(from["configMapRef"]))
			}
			for _, variable := range listOf(c["env"]) {
				from, _ := variable["valueFrom"].(map[string]any)
				names = append(names, nameIn(from["configMapKeyRef"]))
			}
		}
	}
	for _, volume := range listOf(spec["volumes"]) {
		names = append(names, nameIn(volume["configMap"]))
		projected, _ := volume["projected"].(map[string]any)
		for _, source := range listOf(projected["sources"]) {
			names = append(names, nameIn(source["configMap"]))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func listOf(v any) []map[string]any {
	items, _ := v.([]any)
	var all []map[string]any
	for _, item := range items {
		if o, ok := item.(map[string]any); ok {
			all = append(all, o)
		}
	}
	return all
}

func nameIn(v any) string {
	o, _ := v.(map[string]any)
	return textOf(o["name"])
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}
