package zarf

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dropLeftovers deletes the objects of interrupted or failed deploys that the successful deploy after them does not have.
// Helm compares a revision only with the last deployed one, so that it would never delete these objects. Calling it again
// changes nothing.
func (j *job) dropLeftovers(ctx context.Context, def *definition) error {
	for _, comp := range def.selected() {
		for _, rel := range releases(def.Name, comp) {
			revs, err := readRevisions(ctx, j.r.client, rel)
			if err != nil {
				return err
			}
			if err := revs.dropAllBut(ctx, j.r.client, rel, revs.deployed()); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropAllBut deletes the objects of other revisions that kept does not have. It skips superseded revisions, whose objects
// Helm has deleted itself. If kept is nil, it deletes nothing.
func (rs revisions) dropAllBut(ctx context.Context, c client.Client, rel release, kept *corev1.Secret) error {
	if kept == nil {
		return nil
	}
	wanted := map[string]bool{}
	hold := func(u *unstructured.Unstructured) error { wanted[identify(u)] = true; return nil }
	if err := eachObject(c, kept, rel.namespace, hold); err != nil {
		return err
	}
	drop := func(u *unstructured.Unstructured) error {
		if wanted[identify(u)] {
			return nil
		}
		return dropLeftover(ctx, c, rel, u)
	}
	for _, r := range rs {
		if r.Name == kept.Name || r.Labels["status"] == "superseded" {
			continue
		}
		if err := eachObject(c, r, rel.namespace, drop); err != nil {
			return err
		}
	}
	return nil
}

// eachObject calls f for the objects of a revision whose kinds the cluster knows.
func eachObject(c client.Client, revision *corev1.Secret, namespace string, f func(*unstructured.Unstructured) error) error {
	manifest, err := manifestOf(revision)
	if err != nil {
		return err
	}
	for u, err := range documents(manifest) {
		if err == nil {
			err = settle(c, u, namespace)
		}
		if meta.IsNoMatchError(err) {
			continue
		}
		if err == nil {
			err = f(u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// identify returns an object's identity without the version, since the same object may be written in several.
func identify(u *unstructured.Unstructured) string {
	return u.GroupVersionKind().Group + " " + describe(u)
}

// dropLeftover deletes an object that still has the release's marks and no annotation to keep it.
func dropLeftover(ctx context.Context, c client.Client, rel release, u *unstructured.Unstructured) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return client.IgnoreNotFound(err)
	}
	marks := u.GetAnnotations()
	if marks["meta.helm.sh/release-name"] != rel.name || marks["meta.helm.sh/release-namespace"] != rel.namespace || marks["helm.sh/resource-policy"] == "keep" {
		return nil
	}
	uid := u.GetUID()
	return client.IgnoreNotFound(c.Delete(ctx, u, client.Preconditions{UID: &uid}))
}

// settle sets the namespace in which Helm creates an object. It returns a NoMatch error if the cluster does not serve the
// kind.
func settle(c client.Client, u *unstructured.Unstructured, namespace string) error {
	namespaced, err := c.IsObjectNamespaced(u)
	if err == nil && namespaced && u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	return err
}

// documents yields the objects of a manifest, up to the first error.
func documents(manifest string) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
		for {
			u := &unstructured.Unstructured{}
			err := docs.Decode(&u.Object)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && len(u.Object) == 0:
				continue
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}
