package embed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// adapters are those that know embedded delivery: the engines that apply objects, and the one that writes files.
var adapters = []string{"argo", "directory", "flux", "kubernetes"}

// request describes the content of one assignment. Equal requests have the same content; see [request.key].
type request struct {
	// origin is the source; the zero Origin stands for the folder of the Workload's own source, of registration.
	origin       artifacts.Origin
	registration string
	workspace    string
	dir          string // in the source
	adapter      string
	argo         *argoSource // of the Application, if there is one
	ignore       string      // of Flux's source object
	variables    *postBuild  // of Flux's Kustomization, if it has any
	chart        chartOptions
}

// isOwn reports whether the content lies in the source of the Workload itself.
func (q request) isOwn() bool { return q.origin.Source == sources.Source{} }

// request returns the request of an assignment.
func (r *reader) request(ctx context.Context, ct *scheduler.ClusterTypeResult, a *scheduler.Assignment) (q request, err error) {
	q = request{adapter: a.Adapter, registration: a.Registration, workspace: a.Workspace}
	if !slices.Contains(adapters, a.Adapter) {
		return q, fmt.Errorf("the adapter %s has no embedded delivery: it is for %s", a.Adapter, strings.Join(adapters, ", "))
	}
	if q.origin, err = artifacts.OriginOf(a); err != nil {
		return q, err
	}
	if !q.isOwn() {
		if err := r.allowed(q, q.origin.Source.Place()); err != nil {
			return q, fmt.Errorf("%s: %w", q.origin.Place, err)
		}
	}
	dir := a.Manifests["path"]
	if q.isOwn() {
		for _, key := range slices.Concat(scheduler.ManifestsKeys[:], []string{"package", "image"}) {
			if a.Manifests[key] != "" {
				return q, fmt.Errorf("manifests.%s of the workload: %s is no source of manifests or charts", key, gitrepo.Redact(a.Manifests[key]))
			}
		}
		if dir == "" {
			return q, errors.New("the target's manifests name no source: write repo, or path for a folder beside the workload")
		}
	}
	objects, err := objectsIn(a)
	if err != nil {
		return q, err
	}
	switch a.Adapter {
	case "flux":
		dir, q.ignore, err = objects.fluxPath(q.origin, dir)
		q.variables = objects.variables(q)
	case "argo":
		q.argo, err = objects.argoSource(q.origin)
		if q.argo != nil && q.argo.Chart == "" {
			dir = q.argo.Path
		}
	}
	if err != nil {
		return q, err
	}
	if q.dir, err = gitrepo.CleanPath(dir); err != nil && dir == a.Manifests["path"] {
		err = fmt.Errorf("manifests.path of the workload: %w", err)
	}
	if err != nil {
		return q, err
	}
	q.chart, err = r.chartOptions(ctx, ct, a, q.argo)
	return q, err
}

// allowed returns an error if the content of a request may not come from a repository; see [sources.Source.Place].
func (r *reader) allowed(q request, repository string) error {
	if r.Allowed == nil || repository == "" {
		return nil
	}
	return r.Allowed(q.registration, q.workspace, repository)
}

// chartOptions are the settings of a chart that come from the assignment.
func (r *reader) chartOptions(ctx context.Context, ct *scheduler.ClusterTypeResult, a *scheduler.Assignment, argo *argoSource) (chartOptions, error) {
	o := chartOptions{
		ReleaseName: strings.TrimRight(a.Name[:min(len(a.Name), maxReleaseName)], "-."), Namespace: a.Namespace,
		KubeVersion: ct.Annotations[kinds.AnnotationPrefix+"kube-version"], APIVersions: fieldsOf(ct.Annotations[kinds.AnnotationPrefix+"api-versions"]),
	}
	if argo != nil && argo.destination != "" {
		o.Namespace = argo.destination
	}
	if argo != nil {
		o.ReleaseName = argo.application
	}
	if key := a.ChartValues; key != "" {
		text, ok, err := "", false, error(nil)
		if r.Value != nil {
			text, ok, err = r.Value(ctx, ct.Name, a.Name, key)
		}
		switch {
		case err != nil:
			return o, fmt.Errorf("annotation %schart-values: %s: %w", kinds.AnnotationPrefix, key, err)
		case !ok:
			return o, fmt.Errorf("annotation %schart-values: the platform configuration has no key %q: add it to a ConfigMap that this target gets, or correct the annotation", kinds.AnnotationPrefix, key)
		}
		o.Values = text
	}
	return o, nil
}

