package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// access holds the session and the manager by which one call on an assignment reaches its objects.
type access struct {
	*session
	r       *Reconciler
	manager *ssa.ResourceManager
	owner   string           // the label's value
	shared  []rewrite.Shared // what the objects need and the agent has for all assignments
}

// pass is one call on one assignment.
type pass struct {
	access
	assignment string
	inventory  inventory
	applying   bool    // and not only observing or removing
	who        account // that requests impersonate; empty for the agent's own
}

func (r *Reconciler) newPass(assignment string) *pass {
	owner := ownerOf(assignment)
	s := newSession(r.client, newPlan(r.engine, r.client.Scheme))
	return &pass{
		access:     access{session: s, r: r, manager: ssa.NewResourceManager(s, nil, ssa.Owner{Field: fieldManager(owner)}), owner: owner},
		assignment: assignment,
	}
}

// ownerOf returns the label value that stands for an assignment.
func ownerOf(assignment string) string {
	if assignment != "" && len(validation.IsValidLabelValue(assignment)) == 0 {
		return assignment
	}
	return "sha256-" + digest.FromString(assignment).Encoded()[:32]
}

// fieldManager returns the field manager of an assignment. Each has its own, so that two assignments with a common object,
// such as a Namespace, do not change each other's fields.
func fieldManager(owner string) string { return "wherry/" + owner }

func (p *pass) load() error {
	data, err := p.r.ledger.Load(p.assignment)
	if err == nil {
		p.inventory, err = parseInventory(data)
	}
	if err != nil {
		return &reconcilers.Error{Reason: LedgerUnreadable, Fault: reconcilers.FaultSite, Err: err}
	}
	return nil
}

func (p *pass) save() error {
	data, err := p.inventory.marshal()
	if err == nil {
		err = p.r.ledger.Save(p.assignment, data)
	}
	if err != nil {
		return waiting(LedgerNotSaved, fmt.Errorf("save inventory: %w", err))
	}
	return nil
}

// prepare reads manifests, inventory and the objects' live state, and settles ownership.
func (p *pass) prepare(ctx context.Context, a reconcilers.Assignment) (err error) {
	if p.plan.objects, p.shared, err = p.r.read(a); err != nil {
		return err
	}
	if err := p.load(); err != nil {
		return err
	}
	if err := p.plan.place(ctx, p.r.mapping, a.Namespace); err != nil {
		return err
	}
	if err := p.assume(ctx, a); err != nil {
		return err
	}
	if err := p.plan.expect(a.Health); err != nil {
		return err
	}
	if config := restartDigest(a); config != "" {
		p.plan.stamp(config, types.NamespacedName{Namespace: a.Namespace, Name: rewrite.SiteConfigMap})
	}
	for _, m := range p.plan.objects {
		if err := p.stake(ctx, m); err != nil {
			return err
		}
	}
	return p.permitted(ctx, a)
}

// read returns the objects that are applied for an assignment, and the shared ones that they need.
func (r *Reconciler) read(a reconcilers.Assignment) ([]manifest, []rewrite.Shared, error) {
	var objects []manifest
	var shared []rewrite.Shared
	var err error
	if r.engine != nil && r.engine.Embed != nil && a.Delivery == bundle.Embedded {
		objects, shared, err = r.embed(a)
	} else {
		objects, err = readManifests(a.Dir, ".", "")
	}
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return nil, nil, waiting(FilesUnreadable, err)
	}
	if err != nil {
		return nil, nil, err
	}
	return objects, r.withValues(a, objects, shared), nil
}

// embed has the engine take the embedded manifests from the agent's endpoint. They are read only if they are applied like
// the other objects.
func (r *Reconciler) embed(a reconcilers.Assignment) ([]manifest, []rewrite.Shared, error) {
	rendered, err := readManifests(a.Dir, ".", bundle.ManifestsDir)
	if err != nil {
		return nil, nil, err
	}
	origins := map[object.ObjMetadata]string{}
	take := func(found []manifest) (objects []*unstructured.Unstructured) {
		for _, m := range found {
			origins[m.id()] = m.origin
			objects = append(objects, m.Unstructured)
		}
		return objects
	}
	res, err := r.engine.Embed(rewrite.Input{
		Assignment: a.Assignment, Files: os.DirFS(a.Dir), Objects: take(rendered), Served: a.Served,
		Manifests: func() ([]*unstructured.Unstructured, error) {
			found, err := readManifests(a.Dir, bundle.ManifestsDir, "")
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return take(found), err
		},
	})
	if err != nil {
		return nil, nil, err
	}
	var out []manifest
	for _, o := range res.Objects {
		out = append(out, manifest{o, cmp.Or(origins[object.UnstructuredToObjMetadata(o)], "embedded delivery")})
	}
	return out, res.Shared, nil
}

