package embed

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// builtFile is the name of the file that a kustomization becomes.
const builtFile = "manifests.yaml"

// kustomize builds the kustomization of the folder, with what an Application asks for beside it.
func (b *built) kustomize(ctx context.Context, r *reader, t *tree, q request) error {
	var argo []byte
	if q.argo != nil && len(q.argo.Kustomize) > 0 {
		var err error
		if argo, err = json.Marshal(q.argo.Kustomize); err != nil {
			return fmt.Errorf("kustomize: %w", err)
		}
	}
	return b.kustomizeFolder(ctx, r, t, q, q.dir, bundle.ManifestsDir, argo)
}

// kustomizeFolder builds the kustomization in dir, with what an Application asks for in JSON, into a file in the folder to.
func (b *built) kustomizeFolder(ctx context.Context, r *reader, t *tree, q request, dir, to string, argo []byte) error {
	remote := func(ctx context.Context, url, commit string) (fs.FS, error) {
		if err := r.allowed(q, url); err != nil {
			return nil, err
		}
		if b.Remotes = append(b.Remotes, url); !slices.IsSorted(b.Remotes) {
			slices.Sort(b.Remotes)
		}
		s := sources.Source{Kind: bundle.ArtifactGit, URL: url, Revision: commit}
		found := r.Resolver.Of(ctx, s)
		if found.Err != nil {
			return nil, found.Err
		}
		from := scheduler.ContentSource{Type: string(bundle.ArtifactGit), Name: s.Name(), Revision: commit}
		if !slices.ContainsFunc(b.More, func(known scheduler.ContentSource) bool { return known.Name == from.Name && known.Revision == commit }) {
			b.More = append(b.More, from)
		}
		return gitrepo.Guard(sharedFS{found}), nil
	}
	yaml, read, err := r.sandbox.Kustomization(ctx, q.registration, sandbox.Source{Files: t.FS, Remote: remote}, dir, argo)
	if err != nil {
		return err
	}
	for _, name := range read {
		if !isBelow(name, b.Dir) {
			b.reads = append(b.reads, name)
		}
	}
	slices.SortFunc(b.More, func(a, b scheduler.ContentSource) int { return strings.Compare(a.Name+a.Revision, b.Name+b.Revision) })
	return b.add(scheduler.File{Path: path.Join(to, builtFile), Data: yaml})
}

// isBelow reports whether a path is that of a folder, or of something in it.
func isBelow(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}
