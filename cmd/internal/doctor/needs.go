package doctor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/wherry-dev/wherry/bundle"
)

// maxFileBytes bounds a file of manifests that is looked at; longer ones are passed over.
const maxFileBytes = 8 << 20

// needs is what a release asks of its engines and its cluster.
type needs struct {
	assignments []bundle.Assignment
	objects     map[string][]object // by assignment, each kind and namespace once
	// brought are the kinds that CustomResourceDefinitions of the release define.
	brought map[schema.GroupVersionKind]bool
}

// object stands for all of its kind in its namespace.
type object struct {
	kind      schema.GroupVersionKind
	namespace string // empty where none is named
}

// readNeeds reads the tree of v in a stream. What it learns counts once the digest has turned out to be
// the signed one.
func readNeeds(ctx context.Context, src bundle.Source, v *bundle.Verified) (*needs, error) {
	layer, err := src.Fetch(ctx, v.Tree)
	if err != nil {
		return nil, err
	}
	defer layer.Close()
	zip, err := gzip.NewReader(io.LimitReader(layer, v.Tree.Size))
	if err != nil {
		return nil, err
	}
	want := v.Release.Content
	hash := digest.SHA256.Digester()
	stream := io.TeeReader(io.LimitReader(zip, want.Size+1), hash.Hash())
	n := &needs{objects: map[string][]object{}, brought: map[schema.GroupVersionKind]bool{}}
	if err := n.readTree(tar.NewReader(stream)); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return nil, err
	}
	if hash.Digest() != want.DiffID {
		return nil, fmt.Errorf("they have digest %s, signed is %s", hash.Digest(), want.DiffID)
	}
	return n, nil
}

func (n *needs) readTree(entries *tar.Reader) error {
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Size > maxFileBytes {
			continue
		}
		ext := path.Ext(h.Name)
		if h.Name != bundle.AssignmentsPath && ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		if h.Name == bundle.AssignmentsPath {
			if n.assignments, err = bundle.ParseAssignments(data); err != nil {
				return err
			}
			continue
		}
		assignment, _, _ := strings.Cut(h.Name, "/")
		n.readManifests(assignment, data)
	}
}

// readManifests passes over what it cannot read: that is the assignment's failure, with a message of its
// own.
func (n *needs) readManifests(assignment string, data []byte) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var content map[string]any
		if decoder.Decode(&content) != nil {
			return
		}
		n.add(assignment, content)
	}
}

func (n *needs) add(assignment string, content map[string]any) {
	u := &unstructured.Unstructured{Object: content}
	if items, ok := content["items"].([]any); ok && strings.HasSuffix(u.GetKind(), "List") {
		for _, item := range items {
			if m, ok := item.(map[string]any); ok {
				n.add(assignment, m)
			}
		}
		return
	}
	o := object{u.GroupVersionKind(), u.GetNamespace()}
	if o.kind.Kind == "" || o.kind.Version == "" {
		return
	}
	if o.kind.Kind == "CustomResourceDefinition" {
		n.bring(u)
	}
	if !slices.Contains(n.objects[assignment], o) {
		n.objects[assignment] = append(n.objects[assignment], o)
	}
}

func (n *needs) bring(definition *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "name")
			n.brought[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = true
		}
	}
}

// adapterOf is who gets an assignment.
func (e *examination) adapterOf(a bundle.Assignment) string { return cmp.Or(e.Adapter, a.Adapter) }

// onCluster returns the objects of assignments whose adapter applies them to the cluster, each kind and
// namespace once, and how many assignments those are.
func (e *examination) onCluster() (objects []object, assignments int) {
	for _, a := range e.content.assignments {
		if !slices.Contains([]string{"kubernetes", "flux", "argo"}, e.adapterOf(a)) {
			continue
		}
		assignments++
		for _, o := range e.content.objects[a.Name] {
			if !slices.Contains(objects, o) {
				objects = append(objects, o)
			}
		}
	}
	slices.SortFunc(objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.kind.Group, b.kind.Group), cmp.Compare(a.kind.Kind, b.kind.Kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind.Version, b.kind.Version))
	})
	return objects, assignments
}

func (e *examination) adapters(context.Context) {
	const check = "adapters"
	if e.content == nil {
		e.skipped(check, "no release could be read")
		return
	}
	count, missing := map[string]int{}, []string{}
	for _, a := range e.content.assignments {
		count[e.adapterOf(a)]++
	}
	for name, n := range count {
		if !e.Adapters[name] {
			missing = append(missing, fmt.Sprintf("%s, which %d of %d assignments are for", name, n, len(e.content.assignments)))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		e.failed(check, "directory needs --directory-root, the others a cluster: --kubeconfig outside of one; --adapter takes another than the release names", "not configured: %s", strings.Join(missing, "; "))
		return
	}
	e.ok(check, "all %d assignments have one", len(e.content.assignments))
}
