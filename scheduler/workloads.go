package scheduler

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Workload is a Workload object with deployment targets for the environment.
type Workload struct {
	// Registration is empty for the platform's own.
	Registration, Name string
	// Object is the digest of the object as it was parsed, with the targets of all environments: of its canonical JSON.
	Object digest.Digest
	// Targets are those of the environment, in the object's order.
	Targets []WorkloadTarget
}

// WorkloadTarget is a deployment target of a Workload.
type WorkloadTarget struct {
	// Name is the target's own, and FullName the assignments'.
	Name, FullName string
	// Manifests is the location of the target's manifests.
	Manifests map[string]string
}

// workloads lists the Workload objects with targets for the environment, by registration and name.
func (m *Model) workloads() []Workload {
	var all []Workload
	for _, w := range m.objects.Workloads {
		one := Workload{Registration: w.Registration, Name: w.Metadata.Name}
		for _, t := range w.Spec.DeploymentTargets {
			if t.Environment == m.environment {
				one.Targets = append(one.Targets, WorkloadTarget{t.Name, w.Metadata.Name + "-" + t.Name, t.Manifests})
			}
		}
		if len(one.Targets) > 0 {
			one.Object = objectDigest(w)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Registration, b.Registration), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// objectDigest returns the digest of what an object says, wherever it says it.
func objectDigest(w *kinds.Workload) digest.Digest {
	type target struct {
		Name        string            `json:"name"`
		Environment string            `json:"environment"`
		Labels      map[string]string `json:"labels,omitempty"`
		Manifests   map[string]string `json:"manifests,omitempty"`
		Schemas     []string          `json:"configSchemas,omitempty"`
	}
	texts := func(all []kinds.Text) (values []string) {
		for _, t := range all {
			values = append(values, t.Value)
		}
		return values
	}
	object := struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Schemas     []string          `json:"configSchemas,omitempty"`
		Targets     []target          `json:"deploymentTargets"`
	}{Name: w.Metadata.Name, Labels: w.Metadata.Labels, Annotations: map[string]string{}, Schemas: texts(w.Spec.ConfigSchemas)}
	for name, text := range w.Metadata.Annotations {
		object.Annotations[name] = text.Value
	}
	for _, t := range w.Spec.DeploymentTargets {
		object.Targets = append(object.Targets, target{t.Name, t.Environment, t.Labels, t.Manifests, texts(t.ConfigSchemas)})
	}
	text, err := json.Marshal(object)
	if err != nil { // texts alone
		return ""
	}
	return digest.FromBytes(text)
}
