package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
)

// method names the way to make content of files.
type method string

// The methods.
const (
	plainMethod     method = "plain"
	kustomizeMethod method = "kustomize"
	chartMethod     method = "chart"
	// releaseMethod leaves the chart to the HelmRelease that names it; see addReleases.
	releaseMethod method = "release"
)

// kustomizations are the names of a kustomization's file, as kustomize looks for them.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// methodOf chooses as the engine would: Flux builds a kustomization if there is one, else takes all YAML files; Argo CD
// follows the Application, else looks for a chart and then a kustomization, as we do for the other adapters.
func methodOf(t *tree, q request) (method, error) {
	if t.FS == nil && q.adapter == "flux" {
		return releaseMethod, nil
	}
	if t.FS == nil {
		return chartMethod, nil
	}
	entries, err := fs.ReadDir(t.FS, q.dir)
	if errors.Is(err, fs.ErrNotExist) && q.isOwn() {
		return "", fmt.Errorf("there is no folder %q beside the workload: the path is relative to the folder of its registration, or, for a workload of the platform itself, to the folder of the environment", q.dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no folder %q", q.dir)
	}
	if err != nil {
		return "", err
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(names, e.Name()) && e.Type().IsRegular() })
	}
	if q.argo != nil {
		switch {
		case len(q.argo.Helm) > 0:
			return chartMethod, nil
		case len(q.argo.Kustomize) > 0:
			return kustomizeMethod, nil
		case len(q.argo.Directory) > 0:
			return plainMethod, nil
		}
	}
	switch {
	case q.adapter == "flux" && has(kustomizations...):
		return kustomizeMethod, nil
	case q.adapter == "flux" && has("Chart.yaml"):
		return releaseMethod, nil
	case has("Chart.yaml"):
		return chartMethod, nil
	case has(kustomizations...):
		return kustomizeMethod, nil
	}
	return plainMethod, nil
}

// make makes the content of a request.
func (r *reader) make(ctx context.Context, t *tree, q request, how method) (*built, error) {
	made, err := &built{Dir: q.dir, Version: t.version, reads: []string{q.dir}}, error(nil)
	if object := t.object(q.dir); q.origin.Kind == bundle.ArtifactGit && len(object) > shortObject {
		made.Folder = object[:shortObject]
	}
	switch how {
	case kustomizeMethod:
		err = made.kustomize(ctx, r, t, q)
	case chartMethod:
		err = made.chart(ctx, r, t, q)
	case releaseMethod:
		made.Release = true
		return made, made.describe(t)
	default:
		err = made.plain(ctx, r, t, q)
	}
	if err == nil {
		err = made.describe(t)
	}
	taken, isFlux := t.FS.(*fluxFS)
	if isFlux {
		made.reads = append(made.reads, taken.files.Asked()...)
	}
	switch {
	case err != nil || len(made.Files) > 0:
	case isFlux && taken.leftOut:
		err = fmt.Errorf("folder %q has no manifests for Flux: .sourceignore files, spec.ignore of the source or Flux's defaults leave files out", q.dir)
	default:
		err = fmt.Errorf("folder %q has no manifests", q.dir)
	}
	return made, err
}

// describe reads the DeploymentDescriptors below the folder, as pinning does.
func (b *built) describe(t *tree) (err error) {
	if t.FS != nil {
		b.Descriptors, err = artifacts.DescriptorsBelow(t.FS, b.Dir)
	}
	return err
}

// shortObject is the number of digits of git's digest of a folder that make a version.
const shortObject = 12

// below returns the path of a file of the source among an assignment's manifests.
func below(dir, name string) string {
	if dir == "." {
		return path.Join(bundle.ManifestsDir, name)
	}
	return path.Join(bundle.ManifestsDir, name[len(dir):])
}
