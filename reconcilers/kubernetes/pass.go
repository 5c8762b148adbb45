package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/health"
	"github.com/wherry-dev/wherry/reconcilers"
)

// pass is one call on one assignment.
type pass struct {
	*session
	r          *Reconciler
	manager    *ssa.ResourceManager
	assignment string
	owner      string // the label's value
	inventory  inventory
	objects    []manifest
	defined    map[schema.GroupKind]bool // kinds that the assignment itself defines; true: namespaced
	conditions map[object.ObjMetadata][]health.Condition
	kept       []string
	applying   bool    // and not only observing or removing
	who        account // in whose name; empty for the agent's own
}

func (r *Reconciler) newPass(assignment string) *pass {
	owner := ownerOf(assignment)
	s := newSession(r.client)
	return &pass{
		r:          r,
		session:    s,
		manager:    ssa.NewResourceManager(s, nil, ssa.Owner{Field: fieldManager(owner)}),
		assignment: assignment,
		owner:      owner,
		defined:    map[schema.GroupKind]bool{},
		conditions: map[object.ObjMetadata][]health.Condition{},
	}
}

// ownerOf returns the label value that stands for an assignment.
func ownerOf(assignment string) string {
	if assignment != "" && len(validation.IsValidLabelValue(assignment)) == 0 {
		return assignment
	}
	return "sha256-" + digest.FromString(assignment).Encoded()[:32]
}

// fieldManager is one for each assignment, so that two of them that meet in one object, such as a
// Namespace, keep out of each other's fields.
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

// prepare reads manifests, inventory and the objects' live state, and settles what is whose.
func (p *pass) prepare(ctx context.Context, a reconcilers.Assignment) (err error) {
	p.objects, err = readManifests(a.Dir)
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return waiting(FilesUnreadable, err)
	}
	if err != nil {
		return err
	}
	if err := p.load(); err != nil {
		return err
	}
	if err := p.place(ctx, a.Namespace); err != nil {
		return err
	}
	if err := p.assume(ctx, a); err != nil {
		return err
	}
	if err := p.expect(a.Health); err != nil {
		return err
	}
	if a.RestartOnConfig && a.ConfigDigest != "" {
		p.stamp(a.ConfigDigest)
	}
	for _, m := range p.objects {
		if err := p.stake(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// place puts objects without a namespace into the assignment's, and finds those that are there twice.
func (p *pass) place(ctx context.Context, namespace string) error {
	for _, m := range p.objects {
		if utils.IsCRD(m.Unstructured) {
			group, _, _ := unstructured.NestedString(m.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(m.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(m.Object, "spec", "scope")
			p.defined[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
		}
	}
	for _, m := range p.objects {
		from, err := p.adapt(ctx, m)
		if err != nil {
			return err
		}
		namespaced, err := p.namespaced(ctx, m)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s: %w", m.origin, m.subject(), err)
		case !namespaced:
			m.SetNamespace("")
		case m.GetNamespace() == "" && p.engines(m.GroupVersionKind().GroupKind()) && p.r.engine.Namespace != "":
			m.SetNamespace(p.r.engine.Namespace)
		case m.GetNamespace() == "" && namespace == "":
			return invalid("%s: %s names no namespace, and neither does its assignment", m.origin, m.subject())
		case m.GetNamespace() == "":
			m.SetNamespace(namespace)
		}
		if first, twice := p.origins[m.id()]; twice {
			return invalid("%s: %s is also in %s", m.origin, m.subject(), first)
		}
		p.origins[m.id()] = m.origin
		if from != "" {
			p.adapted[m.id()] = from
		}
	}
	return nil
}

func (p *pass) namespaced(ctx context.Context, m manifest) (bool, error) {
	gvk := m.GroupVersionKind()
	if namespaced, ok := p.defined[gvk.GroupKind()]; ok {
		return namespaced, nil
	}
	mapping, err := p.r.mapping(ctx, gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// stake labels m as the assignment's where the assignment creates it, or has.
func (p *pass) stake(ctx context.Context, m manifest) error {
	live, err := p.look(ctx, m.Unstructured)
	if _, here := p.defined[m.GroupVersionKind().GroupKind()]; here && meta.IsNoMatchError(err) {
		live, err = nil, nil // no object can exist of a kind that the assignment is about to define
	}
	if err != nil {
		return err
	}
	if p.engines(m.GroupVersionKind().GroupKind()) && p.r.engine.Fit != nil {
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
		return failure(Conflict, "%s: %s belongs to assignment %s (take it out of one of the two)", m.origin, m.subject(), owner)
	}
	return nil
}

// applyStages applies what others build on, waits until new kinds are served, and applies the rest.
func (p *pass) applyStages(ctx context.Context) error {
	var first, rest []*unstructured.Unstructured
	for _, m := range p.objects {
		if utils.IsClusterDefinition(m.Unstructured) {
			first = append(first, m.Unstructured)
		} else {
			rest = append(rest, m.Unstructured)
		}
	}
	if _, err := p.manager.ApplyAll(ctx, first, ssa.ApplyOptions{}); err != nil {
		return err
	}
	for _, u := range first {
		if utils.IsCRD(u) {
			if err := p.established(ctx, u); err != nil {
				return err
			}
		}
	}
	if _, err := p.manager.ApplyAll(ctx, rest, ssa.ApplyOptions{}); err != nil {
		return err
	}
	for _, m := range p.objects {
		p.r.seen.agree(m, p.live[m.id()])
	}
	return nil
}

// How long, and how often, a new CustomResourceDefinition is looked at until it is served.
const (
	establishWithin = 30 * time.Second
	establishEvery  = 200 * time.Millisecond
)

// established waits until the kind that crd defines can be used.
func (p *pass) established(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	served := func(ctx context.Context) (bool, error) {
		live, err := p.look(ctx, crd)
		if err != nil || live == nil {
			return false, err
		}
		if res, err := status.Compute(live); err != nil || res.Status != status.CurrentStatus {
			delete(p.live, object.UnstructuredToObjMetadata(crd)) // to be asked for again
			return false, err
		}
		_, err = p.r.mapping(ctx, schema.GroupKind{Group: group, Kind: kind})
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

// assess says how the live objects are, all of which hold what their manifests say.
func (p *pass) assess(content digest.Digest) reconcilers.Result {
	res := reconcilers.Result{State: bundle.Compliant, Revision: content.String()}
	var unhealthy, unready []string
	for _, m := range p.objects {
		switch s, text := p.standing(m); s {
		case status.CurrentStatus:
		case status.FailedStatus:
			unhealthy = append(unhealthy, m.subject()+": "+text)
		default:
			unready = append(unready, m.subject()+": "+text)
		}
	}
	switch {
	case len(unhealthy) > 0:
		res.State, res.Reason, res.Fault = bundle.Failed, Unhealthy, reconcilers.FaultRelease
		res.Message = List(slices.Concat(unhealthy, unready), "; ")
	case len(unready) > 0:
		res.State, res.Reason, res.Message = bundle.Progressing, NotReady, List(unready, "; ")
	default:
		p.noteKept(&res)
	}
	return res
}
