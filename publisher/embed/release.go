package embed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// helmGroup is mentioned wherever there is a HelmRelease.
const helmGroup = "helm.toolkit.fluxcd.io"

// wantedChart is a HelmRelease with the source of its chart.
type wantedChart struct {
	chart.Release
	source sources.Source
	dir    string // in a git repository
	ignore string // of the GitRepository
}

// String names the HelmRelease.
func (w wantedChart) String() string {
	return "HelmRelease " + strings.TrimPrefix(w.Namespace+"/"+w.Name, "/")
}

// addReleases adds the charts of the HelmReleases among the objects of each content, and finds their images.
func (r *reader) addReleases(ctx context.Context, all map[name]*content, failed map[name]error) error {
	wanted := map[*content][]wantedChart{}
	named := map[string][]sources.Source{}
	for key, c := range all {
		list, err := c.releases()
		if err != nil {
			failed[key] = err
			continue
		}
		for _, w := range list {
			if err == nil {
				err = r.allowed(c.request, w.source.Place())
			}
		}
		if err != nil {
			failed[key] = err
			continue
		}
		for _, w := range list {
			named[c.registration] = append(named[c.registration], w.source)
		}
		if wanted[c] = list; len(list) == 0 && c.Release {
			failed[key] = fmt.Errorf("%s: %s is a chart, and no HelmRelease among the rendered files names it", c.origin.Place, c.origin.Reference())
		}
	}
	for key := range failed {
		delete(all, key)
	}
	if len(named) == 0 {
		return nil
	}
	if _, err := r.Resolver.All(ctx, uniqueOf(named)); err != nil {
		return err
	}
	return r.each(ctx, all, failed, func(ctx context.Context, c *content) error {
		for _, w := range wanted[c] {
			if err := r.addRelease(ctx, c, w); err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
		}
		return nil
	})
}

// releases lists the HelmReleases among a content's objects.
func (c *content) releases() ([]wantedChart, error) {
	files := slices.Concat(c.rendered, c.Files)
	if !slices.ContainsFunc(files, func(f scheduler.File) bool { return bytes.Contains(f.Data, []byte(helmGroup)) }) {
		return nil, nil
	}
	var objects []map[string]any
	for _, f := range files {
		objects = append(objects, decodeAll(f.Data)...)
	}
	var list []wantedChart
	for _, release := range chart.Releases(objects) {
		w := wantedChart{Release: release}
		if release.Err != nil {
			return nil, release.Err
		}
		var err error
		if w.source, w.dir, err = sourceOf(release.Source, objects); err == nil {
			w.ignore, err = ignoreOf(release.Source, w.dir, objects)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w, err)
		}
		list = append(list, w)
	}
	return list, nil
}

// sourceOf returns the source of a release's chart and, in a git repository, its folder.
func sourceOf(s chart.Source, objects []map[string]any) (src sources.Source, dir string, err error) {
	switch s.Kind {
	case "GitRepository":
		src = gitSource(s, objects)
		dir, err = gitrepo.CleanPath(s.Chart)
	case "OCIRepository":
		if src, err = sources.ParseOCI(bundle.ArtifactOCI, s.URL); err == nil {
			src.Tag, src.Semver, src.Revision = cmp.Or(s.Tag, src.Tag), s.SemVer, cmp.Or(s.Digest, src.Revision)
		}
		if src.Semver != "" {
			src.Tag = ""
		}
	case "HelmRepository":
		if strings.HasPrefix(s.URL, sources.Scheme) {
			src, err = sources.ParseOCI(bundle.ArtifactChart, strings.TrimSuffix(s.URL, "/")+"/"+s.Chart)
			src.Semver = cmp.Or(s.Version, "*")
			break
		}
		src = sources.Source{Kind: bundle.ArtifactChart, URL: s.URL, Chart: s.Chart, Semver: cmp.Or(s.Version, "*")}
	default:
		err = fmt.Errorf("a chart of a %s cannot be embedded: use a HelmRepository, an OCIRepository or a GitRepository", s.Kind)
	}
	return src, dir, err
}

