package rewrite

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Groups of Flux's kinds.
const (
	sourceGroup    = "source.toolkit.fluxcd.io"
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
)

// CAName is the name of the Secrets by which Flux verifies the endpoint.
const CAName = "wherry-serve-ca"

// kept are the fields of a source's specification that stay.
var kept = []string{"interval", "timeout", "suspend"}

// Flux replaces the source of the assignment's Kustomizations by an OCIRepository of the same name, and the sources of its
// HelmReleases by OCIRepositories of the embedded charts. Without a Kustomization the embedded manifests are among the
// objects of the result.
func Flux(in Input) (Result, error) {
	r := begin(in)
	users := r.byKind(kustomizeGroup, "Kustomization")
	if len(users) == 0 {
		inner, err := in.Manifests()
		if err != nil {
			return Result{}, err
		}
		r.Objects = append(r.Objects, inner...)
	} else if err := r.serveKustomizations(users); err != nil {
		return Result{}, err
	}
	err := r.serveCharts(len(users) > 0)
	return r.Result, err
}

func (r *rewriting) byKind(group, kind string) (found []*unstructured.Unstructured) {
	for _, o := range r.Objects {
		if isKind(o, group, kind) {
			found = append(found, o)
		}
	}
	return found
}

func isKind(o *unstructured.Unstructured, group, kind string) bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: group, Kind: kind}
}

// reference names a source.
type reference struct{ kind, namespace, name string }

func (f reference) String() string { return f.kind + "/" + f.namespace + "/" + f.name }

func (r *rewriting) referenceAt(o *unstructured.Unstructured, fields ...string) reference {
	at := func(name string) string { return text(o, append(slices.Clone(fields), name)...) }
	return reference{at("kind"), cmp.Or(at("namespace"), r.namespace(o)), at("name")}
}

// find returns the place of a source among the objects, or -1.
func (r *rewriting) find(f reference) int {
	return slices.IndexFunc(r.Objects, func(o *unstructured.Unstructured) bool {
		return isKind(o, sourceGroup, f.kind) && r.namespace(o) == f.namespace && o.GetName() == f.name
	})
}

// serveKustomizations points the Kustomizations at the endpoint.
func (r *rewriting) serveKustomizations(users []*unstructured.Unstructured) error {
	if err := r.endpoint(); err != nil {
		return err
	}
	source := r.referenceAt(users[0], "spec", "sourceRef")
	var paths []string
	for _, o := range users {
		paths = append(paths, text(o, "spec", "path"))
		if other := r.referenceAt(o, "spec", "sourceRef"); other != source {
			return reconcilers.ReleaseError(SourceNotServed, "the assignment's Kustomizations take their content from two sources, %s and %s, and embedded content can replace only one", source, other)
		}
	}
	i := r.find(source)
	if i < 0 || !slices.Contains([]string{"GitRepository", "OCIRepository", "Bucket"}, source.kind) {
		return reconcilers.ReleaseError(SourceNotServed, "%s takes its content from %s, and embedded content cannot replace that: the source has to be a GitRepository, an OCIRepository or a Bucket among the objects of the assignment", subject(users[0]), source)
	}
	folders, err := r.folders(paths)
	if err != nil {
		return err
	}
	r.Objects[i] = r.serveSource(r.Objects[i])
	for _, o := range users {
		name, ref := subject(o), map[string]any{}
		old, _, _ := unstructured.NestedMap(o.Object, "spec", "sourceRef")
		maps.Copy(ref, old)
		delete(ref, "apiVersion")
		ref["kind"] = "OCIRepository"
		spec := specOf(o)
		r.change(name, "spec.sourceRef.kind", source.kind, "OCIRepository")
		r.change(name, "spec.path", text(o, "spec", "path"), relative(folders[text(o, "spec", "path")]))
		spec["path"] = relative(folders[text(o, "spec", "path")])
		spec["sourceRef"] = ref
	}
	return nil
}

func specOf(o *unstructured.Unstructured) map[string]any {
	spec, ok := o.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		o.Object["spec"] = spec
	}
	return spec
}

// serveSource returns the OCIRepository that takes the place of a source.
func (r *rewriting) serveSource(old *unstructured.Unstructured) *unstructured.Unstructured {
	o := r.repository(r.namespace(old), old.GetName())
	if old.GetNamespace() == "" {
		o.SetNamespace("")
	}
	o.SetLabels(old.GetLabels())
	annotations := old.GetAnnotations()
	o.SetAnnotations(annotations)
	mark(o)
	was, name := specOf(old), subject(old)
	spec := map[string]any{"url": r.url(r.Served.Manifests), "ref": map[string]any{"digest": r.Served.Manifests.Digest.String()}}
	if !isKind(old, sourceGroup, "OCIRepository") {
		r.change(name, "kind", old.GetKind(), "OCIRepository")
	}
	from := text(old, "spec", "url")
	if from == "" { // a Bucket
		from = strings.TrimPrefix(text(old, "spec", "endpoint")+"/"+text(old, "spec", "bucketName"), "/")
	}
	r.change(name, "spec.url", from, r.url(r.Served.Manifests))
	r.change(name, "spec.ref.digest", text(old, "spec", "ref", "digest"), r.Served.Manifests.Digest.String())
	for _, field := range slices.Sorted(maps.Keys(was)) {
		switch {
		case slices.Contains(kept, field):
			spec[field] = was[field]
		case field == "url" || field == "ref" || field == "endpoint" || field == "bucketName":
		case field == "certSecretRef" && r.Served.CA != nil:
		default:
			r.change(name, "spec."+field, "set", "")
		}
	}
	r.trust(o, spec, text(old, "spec", "certSecretRef", "name"))
	o.Object["spec"] = spec
	return o
}

// repository returns an OCIRepository without a specification.
func (r *rewriting) repository(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": sourceGroup + "/v1", "kind": "OCIRepository",
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}}
}

// trust has Flux verify the endpoint by its CA.
func (r *rewriting) trust(o *unstructured.Unstructured, spec map[string]any, before string) {
	if r.Served.Plain {
		spec["insecure"] = true
		r.change(subject(o), "spec.insecure", "", "true")
	}
	if r.Served.CA == nil {
		return
	}
	spec["certSecretRef"] = map[string]any{"name": CAName}
	r.change(subject(o), "spec.certSecretRef.name", before, CAName)
	r.share(Shared{Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{"namespace": r.namespace(o), "name": CAName},
		"data":     map[string]any{"ca.crt": encode(string(r.Served.CA))},
	}}}, "the agent's own, with the CA of its endpoint")
}
