package kinds

import (
	"maps"
	"slices"
)

// Condition is one label of a ConfigMap or ConfigSchema, read as "applies where".
type Condition struct{ Key, Value string }

// Flux's labels on all applied objects, which name their Kustomization. Kalypso names the Kustomization of an
// app team's source after environment and registration, and its templates see both labels.
const (
	FluxName      = "kustomize.toolkit.fluxcd.io/name"
	FluxNamespace = "kustomize.toolkit.fluxcd.io/namespace"
)

// Labels that are no conditions: the mark itself, and Flux's.
var unconditional = []string{PlatformConfig, FluxName, FluxNamespace}

// ConditionsOf lists the conditions that labels stand for, sorted by key.
func ConditionsOf(labels map[string]string) []Condition {
	var all []Condition
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !slices.Contains(unconditional, key) {
			all = append(all, Condition{key, labels[key]})
		}
	}
	return all
}

// HoldsFor reports whether a cluster type alone fulfils the condition. A missing label counts as
// empty.
func (c Condition) HoldsFor(ct *ClusterType) bool {
	switch c.Key {
	case "cluster-type":
		return c.Value == ct.Metadata.Name
	case "deployment-target", "workload":
		return false
	default:
		return c.Value == ct.Metadata.Labels[c.Key]
	}
}

// HoldsForTarget reports whether a target alone fulfils the condition.
func (c Condition) HoldsForTarget(t *Target) bool {
	switch c.Key {
	case "cluster-type":
		return false
	case "deployment-target":
		return c.Value == t.Name
	default:
		return c.Value == t.Labels[c.Key]
	}
}
