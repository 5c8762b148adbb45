package kubernetes

import (
	"context"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/cli-utils/pkg/object"
)

var claimKind = schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}

// user is an object that keeps a namespace from being deleted.
type user struct {
	subject string
	ours    bool  // and being deleted
	unknown error // if objects of its kind may not be listed
}

// usedBy returns the first object found in a namespace that is neither the assignment's nor created automatically; without
// one the namespace may be deleted. It lists every namespaced kind, with one request each, which is acceptable since
// deletions are rare and cannot be undone. If a kind may not be listed, the namespace has to stay.
func usedBy(ctx context.Context, d *discovery.DiscoveryClient, c client.Client, owner, namespace string) (user, error) {
	lists, err := d.ServerPreferredNamespacedResourcesWithContext(ctx)
	if err != nil {
		return user{}, err
	}
	kinds := []schema.GroupVersionKind{claimKind} // the most precious first
	for _, l := range lists {
		for _, r := range l.APIResources {
			kind := schema.FromAPIVersionAndKind(l.GroupVersion, r.Kind)
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && !passing(kind.Kind) && kind != claimKind {
				kinds = append(kinds, kind)
			}
		}
	}
	for _, kind := range kinds {
		if by, err := userOfKind(ctx, c, owner, namespace, kind); err != nil || by.subject != "" || by.unknown != nil {
			return by, err
		}
	}
	return user{}, nil
}

// passing reports whether objects of a kind may be deleted together with their namespace.
func passing(kind string) bool {
	return kind == "Event" || kind == "Endpoints" || kind == "EndpointSlice"
}

func userOfKind(ctx context.Context, c client.Client, owner, namespace string, kind schema.GroupVersionKind) (user, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(500), client.Continue(list.Continue))
		if apierrors.IsForbidden(err) {
			return user{unknown: err}, nil
		}
		if err != nil {
			return user{}, err
		}
		for _, o := range list.Items {
			mine := o.Labels[OwnerLabel] == owner
			switch {
			case kind == claimKind:
				return user{subject: subjectOf(kind, o), ours: mine && o.DeletionTimestamp != nil}, nil
			case !mine && o.DeletionTimestamp == nil && !byItself(kind, o):
				return user{subject: subjectOf(kind, o)}, nil
			}
		}
		if list.Continue == "" {
			return user{}, nil
		}
	}
}

// byItself reports whether o exists because of another object, which is judged itself, or in every namespace.
func byItself(kind schema.GroupVersionKind, o metav1.PartialObjectMetadata) bool {
	switch {
	case len(o.OwnerReferences) > 0:
		return true
	case kind.Group != "":
		return false
	case kind.Kind == "ServiceAccount":
		return o.Name == "default"
	case kind.Kind == "ConfigMap":
		return o.Name == "kube-root-ca.crt"
	case kind.Kind == "Secret":
		return o.Annotations["kubernetes.io/service-account.name"] != "" && strings.Contains(o.Name, "-token-")
	}
	return false
}

func subjectOf(kind schema.GroupVersionKind, o metav1.PartialObjectMetadata) string {
	return utils.FmtObjMetadata(object.ObjMetadata{GroupKind: kind.GroupKind(), Namespace: o.Namespace, Name: o.Name})
}
