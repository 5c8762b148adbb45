package explaincmd

import (
	"fmt"
	"io"
	"io/fs"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// rewritten lists what the agent changes in the rendered objects of an assignment with embedded delivery, so that Flux and
// Argo CD take its content from the agent's endpoint. It is empty for assignments of which nothing is changed. Problem is the
// reason why the agent would not apply them, or why the sources alone do not tell.
func rewritten(platform string, a bundle.Assignment, files fs.FS) (changes []rewrite.Change, problem string) {
	if a.Delivery != bundle.Embedded || a.Adapter != "flux" && a.Adapter != "argo" {
		return nil, ""
	}
	objects, err := rewrite.Rendered(files)
	if err != nil {
		return nil, err.Error()
	}
	charts, err := rewrite.Charts(files)
	if err != nil {
		return nil, err.Error()
	}
	in := rewrite.Input{
		Assignment: a, Files: files, Objects: objects, Served: rewrite.Example(platform, a.Name, charts),
		Manifests: func() ([]*unstructured.Unstructured, error) { return nil, nil },
	}
	var res rewrite.Result
	if a.Adapter == "flux" {
		res, err = rewrite.Flux(in)
	} else {
		res, err = rewrite.Argo(in, "argocd")
	}
	if err != nil {
		return nil, err.Error()
	}
	return res.Changes, ""
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

// rewrittenTable prints what rewritten returns.
func rewrittenTable(w io.Writer, changes []rewrite.Change, problem string) {
	if len(changes) == 0 && problem == "" {
		return
	}
	fmt.Fprintf(w, "\nRewritten by the agent, so that the engine takes the embedded content from the agent's endpoint\n")
	for _, c := range changes {
		fmt.Fprintf(w, "  %s\n", show.Line(c.String()))
	}
	if problem != "" {
		fmt.Fprintf(w, "  not known: %s\n", show.Line(problem))
	}
}
