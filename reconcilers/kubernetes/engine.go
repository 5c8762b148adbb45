package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	"github.com/wherry-dev/wherry/reconcilers"
)

// Engine is what an adapter adds whose engine runs in the cluster and is told by objects what to do, as
// Flux is. The objects are applied, compared and taken away as all others are.
//
// An object of a version that the cluster does not serve is applied in the one that it does; fields that
// this version lacks fail with the reason VersionNotServed. An object that is being deleted keeps the
// assignment from being compliant, and its namespace from going, until the engine has let it go.
type Engine struct {
	// Owns tells the engine's own kinds. What the struct's comment says holds for them alone.
	Owns func(schema.GroupKind) bool
	// Install is what a person does where one of the kinds is not served, such as "install Flux".
	Install string
	// Request returns the annotations that ask the engine to look again at an object of its own which an apply
	// has left as it was, or none. It may be nil.
	Request func(o *unstructured.Unstructured, done Applied) map[string]string
	// Judge says how an assignment stands, all objects of which are as their manifests say.
	Judge func(ctx context.Context, v View) reconcilers.Result

	// Namespace is where the engine's objects go that name none; empty is the assignment's.
	Namespace string
	// Fit, where it is set, takes from a manifest what the engine takes from its live object, nil where there
	// is none, without another meaning: that must not be taken for drift.
	Fit func(o, live *unstructured.Unstructured)
	// Drive, where it is set, tells the engine by View.Write what no manifest says. Apply calls it when all
	// objects are as their manifests say, and judges afterwards.
	Drive func(ctx context.Context, v View) error
	// Release, where it is set, makes one of the engine's objects ready to be deleted.
	Release func(ctx context.Context, v View, o *unstructured.Unstructured) error
	// Holds, where it is set, tells which of the engine's kinds its others need until they have gone.
	Holds func(schema.GroupKind) bool
}

// View is what a judge sees of an assignment.
type View struct {
	Content digest.Digest
	// Objects are the live ones, in the order of their manifests.
	Objects []*unstructured.Unstructured

	pass *pass
}

// Get returns an object of the cluster in the version that is served, or nil where there is none, or none
// of that kind can be. Of the assignment's own objects it is the state that Objects has.
func (v View) Get(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	mapping, err := v.pass.r.mapping(ctx, kind)
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
	return v.pass.look(ctx, like)
}

// Changed reports whether this call has changed an object.
func (v View) Changed(o *unstructured.Unstructured) bool {
	name := utils.FmtUnstructured(o)
	return slices.ContainsFunc(v.pass.changes, func(c reconcilers.Change) bool { return c.Object == name })
}

// Write merges fields into a live object, with the assignment's access, unless somebody has written to it
// since it was read: the error then is apierrors.IsConflict, and Again reads it anew. The fields must be
// others than those of the manifest. They do not count as the assignment's, and are left with the object.
func (v View) Write(ctx context.Context, o *unstructured.Unstructured, fields map[string]any) error {
	fields = maps.Clone(fields)
	metadata, _ := fields["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = o.GetResourceVersion()
	fields["metadata"] = metadata
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	id := object.UnstructuredToObjMetadata(o)
	err = v.pass.acting(id).Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(driver))
	if err != nil {
		return fmt.Errorf("%s: %w", utils.FmtUnstructured(o), err)
	}
	v.pass.live[id] = o
	return nil
}

// driver is the field manager of what an engine is told by View.Write.
const driver = "wherry-agent"

// Again reads an object anew; nil where it has gone.
func (v View) Again(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	delete(v.pass.live, object.UnstructuredToObjMetadata(o))
	return v.pass.look(ctx, o)
}

// Failed is the result of a judge that could not ask the API server.
func (v View) Failed(ctx context.Context, err error) reconcilers.Result { return failed(ctx, err) }

// engines reports whether a kind is the engine's, where there is one.
func (p *pass) engines(kind schema.GroupKind) bool {
	_, here := p.defined[kind]
	return p.r.engine != nil && !here && p.r.engine.Owns(kind)
}