// maxReleaseName is the length of a release's name that Helm allows.
const maxReleaseName = 53

// fieldsOf reads a list of words that commas, spaces or line breaks separate.
func fieldsOf(list string) []string {
	words := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	slices.Sort(words)
	return slices.Compact(words)
}

// chartOptions are what a chart is rendered with.
type chartOptions struct {
	ReleaseName, Namespace, KubeVersion string
	APIVersions                         []string
	// Values are those of the platform configuration, as YAML; those of an Application count more.
	Values string
}

// objects are the rendered objects of an assignment that configure how its engine takes manifests.
type objects []object

// object has the fields that are needed of Flux's and Argo CD's objects.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		fluxSource `yaml:",inline"`
		URL        string `yaml:"url"`
		Path       string `yaml:"path"`
		SourceRef  struct {
			Kind string `yaml:"kind"`
			Name string `yaml:"name"`
		} `yaml:"sourceRef"`
		Components  []string     `yaml:"components"`
		PostBuild   *postBuild   `yaml:"postBuild"`
		Source      *argoSource  `yaml:"source"`
		Sources     []argoSource `yaml:"sources"`
		Destination struct {
			Namespace string `yaml:"namespace"`
		} `yaml:"destination"`
	} `yaml:"spec"`
}

// argoSource is the source of an Application.
type argoSource struct {
	RepoURL   string         `yaml:"repoURL"`
	Path      string         `yaml:"path"`
	Chart     string         `yaml:"chart"`
	Ref       string         `yaml:"ref"`
	Helm      map[string]any `yaml:"helm"`
	Kustomize map[string]any `yaml:"kustomize"`
	Directory map[string]any `yaml:"directory"`
	Plugin    map[string]any `yaml:"plugin"`

	application, destination string // of the Application
}

// objectsIn reads the objects of engines in a's rendered files.
func objectsIn(a *scheduler.Assignment) (objects, error) {
	var all objects
	for _, f := range artifacts.RenderedFiles(a) {
		if !strings.HasSuffix(f.Path, ".yaml") || !bytes.Contains(f.Data, []byte("fluxcd.io")) && !bytes.Contains(f.Data, []byte("argoproj.io")) {
			continue
		}
		documents := yaml.NewDecoder(bytes.NewReader(f.Data))
		for {
			var o object
			err := documents.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			var mistyped *yaml.TypeError
			if err != nil && !errors.As(err, &mistyped) {
				return nil, fmt.Errorf("%s: %w", f.Path, err)
			}
			all = append(all, o)
		}
	}
	return all, nil
}

func (o object) is(group, kind string) bool {
	return o.Kind == kind && strings.HasPrefix(o.APIVersion, group+"/")
}

// fluxPath returns the folder that the Kustomization of the source applies, and the spec.ignore of the source; otherwise is
// the folder if there is no Kustomization.
func (all objects) fluxPath(origin artifacts.Origin, otherwise string) (dir, ignore string, err error) {
	ours := map[string]bool{} // the source objects, as KIND/NAME
	for _, o := range all {
		if strings.HasPrefix(o.APIVersion, "source.toolkit.fluxcd.io/") && origin.Names(o.Spec.URL, "") {
			ours[o.Kind+"/"+o.Metadata.Name] = true
		}
	}
	used := map[string]bool{}
	var path *string
	for _, o := range all {
		if !ours[o.Spec.SourceRef.Kind+"/"+o.Spec.SourceRef.Name] || !o.is("kustomize.toolkit.fluxcd.io", "Kustomization") {
			continue
		}
		if len(o.Spec.Components) > 0 {
			return "", "", fmt.Errorf("the Kustomization %q names components, which are not in what is embedded: put them into the kustomization of its folder", o.Metadata.Name)
		}
		if path != nil && *path != o.Spec.Path {
			return "", "", fmt.Errorf("two Kustomizations apply folders %q and %q of %s: embedded delivery takes one folder", *path, o.Spec.Path, origin.Name())
		}
		path, used[o.Spec.SourceRef.Kind+"/"+o.Spec.SourceRef.Name] = &o.Spec.Path, true
	}
	if path == nil {
		path, used = &otherwise, ours
	}
	ignore, err = all.fluxIgnore(used, *path)
	return *path, ignore, err
}

