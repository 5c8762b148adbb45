package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// label is on all objects except Namespaces, which belong to others: "kubectl get role -A -l" finds the roles of an
// earlier bundle.
var label = map[string]any{"app.kubernetes.io/name": "wherry-agent"}

// Objects returns the permissions as manifests, in an order in which they can be applied. The same
// assignments give the same objects. Helm keeps the Namespaces when it removes the agent.
func (p *Permissions) Objects() []map[string]any {
	var all []map[string]any
	for _, name := range slices.Sorted(maps.Keys(p.namespaces)) {
		all = append(all, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": name, "annotations": map[string]any{"helm.sh/resource-policy": "keep"},
		}})
	}
	for _, s := range slices.SortedFunc(maps.Keys(p.accounts), compareSubjects) {
		account := object("v1", "ServiceAccount", s.namespace, s.name)
		account["automountServiceAccountToken"] = false // the agent impersonates it, and no pod runs as it
		all = append(all, account)
	}
	for _, g := range slices.SortedFunc(maps.Keys(p.grants), compareGrants) {
		prefix := ""
		if g.namespace == "" {
			prefix = "Cluster"
		}
		name, api := p.roleName(g), rbacv1.SchemeGroupVersion.String()
		role, binding := object(api, prefix+"Role", g.namespace, name), object(api, prefix+"RoleBinding", g.namespace, name)
		role["rules"] = rules(p.grants[g])
		binding["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": prefix + "Role", "name": name}
		binding["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": g.to.name, "namespace": g.to.namespace}}
		all = append(all, role, binding)
	}
	return all
}

func object(apiVersion, kind, namespace, name string) map[string]any {
	metadata := map[string]any{"name": name, "labels": label}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
}

// roleName returns the name of a grant's role, unique among the subjects of one namespace. No ServiceAccount has a colon
// in its name.
func (p *Permissions) roleName(g grant) string {
	if g.to == p.agent() {
		return p.opts.Role
	}
	return g.to.namespace + ":" + g.to.name
}

func compareSubjects(a, b subject) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func compareGrants(a, b grant) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), compareSubjects(a.to, b.to))
}

// rules groups resources that differ in nothing else.
func rules(of map[rule]verbs) []rbacv1.PolicyRule {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b rule) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.name, b.name), strings.Compare(string(of[a]), string(of[b])), strings.Compare(a.resource, b.resource))
	})
	var all []rbacv1.PolicyRule
	var last rule
	for i, k := range keys {
		if i > 0 && k.group == last.group && k.name == last.name && of[k] == of[last] {
			r := &all[len(all)-1]
			r.Resources, last = append(r.Resources, k.resource), k
			continue
		}
		r := rbacv1.PolicyRule{APIGroups: []string{k.group}, Resources: []string{k.resource}, Verbs: strings.Fields(string(of[k]))}
		if k.name != "" {
			r.ResourceNames = []string{k.name}
		}
		all, last = append(all, r), k
	}
	return all
}
