package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/reconcilers"
)

// liveObjects are the objects of the cluster as they were read last; nil for one that is known to be absent.
type liveObjects map[object.ObjMetadata]*unstructured.Unstructured

// session is the client that ssa works with during one call. It reads each object once, keeps its
// newest state, lists the changes, and keeps ssa, which always forces, from taking fields that another manager
// owns.
type session struct {
	client.Client
	actors  map[object.ObjMetadata]client.Client // for objects with another client than Client
	plan    *plan
	live    liveObjects
	asked   map[object.ObjMetadata]*unstructured.Unstructured // the live objects as ssa got them, to compare with
	ours    map[object.ObjMetadata]bool                       // created by the assignment
	changes []reconcilers.Change
}

func newSession(c client.Client, p *plan) *session {
	return &session{
		Client: c,
		plan:   p,
		actors: map[object.ObjMetadata]client.Client{},
		live:   liveObjects{},
		asked:  map[object.ObjMetadata]*unstructured.Unstructured{},
		ours:   map[object.ObjMetadata]bool{},
	}
}

// acting returns the client that acts on an object for the assignment.
func (s *session) acting(id object.ObjMetadata) client.Client {
	if c := s.actors[id]; c != nil {
		return c
	}
	return s.Client
}

// look returns the newest known state of the object that like names, or nil where there is none.
func (s *session) look(ctx context.Context, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	id := object.UnstructuredToObjMetadata(like)
	if live, known := s.live[id]; known {
		return live, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(like.GroupVersionKind())
	err := s.acting(id).Get(ctx, client.ObjectKeyFromObject(like), live)
	switch {
	case apierrors.IsNotFound(err):
		s.live[id] = nil
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", utils.FmtObjMetadata(id), err)
	}
	s.live[id] = live
	return live, nil
}

// Get is for ssa, which asks for every object before it applies it.
func (s *session) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s: %T is not unstructured", key, obj)
	}
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	live, err := s.look(ctx, u)
	if err != nil {
		return err
	}
	if live == nil {
		return apierrors.NewNotFound(metav1.SchemeGroupVersion.WithResource("").GroupResource(), key.String())
	}
	live.DeepCopyInto(u)
	s.asked[object.UnstructuredToObjMetadata(u)] = u
	return nil
}

// Patch applies without force, except to put back fields of our objects that were overwritten by hand.
func (s *session) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s: %T is not unstructured", obj.GetName(), obj)
	}
	var how client.PatchOptions
	how.ApplyOptions(opts)
	how.Force = nil
	id, before := object.UnstructuredToObjMetadata(u), u.DeepCopy()
	err := s.send(ctx, u, patch, how)
	for try := 1; err == nil && len(how.DryRun) > 0 && s.outdated(u) && try < mostReads; try++ {
		if err = s.readAgain(ctx, before); err == nil && s.outdated(u) {
			before.DeepCopyInto(u)
			err = s.send(ctx, u, patch, how)
		}
	}
	if err != nil {
		return s.explain(before, &objectError{origin: s.plan.origins[id], secret: utils.IsSecret(before), err: err})
	}
	if len(how.DryRun) == 0 {
		action := reconcilers.Configured
		if s.live[id] == nil {
			action = reconcilers.Created
		}
		s.change(id, action)
		s.live[id] = u.DeepCopy()
	}
	return nil
}

// send sends one patch, and takes back by force fields of our objects that were overwritten by hand.
func (s *session) send(ctx context.Context, u *unstructured.Unstructured, patch client.Patch, how client.PatchOptions) error {
	id, before := object.UnstructuredToObjMetadata(u), u.DeepCopy()
	err := s.acting(id).Patch(ctx, u, patch, &how)
	if s.ours[id] && overwrittenByHand(err) {
		force := true
		how.Force = &force
		before.DeepCopyInto(u)
		err = s.acting(id).Patch(ctx, u, patch, &how)
	}
	return err
}

// outdated reports whether a dry run was made of another state of an object than the one that is known.
func (s *session) outdated(result *unstructured.Unstructured) bool {
	live := s.live[object.UnstructuredToObjMetadata(result)]
	return live != nil && live.GetResourceVersion() != result.GetResourceVersion()
}

// mostReads bounds how often an object is read that others keep writing to.
const mostReads = 5

// readAgain reads an object that somebody has written to between its reading and a dry run, so that the two
// which ssa compares differ by the manifest alone.
func (s *session) readAgain(ctx context.Context, like *unstructured.Unstructured) error {
	id := object.UnstructuredToObjMetadata(like)
	delete(s.live, id)
	live, err := s.look(ctx, like)
	if err == nil && live != nil && s.asked[id] != nil {
		live.DeepCopyInto(s.asked[id])
	}
	return err
}

// Delete deletes the object that was looked at, and no other that has taken its name since.
func (s *session) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	uid := obj.GetUID()
	err := s.acting(idOf(obj)).Delete(ctx, obj, append(opts, client.Preconditions{UID: &uid})...)
	if err != nil {
		return err
	}
	s.change(idOf(obj), reconcilers.Deleted)
	return nil
}

func idOf(obj client.Object) object.ObjMetadata {
	return object.ObjMetadata{GroupKind: obj.GetObjectKind().GroupVersionKind().GroupKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func (s *session) change(id object.ObjMetadata, action reconcilers.Action) {
	s.changes = append(s.changes, reconcilers.Change{Object: utils.FmtObjMetadata(id), Action: action})
}

// objectError is an API server's error about one object. Its text is withheld for a Secret, which it may quote.
type objectError struct {
	origin string
	secret bool
	err    error
}

func (e *objectError) Unwrap() error { return e.err }

func (e *objectError) Error() string {
	text := e.err.Error()
	var answer apierrors.APIStatus
	if e.secret && errors.As(e.err, &answer) {
		text = "the API server refuses it, in words that are withheld as they may quote the Secret"
		if words := denied(e.err); words != "" {
			text = "forbidden: " + words
		}
	}
	if e.origin == "" {
		return text
	}
	return e.origin + ": " + text
}

// claim is one field that an apply could not have, and who owns it.
type claim struct {
	manager, field string
	// applied is true for an owner that applies, and so will come back to the field; the others have
	// written it once.
	applied bool
}

// claims returns what an apply conflicts with. The API server tells one sort of owner from the other by
// its wording alone: `conflict with "kubectl-edit" using v1`, and without "using" for those who apply.
func claims(err error) []claim {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []claim
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		c := claim{manager: cause.Message, field: cause.Field, applied: true}
		text := strings.TrimPrefix(cause.Message, "conflict with ")
		if quoted, err := strconv.QuotedPrefix(text); err == nil {
			c.manager, _ = strconv.Unquote(quoted)
			c.applied = !strings.Contains(text[len(quoted):], " using ")
		}
		out = append(out, c)
	}
	return out
}

// claimedMeanwhile reports whether err is about the label of another assignment that made the same object,
// such as a Namespace, after we had found none. It is there now, and can be shared if any can.
func claimedMeanwhile(err error) bool {
	return slices.ContainsFunc(claims(err), func(c claim) bool { return c.field == ".metadata.labels."+OwnerLabel })
}

// overwrittenByHand reports whether err is a conflict with nobody who applies.
func overwrittenByHand(err error) bool {
	found := claims(err)
	for _, c := range found {
		if c.applied {
			return false
		}
	}
	return len(found) > 0
}