// gitSource returns the state of a repository that a GitRepository among objects names.
func gitSource(s chart.Source, objects []map[string]any) sources.Source {
	src := sources.Source{Kind: bundle.ArtifactGit, URL: s.URL, Branch: "master"} // which is Flux's default
	for _, spec := range specsOf(s, objects) {
		ref, _ := spec["ref"].(map[string]any)
		src.Branch, src.Revision = text(ref["branch"]), text(ref["commit"])
		if src.RefName = text(ref["name"]); src.RefName == "" {
			if src.Semver = text(ref["semver"]); src.Semver == "" {
				src.Tag = text(ref["tag"])
			}
		}
		if src == (sources.Source{Kind: bundle.ArtifactGit, URL: s.URL}) {
			src.Branch = "master"
		}
	}
	return src
}

// specsOf returns the specs of a source among objects.
func specsOf(s chart.Source, objects []map[string]any) (specs []map[string]any) {
	for _, o := range objects {
		metadata, _ := o["metadata"].(map[string]any)
		if text(o["kind"]) == s.Kind && text(metadata["name"]) == s.Name && text(metadata["namespace"]) == s.Namespace {
			spec, _ := o["spec"].(map[string]any)
			specs = append(specs, spec)
		}
	}
	return specs
}

// ignoreOf returns the spec.ignore of a release's source, for a chart in a folder.
func ignoreOf(s chart.Source, dir string, objects []map[string]any) (ignore string, err error) {
	for _, spec := range specsOf(s, objects) {
		var fields fluxSource
		data, err := yaml.Marshal(spec)
		if err == nil {
			err = yamlvalues.NewDecoder(data).Decode(&fields)
		}
		if err == nil {
			err = fields.check(s.Kind, s.Name, dir)
		}
		if err != nil {
			return "", err
		}
		ignore = fields.Ignore
	}
	return ignore, nil
}

// addRelease adds the chart of a HelmRelease, as an archive, and the images in it.
func (r *reader) addRelease(ctx context.Context, c *content, w wantedChart) error {
	opened, revision, taken, err := r.chartOf(ctx, c, w)
	if err != nil {
		return fmt.Errorf("chart %s: %w", w.source.Reference(), err)
	}
	file := path.Join(bundle.ChartsDir, opened.Name+"-"+opened.Version+".tgz")
	from := scheduler.ContentSource{
		Type: string(w.source.Kind), Name: sources.Source{Kind: w.source.Kind, URL: w.source.URL}.Name(), Revision: revision, Path: w.dir,
		Chart: opened.Name, Version: opened.Version, Files: []string{file},
	}
	i := slices.IndexFunc(c.chartFiles, func(f scheduler.File) bool { return f.Path == file })
	switch {
	case i < 0:
		c.chartFiles, c.charts = append(c.chartFiles, scheduler.File{Path: file, Data: opened.Archive}), append(c.charts, from)
		c.taken = append(c.taken, taken)
	case !bytes.Equal(c.chartFiles[i].Data, opened.Archive):
		return fmt.Errorf("two charts are called %s %s, and are not the same", opened.Name, opened.Version)
	}
	c.chartVersion = ""
	if len(c.charts) == 1 { // else there is not one version
		c.chartVersion = cmp.Or(artifacts.VersionOf(opened.AppVersion), artifacts.VersionOf(opened.Version))
	}
	for _, note := range w.Notes {
		c.warn(finding.CodeReleaseValues, "", "%s: %s", w, note)
	}
	images, err := r.imagesOf(ctx, c, w, opened.Archive)
	if errors.Is(err, sandbox.ErrUnfinished) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		c.warn(finding.CodeReleaseRender, "the site's Flux renders it; its images are not listed", "%s: %v", w, err)
	}
	c.chartImages = append(c.chartImages, images...)
	return ctx.Err()
}

// releasedChart is a release's chart. Its fields are kept in the cache.
type releasedChart struct {
	Name, Version, AppVersion string
	Archive                   []byte
}

