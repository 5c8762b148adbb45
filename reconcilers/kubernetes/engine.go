package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/opencontainers/go-digest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// Engine is the part of an adapter whose engine runs in the cluster and takes its orders from objects, as Flux
// does. The objects are applied, compared and deleted like all others.
//
// An object of a version that the cluster does not serve is applied in the one that it does; fields that
// this version lacks fail with the reason VersionNotServed. An object that is being deleted keeps the
// assignment from being compliant, and its namespace from going, until the engine has let it go.
type Engine struct {
	// Owns reports whether a kind is the engine's own. The struct's comment is about these kinds alone.
	Owns func(schema.GroupKind) bool
	// Install is what a person does if one of the kinds is not served, such as "install Flux".
	Install string
	// Judge returns the state of one of an assignment's objects. All of them match their manifests.
	Judge func(ctx context.Context, c Cluster, o *unstructured.Unstructured) (Verdict, error)

	// Embed, if set, returns the objects to apply for an assignment with embedded delivery, whose content the engine takes
	// from the agent's endpoint.
	Embed func(rewrite.Input) (rewrite.Result, error)
	// Permits, if set, returns an error if the engine's own settings forbid what an assignment with embedded delivery
	// needs. Apply calls it with the objects to be applied, in their namespaces, before it changes anything.
	Permits func(ctx context.Context, c Cluster, objects []*unstructured.Unstructured) error
	// Substitute, if set, has an object of an assignment with site values take variables from rewrite.SiteConfigMap in
	// its namespace, if it can. It reports whether the object does.
	Substitute func(o *unstructured.Unstructured, a bundle.Assignment) bool
	// Namespace is the namespace of the engine's objects that name none; empty means the assignment's.
	Namespace string
	// Fit, if set, removes from a manifest what the engine removes from its live object (nil if there is none) without
	// a change of meaning. That is no drift.
	Fit func(o, live *unstructured.Unstructured)
	// Drive, if set, makes requests to the engine that no manifest can, such as to reconcile again, by View.Write.
	// Apply calls it when all objects match their manifests, and judges afterwards. Content counts as
	// applied once Drive was called for it without an error.
	Drive func(ctx context.Context, v View) error
	// Release, if set, prepares one of the engine's objects for deletion, and reports whether it is ready. It is
	// called again until the object is.
	Release func(ctx context.Context, v View, o *unstructured.Unstructured) (ready bool, err error)
	// Holds, if set, reports whether the engine's other objects need those of a kind until they are gone.
	Holds func(schema.GroupKind) bool
}

// View is an engine's view of an assignment.
type View struct {
	// Objects are the live objects, in the order of their manifests.
	Objects []*unstructured.Unstructured
	// Fresh is for Drive: it is true until all objects of this content have been applied once.
	Fresh bool

	access *access
}

// Get returns an object of the cluster in the served version, or nil if there is no such object or kind. For one of the
// assignment's own objects, it returns the state in Objects.
func (v View) Get(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	mapping, err := v.access.r.mapping(ctx, kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	like := &unstructured.Unstructured{}
	like.SetGroupVersionKind(mapping.GroupVersionKind)
	like.SetNamespace(key.Namespace)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		like.SetNamespace("")
	}
	like.SetName(key.Name)
	return v.access.look(ctx, like)
}

// Has reports whether the assignment holds an object.
func (v View) Has(id object.ObjMetadata) bool {
	return v.access.plan.has(id)
}

// Changed reports whether this call has changed an object.
func (v View) Changed(id object.ObjMetadata) bool {
	name := utils.FmtObjMetadata(id)
	return slices.ContainsFunc(v.access.changes, func(c reconcilers.Change) bool { return c.Object == name })
}

// mostWrites bounds the attempts to write to an object that others are writing to as well.
const mostWrites = 5

// Write calls fields with a live object and merges the result into the object, with the assignment's access; it writes
// nothing if the result is nil. If somebody has written to the object since it was read, fields is called again with the
// new state. Write returns an error if the object was deleted or recreated meanwhile; another apply resolves that.
//
// The fields must differ from those of the manifest. They never count as drift, and stay with the object.
func (v View) Write(ctx context.Context, o *unstructured.Unstructured, fields func(*unstructured.Unstructured) (map[string]any, error)) error {
	id := object.UnstructuredToObjMetadata(o)
	for try := 1; ; try++ {
		patch, err := fields(o)
		if patch == nil || err != nil {
			return err
		}
		err = v.access.merge(ctx, o, patch)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) || try == mostWrites {
			return err
		}
		delete(v.access.live, id)
		now, err := v.access.look(ctx, o)
		switch {
		case err != nil:
			return err
		case now == nil || now.GetUID() != o.GetUID():
			return waiting(NotApplied, fmt.Errorf("%s was deleted meanwhile", utils.FmtUnstructured(o)))
		}
		o = now
	}
}

