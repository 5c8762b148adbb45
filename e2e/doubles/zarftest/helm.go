package zarftest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is the one that Zarf has Helm use.
const fieldManager = "zarf"

// releaseName is that of ChartFromZarfManifest.
func releaseName(pkg, component, manifest string) string {
	sum := sha1.Sum([]byte("raw-" + pkg + "-" + component + "-" + manifest))
	return "zarf-" + hex.EncodeToString(sum[:])
}

type helmRelease struct{ namespace, name string }

// helm is as much of Helm as Zarf's manifests need: server-side apply, revisions in Secrets, rollback.
type helm struct {
	*standIn
	client  client.Client
	release helmRelease
	pkg     string
}

// stored is a revision as Helm keeps it.
type stored struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Version   int               `json:"version"`
	Manifest  string            `json:"manifest"`
	Info      map[string]string `json:"info"`
}

func (h *helm) history(ctx context.Context) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	err := h.client.List(ctx, list, client.InNamespace(h.release.namespace), client.MatchingLabels{"owner": "helm", "name": h.release.name})
	slices.SortFunc(list.Items, func(a, b corev1.Secret) int { return cmp.Compare(version(a), version(b)) })
	return list.Items, err
}

func version(s corev1.Secret) int {
	n, _ := strconv.Atoi(s.Labels["version"])
	return n
}

// upgrade is InstallOrUpgradeChart with what Helm does in it.
func (h *helm) upgrade(ctx context.Context, manifests string) error {
	if err := ensureNamespace(ctx, h.client, h.release.namespace); err != nil {
		return err
	}
	revisions, err := h.history(ctx)
	if err != nil {
		return err
	}
	var deployed *corev1.Secret
	for i := range revisions {
		if revisions[i].Labels["status"] == "deployed" {
			deployed = &revisions[i]
		}
	}
	if err = h.revise(ctx, revisions, deployed, manifests); err == nil {
		return nil
	}
	err = fmt.Errorf("unable to install chart %w: if you need to remove the failed chart, use `zarf package remove`", err)
	if deployed == nil || ctx.Err() != nil {
		return err
	}
	h.log.Info("performing Helm rollback", "chart", h.release.name)
	return errors.Join(err, h.rollback(ctx, deployed))
}

func (h *helm) revise(ctx context.Context, revisions []corev1.Secret, deployed *corev1.Secret, manifests string) error {
	status, number, before := "pending-install", 1, ""
	if n := len(revisions); n > 0 {
		h.log.Info("performing Helm upgrade", "chart", h.release.name)
		status, number = "pending-upgrade", version(revisions[n-1])+1
		if strings.HasPrefix(revisions[n-1].Labels["status"], "pending-") {
			return errors.New("another operation (install/upgrade/rollback) is in progress")
		}
	} else {
		h.log.Info("performing Helm install", "chart", h.release.name)
	}
	if deployed != nil {
		before = unpack(deployed).Manifest
	} else if n := len(revisions); n > 0 {
		before = unpack(&revisions[n-1]).Manifest // as Helm does with one that failed or was superseded
	}
	manifest, err := h.render(manifests)
	if err != nil {
		return err
	}
	if err := h.write(ctx, number, status, manifest); err != nil {
		return err
	}
	err = h.apply(ctx, manifest, h.force, true)
	if err == nil {
		err = h.prune(ctx, before, manifest)
	}
	if err != nil {
		return errors.Join(err, h.write(context.WithoutCancel(ctx), number, "failed", manifest))
	}
	if deployed != nil {
		if err := h.mark(ctx, deployed, "superseded"); err != nil {
			return err
		}
	}
	h.dies(DieLast)
	return h.write(ctx, number, "deployed", manifest)
}

func (h *helm) rollback(ctx context.Context, to *corev1.Secret) error {
	revisions, err := h.history(ctx)
	if err != nil {
		return err
	}
	manifest := unpack(to).Manifest
	if err := h.apply(ctx, manifest, h.force, false); err != nil {
		return fmt.Errorf("unable to rollback: %w", err)
	}
	if err := h.mark(ctx, to, "superseded"); err != nil {
		return err
	}
	return h.write(ctx, version(revisions[len(revisions)-1])+1, "deployed", manifest)
}

