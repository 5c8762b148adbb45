package needs

import (
	"slices"
	"strings"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// embedded are the folders of the assignments that Flux and Argo CD take from the agent's endpoint, by assignment. Files
// below bundle.ManifestsDir are there without their content.
type embedded map[string]*folder

type folder struct {
	line  bundle.Assignment
	files fstest.MapFS
	inner []*unstructured.Unstructured // kind, namespace and name alone
}

// of returns the folder of a file's assignment, and the file's path in it; nil for an assignment that an engine does not
// take from the endpoint.
func (e embedded) of(list []bundle.Assignment, name string) (*folder, string) {
	assignment, below, _ := strings.Cut(name, "/")
	if e[assignment] == nil {
		i := slices.IndexFunc(list, func(a bundle.Assignment) bool { return a.Name == assignment })
		if i < 0 || list[i].Delivery != bundle.Embedded || list[i].Adapter != "flux" && list[i].Adapter != "argo" {
			return nil, ""
		}
		e[assignment] = &folder{line: list[i], files: fstest.MapFS{}}
	}
	return e[assignment], below
}

// chart takes a file if it is a chart.
func (e embedded) chart(list []bundle.Assignment, name string) bool {
	if !strings.Contains(name, "/"+bundle.ChartsDir+"/") {
		return false
	}
	f, below := e.of(list, name)
	if f == nil || !strings.HasPrefix(below, bundle.ChartsDir+"/") {
		return false
	}
	f.files[below] = &fstest.MapFile{}
	return true
}

// file takes a file of such an assignment.
func (e embedded) file(list []bundle.Assignment, name string, data []byte) bool {
	f, below := e.of(list, name)
	if f == nil {
		return false
	}
	if !strings.HasPrefix(below, bundle.ManifestsDir+"/") {
		f.files[below] = &fstest.MapFile{Data: data}
		return true
	}
	f.files[below] = &fstest.MapFile{}
	objects, _ := manifests.Decode(below, data) // applying what cannot be parsed fails with a message of its own
	for _, o := range objects {
		bare := &unstructured.Unstructured{Object: map[string]any{}}
		bare.SetGroupVersionKind(o.GroupVersionKind())
		bare.SetNamespace(o.GetNamespace())
		bare.SetName(o.GetName())
		if o.GetKind() == "CustomResourceDefinition" {
			bare = o
		}
		f.inner = append(f.inner, bare)
	}
	return true
}

// rewrite adds the objects that the adapters apply in place of the rendered ones.
func (n *Needs) rewrite(folders embedded) {
	for name, f := range folders {
		fetched := true
		in := rewrite.Input{
			Assignment: f.line, Files: f.files, Manifests: func() ([]*unstructured.Unstructured, error) {
				fetched = false
				return f.inner, nil
			},
		}
		var err error
		if in.Objects, err = rewrite.Rendered(f.files); err != nil {
			continue
		}
		charts, err := rewrite.Charts(f.files)
		if err != nil {
			continue
		}
		in.Served = rewrite.Example("platform", name, charts)
		var res rewrite.Result
		if f.line.Adapter == "flux" {
			res, err = rewrite.Flux(in)
		} else {
			res, err = rewrite.Argo(in, "")
		}
		if err != nil { // the adapter refuses it as well
			continue
		}
		for _, o := range res.Objects {
			n.add(name, o.Object)
		}
		for _, s := range res.Shared {
			object := Object{s.GroupVersionKind(), s.GetNamespace()}
			n.Shared[name] = append(n.Shared[name], Shared{object, s.GetName()})
		}
		for _, o := range f.inner {
			followed := Object{o.GroupVersionKind(), o.GetNamespace()}
			if fetched && f.line.Adapter == "flux" && !slices.Contains(n.Followed[name], followed) {
				n.Followed[name] = append(n.Followed[name], followed)
			}
		}
	}
}
