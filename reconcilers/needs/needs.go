// Package needs derives from a signed bundle the requirements of its assignments on a cluster: the kinds of their objects,
// the namespaces of those, and the kinds that they define themselves.
//
// Begin with Read. It relies on signed content only, and skips manifests that cannot be parsed: applying them fails
// with a message of its own.
package needs

import (
	"archive/tar"
	"bytes"
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
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// maxFileBytes bounds a file of manifests; longer ones are skipped.
const maxFileBytes = 8 << 20

// Needs are the demands of a release on its engines and its cluster.
type Needs struct {
	Assignments []bundle.Assignment
	// Objects are by assignment, each kind in each namespace once, in the order of the files.
	Objects map[string][]Object
	// Namespaces are the namespaces that the assignments create, by assignment.
	Namespaces map[string][]string
	// Sources are the objects that Flux's objects refer to, each once, by assignment.
	Sources map[string][]Object
	// Shared are the objects of the agent itself that engines need to reach its endpoint, by assignment. Those without a
	// namespace are in Argo CD's.
	Shared map[string][]Shared
	// Followed are the objects that Flux applies of embedded manifests, and that are read to judge it, by assignment.
	Followed map[string][]Object
	// Brought are the kinds that CustomResourceDefinitions of the release define.
	Brought map[schema.GroupVersionKind]bool
	// Defined are the resources of these kinds.
	Defined map[schema.GroupKind]Resource
	// Mirrors are the assignments whose Zarf package needs what "zarf init" brings.
	Mirrors map[string]bool
}

// Object stands for all of its kind in its namespace.
type Object struct {
	Kind      schema.GroupVersionKind
	Namespace string // empty where none is named
}

// Shared is one object of the agent itself.
type Shared struct {
	Object
	Name string
}

// Resource is the resource under which an API server serves a kind.
type Resource struct {
	Plural     string // as permissions name it
	Namespaced bool
}

// New returns the needs of nobody.
func New() *Needs {
	return &Needs{
		Objects: map[string][]Object{}, Namespaces: map[string][]string{}, Sources: map[string][]Object{},
		Brought: map[schema.GroupVersionKind]bool{}, Defined: map[schema.GroupKind]Resource{},
		Mirrors: map[string]bool{}, Shared: map[string][]Shared{}, Followed: map[string][]Object{},
	}
}

// Read reads the tree of v in a stream. It returns an error unless the tree has the signed digest.
func Read(ctx context.Context, src bundle.Source, v *bundle.Verified) (*Needs, error) {
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
	n := New()
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

func (n *Needs) readTree(entries *tar.Reader) error {
	folders := embedded{}
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			n.rewrite(folders)
			return nil
		}
		if err != nil {
			return err
		}
		if h.Size > maxFileBytes {
			continue
		}
		if folders.chart(n.Assignments, h.Name) {
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
			if n.Assignments, err = bundle.ParseAssignments(data); err != nil {
				return err
			}
			continue
		}
		assignment, _, _ := strings.Cut(h.Name, "/")
		if folders.file(n.Assignments, h.Name, data) { // the publisher puts the list first
			continue
		}
		n.AddManifests(assignment, data)
	}
}

// AddManifests adds the objects of a file in YAML or JSON to those of an assignment, as far as it can be read.
func (n *Needs) AddManifests(assignment string, data []byte) {
	if yamlvalues.Check(data) != nil {
		return
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var content map[string]any
		if decoder.Decode(&content) != nil {
			return
		}
		n.add(assignment, content)
	}
}

func (n *Needs) add(assignment string, content map[string]any) {
	u := &unstructured.Unstructured{Object: content}
	if items, ok := content["items"].([]any); ok && strings.HasSuffix(u.GetKind(), "List") {
		for _, item := range items {
			if m, ok := item.(map[string]any); ok {
				n.add(assignment, m)
			}
		}
		return
	}
	if zarf.Mirrors(content) {
		n.Mirrors[assignment] = true
	}
	o := Object{u.GroupVersionKind(), u.GetNamespace()}
	if o.Kind.Kind == "" || o.Kind.Version == "" {
		return
	}
	switch {
	case o.Kind.Kind == "CustomResourceDefinition":
		n.bring(u)
	case o.Kind.Group == "" && o.Kind.Kind == "Namespace":
		n.Namespaces[assignment] = append(n.Namespaces[assignment], u.GetName())
	case strings.HasSuffix(o.Kind.Group, ".toolkit.fluxcd.io"):
		n.refer(assignment, u)
	}
	if !slices.Contains(n.Objects[assignment], o) {
		n.Objects[assignment] = append(n.Objects[assignment], o)
	}
}

func (n *Needs) bring(definition *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(definition.Object, "spec", "scope")
	n.Defined[schema.GroupKind{Group: group, Kind: kind}] = Resource{plural, scope != "Cluster"}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "name")
			n.Brought[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = true
		}
	}
}

// refer notes the source that an object of Flux's names, which is read to judge it.
func (n *Needs) refer(assignment string, u *unstructured.Unstructured) {
	for _, path := range [][]string{{"spec", "sourceRef"}, {"spec", "chartRef"}, {"spec", "chart", "spec", "sourceRef"}} {
		ref, _, _ := unstructured.NestedStringMap(u.Object, path...)
		if ref["kind"] == "" {
			continue
		}
		source := Object{schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: ref["kind"]}, ref["namespace"]}
		if source.Namespace == "" {
			source.Namespace = u.GetNamespace()
		}
		if !slices.Contains(n.Sources[assignment], source) {
			n.Sources[assignment] = append(n.Sources[assignment], source)
		}
	}
}