// merge writes fields into a live object, on condition that nobody has written to it since it was read. If the object was
// known to match its manifest, that stays known.
func (a *access) merge(ctx context.Context, live *unstructured.Unstructured, fields map[string]any) error {
	metadata, _ := fields["metadata"].(map[string]any)
	condition := map[string]any{"resourceVersion": live.GetResourceVersion()}
	maps.Copy(condition, metadata)
	fields = maps.Clone(fields)
	fields["metadata"] = condition
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	id := object.UnstructuredToObjMetadata(live)
	i := slices.IndexFunc(a.plan.objects, func(m manifest) bool { return m.id() == id })
	agreed := i >= 0 && a.r.seen.same(a.plan.objects[i], live)
	err = a.acting(id).Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager(a.owner)))
	if err != nil {
		return &objectError{origin: cmp.Or(a.plan.origins[id], utils.FmtUnstructured(live)), err: err}
	}
	a.live[id] = live
	if agreed {
		a.r.seen.agree(a.plan.objects[i], live)
	}
	return nil
}

// undeclared finds the field names in an API server's error about an object whose version lacks those fields.
var undeclared = lazyregexp.New(`(\.\S+): field not declared in schema`)

// explain recognizes an error about a field that the served version lacks.
func (s *session) explain(u *unstructured.Unstructured, err error) error {
	id := object.UnstructuredToObjMetadata(u)
	from, adapted := s.plan.adapted[id]
	var answer apierrors.APIStatus
	if !adapted || !errors.As(err, &answer) {
		return err
	}
	var fields []string
	for _, found := range undeclared.FindAllStringSubmatch(answer.Status().Message, -1) {
		fields = append(fields, found[1])
	}
	if len(fields) == 0 {
		return err
	}
	return reconcilers.ReleaseError(VersionNotServed, "%s: %s is written for %s, and %s, which the cluster serves, lacks %s",
		s.plan.origins[id], utils.FmtUnstructured(u), from, u.GroupVersionKind().Version, strings.Join(fields, ", "))
}

// judge returns the state of the live objects, all of which match their manifests. Kept names the namespaces that were
// not deleted.
func (p *pass) judge(ctx context.Context, content digest.Digest, kept []string) reconcilers.Result {
	if p.r.engine == nil {
		return noteKept(p.plan.assess(content, p.live), kept)
	}
	if res, err := p.leaving(ctx); err != nil {
		return p.r.failed(ctx, err)
	} else if res.State != "" {
		return res
	}
	v := p.view()
	res, err := JudgeAll(ctx, v, v.Objects, content, p.r.engine.Judge)
	if err != nil {
		res = p.r.failed(ctx, err)
	}
	if res.State == bundle.Compliant {
		res = noteKept(p.plan.confirm(res, p.live), kept)
	}
	if note := p.plan.adaptedNote(); note != "" && res.State != bundle.Failed {
		res.Message = reconcilers.Clip(strings.TrimPrefix(res.Message+"; "+note, "; "))
	}
	return res
}

func (a *access) view() View {
	view := View{access: a}
	for _, m := range a.plan.objects {
		view.Objects = append(view.Objects, a.live[m.id()])
	}
	return view
}

// drive calls the engine's Drive, if there is one.
func (a *access) drive(ctx context.Context, fresh bool) error {
	if a.r.engine == nil || a.r.engine.Drive == nil {
		return nil
	}
	v := a.view()
	v.Fresh = fresh
	return a.r.engine.Drive(ctx, v)
}

// leaving returns the state of an assignment whose former objects are not gone yet. The state is empty if no such object
// counts.
func (p *pass) leaving(ctx context.Context) (res reconcilers.Result, err error) {
	var engines, due []entry
	held := false
	for _, e := range p.inventory.without(p.plan.objects, p.shared) {
		e, err := p.r.served(ctx, e)
		if err != nil {
			return res, err
		}
		if e.Version == "" {
			continue
		}
		if err := p.actFor(e); err != nil {
			return res, err
		}
		live, err := p.look(ctx, e.bare())
		switch {
		case err != nil:
			return res, err
		case e.Shared && live != nil && usedBySelf(live, p.owner):
			due = append(due, e)
		case live == nil || live.GetLabels()[OwnerLabel] != p.owner:
		case p.plan.engines(e.groupKind()):
			engines, held = append(engines, e), held || live.GetDeletionTimestamp() == nil
		case e.isNamespace() && live.GetDeletionTimestamp() == nil && !p.plan.occupied(e.Name):
			due = append(due, e)
		}
	}
	switch {
	case held: // the next apply deletes it, if it is ready
		return reconcilers.Waiting(Terminating, fmt.Errorf("%s cannot be deleted yet", names(engines))), nil
	case len(engines) > 0:
		return reconcilers.Result{State: bundle.Progressing, Reason: Terminating, Message: reconcilers.Clip(names(engines))}, nil
	case len(due) > 0: // the next apply deletes it, as nothing of the engine is in it or needs it any more
		return reconcilers.Waiting(Terminating, fmt.Errorf("%s can go now", names(due))), nil
	}
	return res, nil
}