// chartOf returns a release's chart, git's id of the folder or the digest that it is from, and the artifact that this is for the ledger. The archive is the one of the chart's maker,
// unless it has to be made: of a folder, or with the release's choice of files of values.
func (r *reader) chartOf(ctx context.Context, c *content, w wantedChart) (opened releasedChart, revision string, taken scheduler.Pinned, err error) {
	found := r.Resolver.Of(ctx, w.source)
	if err = found.Err; err != nil {
		return opened, "", taken, err
	}
	taken = scheduler.Pinned{Type: string(w.source.Kind), Name: w.source.Name(), Reference: w.source.Reference(), Digest: found.Revision, Version: found.Version}
	ask := chart.Job{Dir: w.dir, ValuesFiles: w.Source.ValuesFiles, Pack: true}
	if w.source.Kind == bundle.ArtifactGit {
		from := sandbox.Source{Files: asFlux(gitrepo.Guard(sharedFS{found}), w.ignore)}
		opened, err = r.readChart(ctx, c, from, ask, w.source.URL, found.Revision, w.ignore)
		// The chart may need folders beside its own, so that the folder alone does not say what was taken.
		taken.Reference, taken.Digest, taken.Version = taken.Reference+":"+w.dir, digest.FromBytes(opened.Archive).String(), ""
		return opened, ofFiles(sharedFS{found}, "").object(w.dir), taken, err
	}
	content, err := r.Resolver.Content(ctx, w.source)
	if err == nil && content.Chart == nil {
		err = errors.New("the artifact is no chart")
	}
	if err != nil {
		return opened, "", taken, err
	}
	ask.Archive = content.Chart
	opened, err = r.readChart(ctx, c, sandbox.Source{}, ask, digest.FromBytes(content.Chart))
	return opened, found.Revision, taken, err
}

// readChart returns a chart, which the cache has by what the identity and the request say.
func (r *reader) readChart(ctx context.Context, c *content, from sandbox.Source, ask chart.Job, identity ...any) (opened releasedChart, err error) {
	key := keyOf("chart-", append(identity, ask.Dir, ask.ValuesFiles)...)
	if r.cachedValue(key, &opened) {
		return opened, nil
	}
	read, err := r.sandbox.Chart(ctx, c.registration, from, ask)
	if err != nil {
		return opened, err
	}
	opened = releasedChart{read.Name, read.Version, read.AppVersion, read.Archive}
	r.keepValue(key, opened)
	return opened, nil
}

// imagesOf renders a release's chart to find its images. What the cluster renders may differ, by values that it alone has.
func (r *reader) imagesOf(ctx context.Context, c *content, w wantedChart, archive []byte) (images []sources.Source, err error) {
	opts := w.Options(chart.Options{KubeVersion: c.request.chart.KubeVersion, APIVersions: c.request.chart.APIVersions, MaxBytes: maxBytes})
	key := keyOf("released-", opts, digest.FromBytes(archive))
	if r.cachedValue(key, &images) {
		return images, nil
	}
	read, err := r.sandbox.Chart(ctx, c.registration, sandbox.Source{}, chart.Job{Archive: archive, Render: true, Options: opts})
	if err != nil {
		return nil, err
	}
	var files []scheduler.File
	for _, f := range read.Rendered.Files {
		files = append(files, scheduler.File{Path: f.Path, Data: f.Data})
	}
	for _, h := range read.Rendered.Hooks {
		files = append(files, scheduler.File{Path: h.Path, Data: h.Data})
	}
	images = artifacts.Images(files)
	r.keepValue(key, images)
	return images, nil
}

// keyOf returns a key of the cache for what parts identify; empty if they cannot be written.
func keyOf(prefix string, parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return prefix + hex.EncodeToString(sum[:])
}

// cachedValue reads what the cache has for key into value, and reports whether it has it.
func (r *reader) cachedValue(key string, value any) bool {
	return r.Cache != nil && key != "" && json.Unmarshal(r.Cache.Get(key), value) == nil
}

func (r *reader) keepValue(key string, value any) {
	if text, err := json.Marshal(value); err == nil && r.Cache != nil && key != "" {
		r.Cache.Put(key, text)
	}
}

// warn adds a warning about the assignment.
func (c *content) warn(code, hint, format string, args ...any) {
	c.warnings = append(c.warnings, finding.Finding{Code: code, Message: finding.Sentence(format, args...), Hint: hint, Note: code[0] == 'N'})
}
