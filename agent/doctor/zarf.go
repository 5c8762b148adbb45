package doctor

import (
	"context"
	"os"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diagnosis"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// checkZarf looks for what Zarf needs beside a cluster that answers: the program, a node and a pod that runs, and
// what "zarf init" brings where packages have images.
func checkZarf(ctx context.Context, e *examination) diagnosis.Finding {
	if e.Adapters.Zarf == "" {
		return diagnosis.Finding{} // the adapters' check says so, where it is needed
	}
	dir, err := os.MkdirTemp("", "wherry-doctor-")
	if err != nil {
		return diagnosis.Failf("make room for temporary files, or name another folder for them with TMPDIR", "%v", err)
	}
	defer os.RemoveAll(dir)
	version, err := zarf.Version(ctx, e.Adapters.Zarf, dir)
	if err != nil {
		return diagnosis.Failf("install Zarf "+zarf.MinVersion+" or newer, and name the program with --zarf", "%v", err)
	}
	images := e.content != nil && slices.ContainsFunc(e.content.Assignments, func(a bundle.Assignment) bool {
		return e.adapterOf(a) == "zarf" && e.content.Mirrors[a.Name]
	})
	if e.served == nil {
		return diagnosis.Okf("%s is version %s; packages of files and actions need no more", e.Adapters.Zarf, version)
	}
	if remedy, err := zarf.CheckCluster(ctx, e.Kubernetes, images); err != nil {
		return diagnosis.Failf(remedy, "%v", err)
	}
	return diagnosis.Okf("%s is version %s, and the cluster has what it asks for", e.Adapters.Zarf, version)
}