// render is Zarf's post-renderer: it labels each object.
func (h *helm) render(manifests string) (string, error) {
	var out strings.Builder
	for u, err := range documents(manifests) {
		if err != nil {
			return "", err
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["zarf.dev/package"] = h.pkg
		u.SetLabels(labels)
		fmt.Fprintf(&out, "---\n%s\n", mustJSON(u.Object))
	}
	return out.String(), nil
}

// documents yields the objects of a manifest.
func documents(manifests string) func(func(*unstructured.Unstructured, error) bool) {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
		for {
			u := &unstructured.Unstructured{}
			err := docs.Decode(&u.Object)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && len(u.Object) == 0 {
				continue
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}

func (h *helm) apply(ctx context.Context, manifest string, force, interruptible bool) error {
	n := 0
	for u, err := range documents(manifest) {
		if err != nil {
			return err
		}
		if err := h.own(ctx, u); err != nil {
			return err
		}
		options := []client.ApplyOption{client.FieldOwner(fieldManager)}
		if force {
			options = append(options, client.ForceOwnership)
		}
		if err := h.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...); err != nil {
			return fmt.Errorf("failed to apply %s/%s: %w", u.GetKind(), u.GetName(), err)
		}
		if n++; n == 1 && interruptible {
			h.interrupted(ctx)
		}
	}
	return ctx.Err()
}

// own marks an object as the release's, and refuses one that is another's.
func (h *helm) own(ctx context.Context, u *unstructured.Unstructured) error {
	namespaced, err := h.client.IsObjectNamespaced(u)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("unable to build kubernetes objects from release manifest: resource mapping not found for name: %q namespace: %q from \"\": no matches for kind %q in version %q", u.GetName(), u.GetNamespace(), u.GetKind(), u.GetAPIVersion())
	}
	if err != nil {
		return err
	}
	if namespaced && u.GetNamespace() == "" {
		u.SetNamespace(h.release.namespace)
	}
	live := u.DeepCopy()
	err = h.client.Get(ctx, client.ObjectKeyFromObject(u), live)
	if err == nil && live.GetAnnotations()["meta.helm.sh/release-name"] != h.release.name {
		return fmt.Errorf("%s %q in namespace %q exists and cannot be imported into the current release: invalid ownership metadata", u.GetKind(), u.GetName(), u.GetNamespace())
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "Helm"
	annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"] = h.release.name, h.release.namespace
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	return nil
}

// prune deletes what the revision before has and this one has not.
func (h *helm) prune(ctx context.Context, before, after string) error {
	kept := map[string]bool{}
	for u := range documents(after) {
		kept[u.GetKind()+"/"+u.GetNamespace()+"/"+u.GetName()] = true
	}
	for u := range documents(before) {
		if kept[u.GetKind()+"/"+u.GetNamespace()+"/"+u.GetName()] {
			continue
		}
		if u.GetNamespace() == "" {
			u.SetNamespace(h.release.namespace)
		}
		if err := client.IgnoreNotFound(h.client.Delete(ctx, u)); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil
}

func (h *helm) uninstall(ctx context.Context) error {
	revisions, err := h.history(ctx)
	if err != nil || len(revisions) == 0 {
		return err
	}
	if err := h.prune(ctx, unpack(&revisions[len(revisions)-1]).Manifest, ""); err != nil {
		return err
	}
	for _, s := range revisions {
		if err := client.IgnoreNotFound(h.client.Delete(ctx, &s)); err != nil {
			return err
		}
	}
	return nil
}

// write creates or replaces a revision.
func (h *helm) write(ctx context.Context, number int, status, manifest string) error {
	r := stored{Name: h.release.name, Namespace: h.release.namespace, Version: number, Manifest: manifest, Info: map[string]string{"status": status}}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(mustJSON(r)) // into memory
	_ = w.Close()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.release.namespace, Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", h.release.name, number)}}
	err := h.client.Get(ctx, client.ObjectKeyFromObject(s), s)
	s.Type = "helm.sh/release.v1"
	s.Labels = map[string]string{"name": h.release.name, "owner": "helm", "status": status, "version": strconv.Itoa(number)}
	s.Data = map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))}
	if apierrors.IsNotFound(err) {
		return h.client.Create(ctx, s)
	}
	if err != nil {
		return err
	}
	return h.client.Update(ctx, s)
}

func (h *helm) mark(ctx context.Context, s *corev1.Secret, status string) error {
	s.Labels["status"] = status
	return h.client.Update(ctx, s)
}

func unpack(s *corev1.Secret) stored {
	var r stored
	packed, _ := base64.StdEncoding.DecodeString(string(s.Data["release"]))
	if in, err := gzip.NewReader(bytes.NewReader(packed)); err == nil {
		_ = json.NewDecoder(in).Decode(&r) // a damaged release has no manifest
	}
	return r
}