// permitted asks the engine whether its settings allow an embedded assignment.
func (p *pass) permitted(ctx context.Context, a reconcilers.Assignment) error {
	if !p.applying || a.Delivery != bundle.Embedded || p.r.engine == nil || p.r.engine.Permits == nil {
		return nil
	}
	var objects []*unstructured.Unstructured
	for _, m := range p.plan.objects {
		objects = append(objects, m.Unstructured)
	}
	return p.r.engine.Permits(ctx, p.view(), objects)
}

// stake labels m as the assignment's if the assignment creates or has created it.
func (p *pass) stake(ctx context.Context, m manifest) error {
	live, err := p.look(ctx, m.Unstructured)
	if _, here := p.plan.defined[m.GroupVersionKind().GroupKind()]; here && meta.IsNoMatchError(err) {
		live, err = nil, nil // no object can exist of a kind that the assignment is about to define
	}
	if err != nil {
		return err
	}
	if p.plan.engines(m.GroupVersionKind().GroupKind()) && p.r.engine.Fit != nil {
		p.r.engine.Fit(m.Unstructured, live)
	}
	known, _ := p.inventory.find(m.id())
	owner := ""
	if live != nil {
		owner = live.GetLabels()[OwnerLabel]
	}
	switch {
	case live == nil, owner == p.owner, owner == "" && known.Owned:
		labels := m.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[OwnerLabel] = p.owner
		m.SetLabels(labels)
		p.ours[m.id()] = live != nil
	case owner != "" && !entryOf(m, false).isNamespace():
		return reconcilers.ReleaseError(Conflict, "%s: %s belongs to assignment %s (take it out of one of the two)", m.origin, m.subject(), owner)
	}
	return nil
}

// applyStages applies the objects that others depend on, waits until new kinds are served, and applies the rest.
func (a *access) applyStages(ctx context.Context) error {
	var first, rest []*unstructured.Unstructured
	for _, m := range a.plan.objects {
		if utils.IsClusterDefinition(m.Unstructured) {
			first = append(first, m.Unstructured)
		} else {
			rest = append(rest, m.Unstructured)
		}
	}
	if _, err := a.manager.ApplyAll(ctx, first, ssa.ApplyOptions{}); err != nil {
		return err
	}
	for _, u := range first {
		if utils.IsCRD(u) {
			if err := a.established(ctx, u); err != nil {
				return err
			}
		}
	}
	for _, s := range a.shared {
		if err := a.share(ctx, s); err != nil {
			return err
		}
	}
	if _, err := a.manager.ApplyAll(ctx, rest, ssa.ApplyOptions{}); err != nil {
		return err
	}
	for _, m := range a.plan.objects {
		a.r.seen.agree(m, a.live[m.id()])
	}
	return nil
}

// Bounds of the wait for a new CustomResourceDefinition to be served.
const (
	establishWithin = 30 * time.Second
	establishEvery  = 200 * time.Millisecond
)

// established waits until the kind that crd defines can be used.
func (a *access) established(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	served := func(ctx context.Context) (bool, error) {
		live, err := a.look(ctx, crd)
		if err != nil || live == nil {
			return false, err
		}
		if res, err := status.Compute(live); err != nil || res.Status != status.CurrentStatus {
			delete(a.live, object.UnstructuredToObjMetadata(crd)) // to be asked for again
			return false, err
		}
		_, err = a.r.mapping(ctx, schema.GroupKind{Group: group, Kind: kind})
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	}
	err := wait.PollUntilContextTimeout(ctx, establishEvery, establishWithin, true, served)
	if wait.Interrupted(err) && ctx.Err() == nil {
		return waiting(NotReady, fmt.Errorf("%s is not served yet", utils.FmtUnstructured(crd)))
	}
	return err
}
