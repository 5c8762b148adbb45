package embed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// objectID identifies an embedded object, and the file that has it.
type objectID struct{ File, Group, Kind, Namespace, Name string }

// inspect lists the objects of the content's files.
func (b *built) inspect() {
	for _, f := range b.Files {
		for _, o := range decodeAll(f.Data) {
			metadata, _ := o["metadata"].(map[string]any)
			id := objectID{File: f.Path, Kind: text(o["kind"]), Namespace: text(metadata["namespace"]), Name: text(metadata["name"])}
			if group, _, found := strings.Cut(text(o["apiVersion"]), "/"); found {
				id.Group = group
			}
			if id.Kind == "" || id.Name == "" { // such as with generateName
				continue
			}
			b.Objects = append(b.Objects, id)
			if id.Group == "" && id.Kind == "Secret" && (notEmpty(o["data"]) || notEmpty(o["stringData"])) {
				b.Secrets = append(b.Secrets, fmt.Sprintf("%s: Secret %s", f.Path, id.Name))
			}
		}
	}
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func notEmpty(value any) bool {
	m, _ := value.(map[string]any)
	return len(m) > 0
}

// clusterScoped are kinds of Kubernetes that are in no namespace. Of other kinds that is not known here.
var clusterScoped = []string{
	"APIService", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "IngressClass", "MutatingWebhookConfiguration", "PersistentVolume",
	"PriorityClass", "RuntimeClass", "StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
}

// in returns the identity of the object on a cluster. An object without a namespace is in that of its assignment.
func (id objectID) in(namespace string) objectID {
	switch {
	case slices.Contains(clusterScoped, id.Kind):
		id.Namespace = ""
	default:
		id.Namespace = cmp.Or(id.Namespace, namespace)
	}
	id.File = ""
	return id
}

// Warnings returns warnings about the embedded objects of the assignments of result, by cluster type and assignment:
// images without a digest, secrets, objects that could not be rendered, and objects that two assignments of one cluster type have. The agent reports
// such an object as a conflict, and applies it for one of them.
func (e *Embedded) Warnings(result *scheduler.Result) []Warning {
	var all []Warning
	for _, ct := range result.ClusterTypes {
		type owner struct{ assignment, file string }
		owners := map[objectID]owner{}
		for _, a := range ct.Assignments {
			c := e.of[name{ct.Name, a.Name}]
			if c == nil {
				continue
			}
			warn := func(f finding.Finding) {
				all = append(all, Warning{Finding: f, ClusterType: ct.Name, Assignment: a.Name, Registration: a.Registration})
			}
			for _, f := range c.warnings {
				warn(f)
			}
			for _, f := range c.Notes {
				warn(placed(f))
			}
			if c.variables != nil {
				for _, f := range c.variables.unset(c.Files) {
					warn(placed(f))
				}
			}
			for _, m := range c.Missed {
				warn(finding.Finding{Code: finding.CodeImageMissed, Message: finding.Sentence("%s", m), Hint: "clusters run whatever its tag is then; write it in a way that can be pinned, or name its digest"})
			}
			for _, s := range c.Secrets {
				warn(finding.Finding{Code: finding.CodeSecret, Message: s + " travels in the bundle, where everybody who may read the registry can read it", Hint: "have the site make the Secret, or use sealed or external secrets"})
			}
			for _, id := range c.Objects {
				if id.Group == "" && id.Kind == "Namespace" {
					continue
				}
				at := id.in(a.Namespace)
				if first, known := owners[at]; known && first.assignment != a.Name {
					warn(finding.Finding{
						Code:    finding.CodeObjectShared,
						Message: finding.Sentence("%s %s of %s is also in %s of %s", id.Kind, strings.TrimPrefix(at.Namespace+"/"+id.Name, "/"), id.File, first.file, first.assignment),
						Hint:    "embed it in one of them, or give it another name or namespace",
					})
				} else {
					owners[at] = owner{a.Name, id.File}
				}
			}
		}
	}
	return all
}

// placed returns a finding with its place in its message: the place of a Warning is another one.
func placed(f finding.Finding) finding.Finding {
	f.Message = finding.Finding{Position: f.Position, Message: f.Message}.String()
	f.Position = finding.Position{}
	return f
}

// Warning is a finding about the content of an assignment. It has no place; that of the deployment target is the nearest.
type Warning struct {
	finding.Finding
	ClusterType, Assignment, Registration string
}
