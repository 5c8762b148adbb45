package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// inventorySchema is the version of the inventory that this code writes.
const inventorySchema = 1

// inventory is an assignment's entry in the ledger.
type inventory struct {
	Schema int `json:"schema"`
	// Content is Desired of the assignment that was last applied completely; empty before the first time.
	Content digest.Digest `json:"content,omitempty"`
	Objects []entry       `json:"objects"`
}

// entry is one object that is, or may be, on the cluster for the assignment.
type entry struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Owned is true once the object has been applied with our label, because we created it.
	Owned bool `json:"owned,omitempty"`
	// Shared is true for an object of the agent itself that several assignments use; see share.
	Shared bool `json:"shared,omitempty"`
	// As is the account that applied it; empty means the agent's own identity.
	As account `json:"as,omitempty"`
}

func entryOf(m manifest, owned bool) entry {
	gvk := m.GroupVersionKind()
	return entry{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: m.GetNamespace(), Name: m.GetName(), Owned: owned}
}

func (e entry) groupKind() schema.GroupKind { return schema.GroupKind{Group: e.Group, Kind: e.Kind} }

func (e entry) id() object.ObjMetadata {
	return object.ObjMetadata{GroupKind: e.groupKind(), Namespace: e.Namespace, Name: e.Name}
}

func (e entry) subject() string { return utils.FmtObjMetadata(e.id()) }

// bare returns an object with e's identity and nothing else.
func (e entry) bare() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(e.groupKind().WithVersion(e.Version))
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	return u
}

func (e entry) isNamespace() bool { return e.groupKind() == schema.GroupKind{Kind: "Namespace"} }

func (e entry) isCRD() bool { return utils.IsCRD(e.bare()) }

func names(entries []entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.subject())
	}
	return strings.Join(out, ", ")
}

// newInventory lists the manifests and the shared objects, all of them applied, and the objects that are left of earlier
// ones.
func newInventory(content digest.Digest, ms []manifest, shared []rewrite.Shared, left []entry) inventory {
	inv := inventory{Content: content, Objects: slices.Clone(left)}
	for _, m := range ms {
		inv.Objects = append(inv.Objects, entryOf(m, m.GetLabels()[OwnerLabel] != ""))
	}
	return inv.using(shared)
}

// using adds shared objects.
func (inv inventory) using(shared []rewrite.Shared) inventory {
	inv.Objects = slices.Clone(inv.Objects)
	for _, s := range shared {
		e := entryOf(manifest{s.Unstructured, ""}, false)
		e.Shared = true
		if _, known := inv.find(e.id()); !known {
			inv.Objects = append(inv.Objects, e)
		}
	}
	return inv
}

func (inv inventory) find(id object.ObjMetadata) (entry, bool) {
	i := slices.IndexFunc(inv.Objects, func(e entry) bool { return e.id() == id })
	if i < 0 {
		return entry{}, false
	}
	return inv.Objects[i], true
}

// union adds the manifests, which may or may not get applied.
func (inv inventory) union(ms []manifest) inventory {
	inv.Objects = slices.Clone(inv.Objects)
	for _, m := range ms {
		if _, known := inv.find(m.id()); !known {
			inv.Objects = append(inv.Objects, entryOf(m, false))
		}
	}
	return inv
}

// Foretell returns the inventory as it will be during Apply: its present entries and the objects of all manifests. It
// asks the cluster for the served kinds only.
func (r *Reconciler) Foretell(ctx context.Context, a reconcilers.Assignment) ([]byte, error) {
	p := r.newPass(a.Name)
	var err error
	if p.plan.objects, p.shared, err = r.read(a); err != nil {
		return nil, err
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	if err := p.plan.place(ctx, r.mapping, a.Namespace); err != nil {
		return nil, err
	}
	who, err := accountOf(a.Assignment, r.impersonate)
	if err != nil {
		return nil, err
	}
	p.who = who
	known, home := len(p.inventory.Objects), p.home(a.Namespace)
	inv := p.inventory.union(p.plan.objects)
	for i, e := range inv.Objects[known:] {
		if !slices.ContainsFunc(home, func(m manifest) bool { return m.id() == e.id() }) {
			inv.Objects[known+i].As = who
		}
	}
	return inv.using(p.shared).marshal()
}

// without returns the entries that the plan no longer has.
func (inv inventory) without(ms []manifest, shared []rewrite.Shared) []entry {
	keep := map[object.ObjMetadata]bool{}
	for _, m := range ms {
		keep[m.id()] = true
	}
	for _, s := range shared {
		keep[object.UnstructuredToObjMetadata(s.Unstructured)] = true
	}
	var out []entry
	for _, e := range inv.Objects {
		if !keep[e.id()] {
			out = append(out, e)
		}
	}
	return out
}

// forDeletion returns the entries in the order of their deletion: objects before those that they depend on, and
// ServiceAccounts and RoleBindings of the agent's own, shared objects, CustomResourceDefinitions and then Namespaces last.
func forDeletion(entries []entry) []entry {
	entries = slices.Clone(entries)
	assumed := slices.ContainsFunc(entries, func(e entry) bool { return e.As != "" })
	rank := func(e entry) int {
		switch {
		case e.isNamespace():
			return 4
		case e.isCRD():
			return 3
		case e.Shared:
			return 2
		case assumed && e.As == "" && (e.groupKind() == serviceAccountKind.GroupKind() || e.groupKind() == roleBindingKind):
			return 1 // others are deleted with the rights that these give
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		ids := ssa.SortableMetas{a.id(), b.id()}
		switch {
		case rank(a) != rank(b):
			return cmp.Compare(rank(a), rank(b))
		case ids.Less(0, 1):
			return 1
		case ids.Less(1, 0):
			return -1
		}
		return 0
	})
	return entries
}

// marshal returns the ledger's bytes, which are empty for an empty inventory.
func (inv inventory) marshal() ([]byte, error) {
	if inv.Content == "" && len(inv.Objects) == 0 {
		return nil, nil
	}
	inv.Schema = inventorySchema
	return json.Marshal(inv)
}

func parseInventory(data []byte) (inventory, error) {
	var inv inventory
	if len(data) == 0 {
		return inv, nil
	}
	if err := json.Unmarshal(data, &inv); err != nil {
		return inventory{}, fmt.Errorf("inventory: %w", err)
	}
	if inv.Schema != inventorySchema {
		return inventory{}, fmt.Errorf("inventory has schema %d, this version reads %d", inv.Schema, inventorySchema)
	}
	return inv, nil
}