// variables returns the variables of the Kustomization of the source, or nil. The folder beside a Workload has any one.
func (all objects) variables(q request) *postBuild {
	for _, o := range all {
		if o.Spec.PostBuild == nil || !o.is("kustomize.toolkit.fluxcd.io", "Kustomization") {
			continue
		}
		ours := slices.ContainsFunc(all, func(s object) bool {
			return s.Kind == o.Spec.SourceRef.Kind && s.Metadata.Name == o.Spec.SourceRef.Name && strings.HasPrefix(s.APIVersion, "source.toolkit.fluxcd.io/") && q.origin.Names(s.Spec.URL, "")
		})
		if ours || q.isOwn() {
			o.Spec.PostBuild.kustomization = o.Metadata.Name
			return o.Spec.PostBuild
		}
	}
	return nil
}

// fluxIgnore returns the spec.ignore of the source objects that are used for a folder.
func (all objects) fluxIgnore(used map[string]bool, dir string) (ignore string, err error) {
	if dir, err = gitrepo.CleanPath(dir); err != nil {
		return "", err
	}
	first := ""
	for _, o := range all {
		if !used[o.Kind+"/"+o.Metadata.Name] || !strings.HasPrefix(o.APIVersion, "source.toolkit.fluxcd.io/") {
			continue
		}
		if err := o.Spec.check(o.Kind, o.Metadata.Name, dir); err != nil {
			return "", err
		}
		if first != "" && ignore != o.Spec.Ignore {
			return "", fmt.Errorf("the sources %q and %q are one repository and differ in spec.ignore: give them the same", first, o.Metadata.Name)
		}
		first, ignore = o.Metadata.Name, o.Spec.Ignore
	}
	return ignore, nil
}

// argoSource returns the source of the Application; nil if the rendered files have none.
func (all objects) argoSource(origin artifacts.Origin) (*argoSource, error) {
	var found *argoSource
	for _, o := range all {
		if !o.is("argoproj.io", "Application") {
			continue
		}
		list := slices.Clone(o.Spec.Sources)
		if o.Spec.Source != nil && len(list) == 0 {
			list = append(list, *o.Spec.Source)
		}
		for _, s := range list {
			if !origin.Names(s.RepoURL, s.Chart) {
				continue
			}
			switch {
			case len(list) > 1:
				return nil, fmt.Errorf("the Application %q has several sources: embedded delivery takes one", o.Metadata.Name)
			case found != nil:
				return nil, fmt.Errorf("the Applications %q and %q have one source: embedded delivery takes one Application", found.application, o.Metadata.Name)
			case len(s.Plugin) > 0:
				return nil, fmt.Errorf("the Application %q has a plugin, which only Argo CD could run", o.Metadata.Name)
			}
			s.application, s.destination = o.Metadata.Name, o.Spec.Destination.Namespace
			found = &s
		}
	}
	return found, nil
}

// sources returns where the content came from, for people.
func (c *content) sources() []scheduler.ContentSource {
	main := scheduler.ContentSource{Type: bundle.SourceFolder, Name: c.registration, Path: c.dir, Chart: c.Chart, Version: c.ChartVersion}
	if main.Name == "" {
		main.Name = "platform"
	}
	if !c.isOwn() {
		main = scheduler.ContentSource{
			Type: string(c.origin.Kind), Name: c.origin.Name(), Revision: cmp.Or(c.id, c.revision), Path: c.dir, Chart: c.Chart, Version: c.ChartVersion,
		}
		if c.origin.Chart != "" {
			main.Name = sources.Source{Kind: c.origin.Kind, URL: c.origin.URL}.Name()
		}
	}
	if main.Path == "." {
		main.Path = ""
	}
	main.Files = c.Own
	if c.Release {
		return c.charts
	}
	if len(c.charts) > 0 && main.Files == nil {
		for _, f := range c.Files {
			main.Files = append(main.Files, f.Path)
		}
	}
	return slices.Concat([]scheduler.ContentSource{main}, c.More, c.charts)
}
