package explaincmd

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// rewriting is what the agent changes in the rendered objects of an assignment.
type rewriting struct {
	// sources lets Flux and Argo CD take embedded content from the agent's endpoint.
	sources []rewrite.Change
	// variables gives site values to Flux.
	variables []rewrite.Change
	// problem is the reason why the agent would not apply the objects, or why the sources alone do not tell.
	problem string
}

func (r rewriting) all() []rewrite.Change { return slices.Concat(r.sources, r.variables) }

// rewritten lists the changes, by the functions of the adapters. It is zero for assignments of which nothing is changed.
func rewritten(platform string, a bundle.Assignment, files fs.FS) (r rewriting) {
	flux, embedded := a.Adapter == "flux", a.Delivery == bundle.Embedded && (a.Adapter == "flux" || a.Adapter == "argo")
	valued := flux && len(a.SiteValues) > 0
	if !embedded && !valued {
		return rewriting{}
	}
	objects, err := rewrite.Rendered(files)
	if err != nil {
		return rewriting{problem: err.Error()}
	}
	if valued {
		r.variables = rewrite.Variables(objects, a)
	}
	if !embedded {
		return r
	}
	charts, err := rewrite.Charts(files)
	if err != nil {
		r.problem = err.Error()
		return r
	}
	in := rewrite.Input{
		Assignment: a, Files: files, Objects: objects, Served: rewrite.Example(platform, a.Name, charts),
		Manifests: func() ([]*unstructured.Unstructured, error) { return nil, nil },
	}
	var res rewrite.Result
	if flux {
		res, err = rewrite.Flux(in)
	} else {
		res, err = rewrite.Argo(in, "argocd")
	}
	if err != nil {
		r.problem = err.Error()
		return r
	}
	r.sources = res.Changes
	return r
}

// folderOf returns files as a folder.
func folderOf[F any](files []F, of func(F) (path string, data []byte)) fs.FS {
	folder := fstest.MapFS{}
	for _, f := range files {
		path, data := of(f)
		folder[path] = &fstest.MapFile{Data: data}
	}
	return folder
}

// table prints the changes.
func (r rewriting) table(w io.Writer) {
	section := func(title string, changes []rewrite.Change, problem string) {
		if len(changes) == 0 && problem == "" {
			return
		}
		fmt.Fprintf(w, "\nRewritten by the agent, so that %s\n", title)
		for _, c := range changes {
			fmt.Fprintf(w, "  %s\n", show.Line(c.String()))
		}
		if problem != "" {
			fmt.Fprintf(w, "  not known: %s\n", show.Line(problem))
		}
	}
	section("the engine takes the embedded content from the agent's endpoint", r.sources, r.problem)
	section("Flux has the site values as variables", r.variables, "")
}
