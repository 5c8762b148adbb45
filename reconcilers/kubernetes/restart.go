package kubernetes

import (
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/reconcilers"
)

// ConfigDigestAnnotation is on the pod templates that use the platform's configuration, if an
// assignment asks for restarts: its value is the configuration's digest.
const ConfigDigestAnnotation = "wherry.dev/config-digest"

// configFile holds the platform's configuration, as Kalypso lays out an assignment.
const configFile = "platform-config.yaml"

// rolling lists the kinds that replace their pods when their template changes. A CronJob's next run reads
// the new values by itself; the template of a Job cannot change, and that of a ReplicaSet is not followed.
var rolling = []schema.GroupKind{
	{Group: "apps", Kind: "Deployment"},
	{Group: "apps", Kind: "StatefulSet"},
	{Group: "apps", Kind: "DaemonSet"},
}

// restartDigest identifies what pods are to restart for: the platform's configuration together with the site values. It is
// empty if they are not to.
func restartDigest(a reconcilers.Assignment) digest.Digest {
	switch {
	case !a.RestartOnConfig:
		return ""
	case a.ValuesDigest != "":
		return digest.FromString(a.ConfigDigest.String() + "\n" + a.ValuesDigest.String())
	}
	return a.ConfigDigest
}

// stamp puts the configuration's digest on the pod templates that use it, or the ConfigMap site, so that a new configuration
// is a new template.
func (p *plan) stamp(config digest.Digest, site types.NamespacedName) {
	configs := map[types.NamespacedName]bool{site: true}
	for _, m := range p.objects {
		file, _, _ := strings.Cut(m.origin, ",")
		if file == configFile && m.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "ConfigMap"}) {
			configs[types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}] = true
		}
	}
	for _, m := range p.objects {
		template, _, _ := unstructured.NestedMap(m.Object, "spec", "template")
		uses := func(name string) bool { return configs[types.NamespacedName{Namespace: m.GetNamespace(), Name: name}] }
		if !slices.Contains(rolling, m.GroupVersionKind().GroupKind()) || !slices.ContainsFunc(configMapsOf(template), uses) {
			continue
		}
		for _, path := range [][]string{{"spec", "template", "metadata"}, {"spec", "template", "metadata", "annotations"}} {
			if value, there, _ := unstructured.NestedFieldNoCopy(m.Object, path...); there && value == nil { // as empty templates leave it
				unstructured.RemoveNestedField(m.Object, path...)
			}
		}
		// This fails for annotations that are no map of strings, which the API server will refuse anyway.
		_ = unstructured.SetNestedField(m.Object, config.String(), "spec", "template", "metadata", "annotations", ConfigDigestAnnotation)
	}
}

// configMapsOf names the ConfigMaps that the pods of a template use, in their environment or as files.
func configMapsOf(template map[string]any) []string {
	var names []string
	add := func(from map[string]any, path ...string) {
		if name, _, _ := unstructured.NestedString(from, path...); name != "" {
			names = append(names, name)
		}
	}
	for _, containers := range []string{"containers", "initContainers"} {
		for _, c := range objects(template, "spec", containers) {
			for _, from := range objects(c, "envFrom") {
				add(from, "configMapRef", "name")
			}
			for _, variable := range objects(c, "env") {
				add(variable, "valueFrom", "configMapKeyRef", "name")
			}
		}
	}
	for _, volume := range objects(template, "spec", "volumes") {
		add(volume, "configMap", "name")
		for _, source := range objects(volume, "projected", "sources") {
			add(source, "configMap", "name")
		}
	}
	return names
}

// objects returns the objects in the list at path, where there is one.
func objects(from map[string]any, path ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(from, path...)
	var out []map[string]any
	for _, item := range list {
		if o, ok := item.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}
