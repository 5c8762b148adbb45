package impact

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Refused is an object whose fields cannot change: the API server refuses the new one as long as the old one is there.
type Refused struct {
	Object string   `json:"object"` // as Kind/name
	Fields []string `json:"fields"` // such as spec.selector, sorted
}

// Immutable returns the objects of built-in kinds that no API server lets change from old to now, by their kind and name. The result is
// nil if the manifests are not in the files, or none is. Kinds that a site defines itself are unknown, and pass.
func Immutable(old, now State) []Refused {
	if now.Adapter != "kubernetes" && !now.Embedded {
		return nil
	}
	var all []Refused
	before := namedObjects(old)
	after := namedObjects(now)
	for _, id := range slices.SortedFunc(maps.Keys(after), func(a, b objectID) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group))
	}) {
		was, there := before[id]
		if !there || isReplaced(now.Adapter, after[id]) {
			continue
		}
		if fields := frozen(id, was, after[id]); len(fields) > 0 {
			slices.Sort(fields)
			all = append(all, Refused{Object: id.kind + "/" + id.name, Fields: fields})
		}
	}
	return all
}

// isReplaced reports whether an annotation has the engine delete the object and make it anew where it cannot be changed.
func isReplaced(adapter string, o map[string]any) bool {
	annotations := mapOf(at(o, "metadata", nil))["annotations"]
	switch has := mapOf(annotations); adapter {
	case "flux":
		return strings.EqualFold(textOf(has["kustomize.toolkit.fluxcd.io/force"]), "enabled")
	case "argo":
		options := textOf(has["argocd.argoproj.io/sync-options"])
		return has["argocd.argoproj.io/hook"] != nil || strings.Contains(options, "Replace=true") || strings.Contains(options, "Force=true")
	}
	return false
}

type objectID struct{ group, kind, namespace, name string }

// namedObjects returns the objects in the files of an assignment.
func namedObjects(s State) map[objectID]map[string]any {
	all := map[objectID]map[string]any{}
	var add func(o map[string]any)
	add = func(o map[string]any) {
		if items, ok := o["items"].([]any); ok && strings.HasSuffix(textOf(o["kind"]), "List") {
			for _, item := range items {
				if inner, ok := item.(map[string]any); ok {
					add(inner)
				}
			}
			return
		}
		group, _, named := strings.Cut(textOf(o["apiVersion"]), "/")
		if !named {
			group = ""
		}
		meta := mapOf(o["metadata"])
		all[objectID{group, textOf(o["kind"]), textOf(meta["namespace"]), textOf(meta["name"])}] = o
	}
	for _, file := range slices.Sorted(maps.Keys(s.Files)) {
		for _, o := range objectsOf(s.Files[file]) {
			add(o)
		}
	}
	return all
}