// adapt puts an object of the engine into the version that the cluster serves, and returns the one that its
// manifest names where that is another.
func (p *pass) adapt(ctx context.Context, m manifest) (from string, err error) {
	gvk := m.GroupVersionKind()
	if !p.engines(gvk.GroupKind()) {
		return "", nil
	}
	served, err := p.r.mapping(ctx, gvk.GroupKind(), gvk.Version) // which prefers that version, no more
	if meta.IsNoMatchError(err) {
		served, err = p.r.mapping(ctx, gvk.GroupKind())
	}
	switch {
	case meta.IsNoMatchError(err):
		return "", &reasonError{reason: KindNotServed, err: fmt.Errorf("%s: %s: the cluster does not serve %s: %s", m.origin, m.subject(), gvk.GroupKind(), p.r.engine.Install)}
	case err != nil:
		return "", err
	case served.GroupVersionKind == gvk:
		return "", nil
	}
	m.SetGroupVersionKind(served.GroupVersionKind)
	return gvk.Version, nil
}

// undeclared finds the fields in what an API server says about an object with fields that its version
// does not have.
var undeclared = regexp.MustCompile(`(\.\S+): field not declared in schema`)

// explain tells a field that went with a version from other mistakes.
func (s *session) explain(u *unstructured.Unstructured, err error) error {
	id := object.UnstructuredToObjMetadata(u)
	from, adapted := s.adapted[id]
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
	return &reasonError{reason: VersionNotServed, err: fmt.Errorf("%s: %s is written for %s, and %s, which the cluster serves, lacks %s",
		s.origins[id], utils.FmtUnstructured(u), from, u.GroupVersionKind().Version, strings.Join(fields, ", "))}
}

// judge says how the live objects are, all of which hold what their manifests say.
func (p *pass) judge(ctx context.Context, content digest.Digest) reconcilers.Result {
	if p.r.engine == nil {
		return p.assess(content)
	}
	if res, err := p.leaving(ctx); err != nil {
		return failed(ctx, err)
	} else if res.State != "" {
		return res
	}
	res := p.r.engine.Judge(ctx, p.view(content))
	if res.State == bundle.Compliant {
		p.confirm(&res)
	}
	if res.State == bundle.Compliant {
		p.noteKept(&res)
	}
	if note := p.noteAdapted(); note != "" && res.State != bundle.Failed {
		res.Message = reconcilers.Clip(strings.TrimPrefix(res.Message+"; "+note, "; "))
	}
	return res
}

func (p *pass) view(content digest.Digest) View {
	view := View{Content: content, pass: p}
	for _, m := range p.objects {
		view.Objects = append(view.Objects, p.live[m.id()])
	}
	return view
}

// drive tells the engine, where there is one, what it has to be told beside its objects.
func (p *pass) drive(ctx context.Context, content digest.Digest) error {
	if p.r.engine == nil || p.r.engine.Drive == nil {
		return nil
	}
	return p.r.engine.Drive(ctx, p.view(content))
}

// leaving is how an assignment stands because of what it no longer holds and has not gone; the state is
// empty where nothing is left that counts.
func (p *pass) leaving(ctx context.Context) (res reconcilers.Result, err error) {
	var engines, due []entry
	for _, e := range p.inventory.without(p.objects) {
		e, err := p.served(ctx, e)
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
		case live == nil || live.GetLabels()[OwnerLabel] != p.owner:
		case p.engines(e.groupKind()):
			engines = append(engines, e)
		case e.isNamespace() && live.GetDeletionTimestamp() == nil && !p.occupied(e.Name):
			due = append(due, e)
		}
	}
	switch {
	case len(engines) > 0:
		return reconcilers.Result{State: bundle.Progressing, Reason: Terminating, Message: reconcilers.Clip(names(engines))}, nil
	case len(due) > 0: // the next apply deletes it, as nothing of the engine is in it any more
		return reconcilers.Waiting(Terminating, fmt.Errorf("%s can go now", names(due))), nil
	}
	return res, nil
}

// noteAdapted says which kinds were applied in another version than their manifests name.
func (p *pass) noteAdapted() string {
	kinds := map[string]bool{}
	for _, m := range p.objects {
		if from, ok := p.adapted[m.id()]; ok {
			kinds[fmt.Sprintf("%s applied as %s, not %s", m.GetKind(), m.GroupVersionKind().Version, from)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), "; ")
}