// never lists, by kind and group, the fields that never change, each with the value that it has if it is not given.
var never = map[string]map[string]any{
	"Deployment.apps":                       {"spec.selector": nil},
	"DaemonSet.apps":                        {"spec.selector": nil},
	"ReplicaSet.apps":                       {"spec.selector": nil},
	"StatefulSet.apps":                      {"spec.selector": nil, "spec.serviceName": "", "spec.podManagementPolicy": "OrderedReady", "spec.volumeClaimTemplates": nil},
	"ControllerRevision.apps":               {"data": nil},
	"Job.batch":                             {"spec.selector": nil, "spec.template": nil, "spec.completionMode": "NonIndexed", "spec.podFailurePolicy": nil, "spec.successPolicy": nil, "spec.backoffLimitPerIndex": nil, "spec.managedBy": nil},
	"Secret.":                               {"type": "Opaque"},
	"RoleBinding.rbac.authorization.k8s.io": {"roleRef": nil},
	"ClusterRoleBinding.rbac.authorization.k8s.io":  {"roleRef": nil},
	"StorageClass.storage.k8s.io":                   {"provisioner": nil, "parameters": nil, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
	"VolumeAttributesClass.storage.k8s.io":          {"driverName": nil, "parameters": nil},
	"CSIDriver.storage.k8s.io":                      {"spec.attachRequired": true, "spec.volumeLifecycleModes": nil},
	"IngressClass.networking.k8s.io":                {"spec.controller": nil},
	"RuntimeClass.node.k8s.io":                      {"handler": nil},
	"PriorityClass.scheduling.k8s.io":               {"value": nil, "preemptionPolicy": "PreemptLowerPriority"},
	"EndpointSlice.discovery.k8s.io":                {"addressType": nil},
	"CustomResourceDefinition.apiextensions.k8s.io": {"spec.scope": nil},
	"ResourceClaim.resource.k8s.io":                 {"spec": nil},
	"CertificateSigningRequest.certificates.k8s.io": {"spec": nil},
}

// frozen returns the fields of an object that would have to change and cannot.
func frozen(id objectID, was, now map[string]any) (fields []string) {
	differ := func(path string, otherwise any) {
		if !reflect.DeepEqual(at(was, path, otherwise), at(now, path, otherwise)) {
			fields = append(fields, path)
		}
	}
	kind := id.kind + "." + id.group
	if kind == "Job.batch" {
		was, now = comparableJobs(was, now)
	}
	for path, otherwise := range never[kind] {
		differ(path, otherwise)
	}
	switch kind {
	case "Job.batch":
		together := at(now, "spec.completionMode", "") == "Indexed" && completions(now) == at(now, "spec.parallelism", any(1))
		if completions(was) != completions(now) && !together {
			fields = append(fields, "spec.completions")
		}
	case "ConfigMap.", "Secret.":
		if was["immutable"] == true {
			for _, path := range []string{"data", "binaryData", "stringData", "immutable"} {
				differ(path, nil)
			}
		}
	case "Service.":
		fields = append(fields, frozenService(was, now)...)
	case "Pod.":
		was, now = without(was, podChanges...), without(now, podChanges...)
		differ("spec", nil)
	case "PersistentVolumeClaim.":
		fields = append(fields, frozenClaim(was, now)...)
	case "PersistentVolume.":
		for _, path := range keysBelow("spec", was, now) {
			if !slices.Contains(volumeChanges, path) {
				differ(path, map[string]any{"spec.volumeMode": "Filesystem"}[path])
			}
		}
	}
	return fields
}

// completions returns a Job's number of completions, which is 1 unless it has that or workers that share a queue.
func completions(job map[string]any) any {
	if at(job, "spec.completions", nil) == nil && at(job, "spec.parallelism", nil) == nil {
		return 1
	}
	return at(job, "spec.completions", nil)
}

// comparableJobs returns Jobs without what a Job that is suspended may change.
func comparableJobs(was, now map[string]any) (_, _ map[string]any) {
	if at(was, "spec.suspend", false) != true {
		return was, now
	}
	free := []string{"spec.managedBy", "spec.template.metadata.labels", "spec.template.metadata.annotations"}
	for _, field := range []string{"nodeSelector", "affinity", "tolerations", "schedulingGates"} {
		free = append(free, "spec.template.spec."+field)
	}
	return without(was, free...), without(now, free...)
}

// podChanges are the fields that a Pod may change, volumeChanges those of a PersistentVolume.
var (
	podChanges    = []string{"spec.containers.image", "spec.initContainers.image", "spec.containers.resources", "spec.activeDeadlineSeconds", "spec.tolerations", "spec.schedulingGates"}
	volumeChanges = []string{
		"spec.capacity", "spec.accessModes", "spec.persistentVolumeReclaimPolicy", "spec.mountOptions", "spec.claimRef", "spec.storageClassName",
		"spec.volumeAttributesClassName",
	}
)

func frozenService(was, now map[string]any) (fields []string) {
	external := func(o map[string]any) bool { return at(o, "spec.type", "ClusterIP") == "ExternalName" }
	balanced := func(o map[string]any) bool { return at(o, "spec.type", "ClusterIP") == "LoadBalancer" }
	changed := func(path string) bool { // a field that is left out keeps its value
		given := at(now, path, nil)
		return given != nil && given != "" && !reflect.DeepEqual(at(was, path, nil), given)
	}
	if !external(was) && !external(now) && changed("spec.clusterIP") && (at(was, "spec.clusterIP", "") != "" || at(now, "spec.clusterIP", "") == "None") {
		fields = append(fields, "spec.clusterIP")
	}
	for _, path := range []string{"spec.loadBalancerClass", "spec.healthCheckNodePort"} {
		if balanced(was) && balanced(now) && changed(path) && at(was, path, nil) != nil {
			fields = append(fields, path)
		}
	}
	return fields
}

func frozenClaim(was, now map[string]any) (fields []string) {
	const requests = "spec.resources.requests.storage"
	for _, path := range keysBelow("spec", was, now) {
		otherwise := map[string]any{"spec.volumeMode": "Filesystem"}[path]
		before, given := at(was, path, otherwise), at(now, path, otherwise)
		if path == "spec.resources" || path == "spec.volumeAttributesClassName" || before == nil || given == nil {
			continue // what is left out is filled in by the cluster
		}
		if !reflect.DeepEqual(before, given) {
			fields = append(fields, path)
		}
	}
	old, errOld := resource.ParseQuantity(fmt.Sprint(at(was, requests, "")))
	wanted, errNow := resource.ParseQuantity(fmt.Sprint(at(now, requests, "")))
	if errOld == nil && errNow == nil && wanted.Cmp(old) < 0 {
		fields = append(fields, requests)
	}
	return fields
}

// at returns the value of a path of keys, or otherwise if there is none.
func at(o map[string]any, path string, otherwise any) any {
	var value any = o
	for key := range strings.SplitSeq(path, ".") {
		value = mapOf(value)[key]
	}
	if value == nil {
		return otherwise
	}
	return value
}

// keysBelow lists the paths of the keys in a mapping of one of two objects, sorted.
func keysBelow(path string, a, b map[string]any) []string {
	var keys []string
	for _, o := range []map[string]any{a, b} {
		for key := range mapOf(at(o, path, nil)) {
			keys = append(keys, path+"."+key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// without returns o without the values of paths. A list on the way stands for each of its items.
func without(o map[string]any, paths ...string) map[string]any {
	var drop func(value any, path string) any
	drop = func(value any, path string) any {
		switch v := value.(type) {
		case map[string]any:
			key, rest, more := strings.Cut(path, ".")
			inner, has := v[key]
			if !has {
				return v
			}
			v = maps.Clone(v)
			if more {
				v[key] = drop(inner, rest)
			} else {
				delete(v, key)
			}
			return v
		case []any:
			v = slices.Clone(v)
			for i := range v {
				v[i] = drop(v[i], path)
			}
			return v
		}
		return value
	}
	var left any = o
	for _, path := range paths {
		left = drop(left, path)
	}
	return mapOf(left)
}

func mapOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
