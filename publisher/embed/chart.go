package embed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// chart renders the chart of the source, one file for each template.
func (b *built) chart(ctx context.Context, r *reader, t *tree, q request) error {
	c := chart.Job{Dir: q.dir, Archive: t.chart, Render: true, Options: chart.Options{
		ReleaseName: q.chart.ReleaseName, Namespace: q.chart.Namespace, KubeVersion: q.chart.KubeVersion, APIVersions: q.chart.APIVersions,
		KeysOnce: true, MaxBytes: maxBytes,
	}}
	c.Values = []chart.Values{{Text: []byte(q.chart.Values), From: "annotation " + kinds.AnnotationPrefix + "chart-values"}}
	if q.argo != nil {
		if err := q.argo.setChart(b, t, q, &c); err != nil {
			return fmt.Errorf("%s: %w", q.argo.helmOf(), err)
		}
	}
	read, err := r.sandbox.Chart(ctx, q.registration, sandbox.Source{Files: t.FS}, c)
	if err != nil {
		return err
	}
	for _, folder := range read.Folders {
		if !isBelow(folder, b.Dir) { // of a dependency
			b.reads = append(b.reads, folder)
		}
	}
	b.Chart, b.ChartVersion, b.Version = read.Name, read.Version, cmp.Or(artifacts.VersionOf(read.AppVersion), artifacts.VersionOf(read.Version))
	result := read.Rendered
	b.Notes = result.Notes
	from := map[[2]string][]string{} // the files of each chart and version
	add := func(name string, data []byte, of, version string) error {
		name = path.Join(bundle.ManifestsDir, name)
		i := slices.IndexFunc(b.Files, func(f scheduler.File) bool { return f.Path == name })
		if i >= 0 {
			b.Files[i].Data = slices.Concat(b.Files[i].Data, []byte("\n---\n"), data)
			return nil
		}
		key := [2]string{of, version}
		from[key] = append(from[key], name)
		return b.add(scheduler.File{Path: name, Data: data})
	}
	for _, f := range result.Files {
		if err := add(f.Path, f.Data, f.Chart, f.Version); err != nil {
			return err
		}
	}
	for _, h := range result.Hooks {
		if q.adapter == "kubernetes" || q.adapter == "flux" {
			return fmt.Errorf("%s: %s %q is a hook (%s), which the adapter %s cannot run: turn it off by a value of the chart, or make it an object of its own",
				h.Path, h.Kind, h.Name, strings.Join(h.Events, ", "), q.adapter)
		}
		if err := add(h.Path, h.Data, h.Chart, h.Version); err != nil {
			return err
		}
	}
	if len(b.Files) == 0 {
		return fmt.Errorf("the chart %s renders no objects", b.Chart)
	}
	slices.SortFunc(b.Files, func(a, b scheduler.File) int { return strings.Compare(a.Path, b.Path) })
	b.addCharts(from)
	return nil
}

// addCharts lists the charts below the one of the source.
func (b *built) addCharts(from map[[2]string][]string) {
	for key, files := range from {
		if slices.Sort(files); key[0] == b.Chart && key[1] == b.ChartVersion {
			b.Own = files
			continue
		}
		b.More = append(b.More, scheduler.ContentSource{Type: string(bundle.ArtifactChart), Name: key[0], Chart: key[0], Version: key[1], Files: files})
	}
	slices.SortFunc(b.More, func(a, b scheduler.ContentSource) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	})
	if len(b.More) == 0 {
		b.Own = nil
	}
}

// argoHelm is the field helm of an Application's source, as far as it can be followed.
type argoHelm struct {
	ReleaseName             string         `json:"releaseName"`
	Namespace               string         `json:"namespace"`
	Version                 string         `json:"version"`
	Values                  string         `json:"values"`
	ValuesObject            map[string]any `json:"valuesObject"`
	ValueFiles              []string       `json:"valueFiles"`
	IgnoreMissingValueFiles bool           `json:"ignoreMissingValueFiles"`
	KubeVersion             string         `json:"kubeVersion"`
	APIVersions             []string       `json:"apiVersions"`
	SkipCrds                bool           `json:"skipCrds"`
	SkipSchemaValidation    bool           `json:"skipSchemaValidation"`
	SkipTests               bool           `json:"skipTests"`
	Parameters              []struct {
		Name        string `json:"name"`
		Value       string `json:"value"`
		ForceString bool   `json:"forceString"`
	} `json:"parameters"`
}

// helmOf names the field helm of an Application, for messages.
func (s *argoSource) helmOf() string { return fmt.Sprintf("the Application %q: helm", s.application) }

// setChart sets what an Application asks for, in Argo CD's order: files of values, values, parameters.
func (s *argoSource) setChart(b *built, t *tree, q request, c *chart.Job) error {
	opts := &c.Options
	data, err := json.Marshal(s.Helm)
	if err != nil {
		return err
	}
	var helm argoHelm
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&helm); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	opts.ReleaseName, opts.Namespace = cmp.Or(helm.ReleaseName, opts.ReleaseName), cmp.Or(helm.Namespace, opts.Namespace)
	opts.KubeVersion = cmp.Or(helm.KubeVersion, opts.KubeVersion)
	opts.APIVersions = append(slices.Clone(opts.APIVersions), helm.APIVersions...)
	opts.WithoutCRDs, opts.WithoutSchema = helm.SkipCrds, helm.SkipSchemaValidation
	for _, name := range helm.ValueFiles {
		text, err := valuesIn(b, t, q, name)
		if errors.Is(err, fs.ErrNotExist) && helm.IgnoreMissingValueFiles {
			continue
		}
		if err != nil {
			return fmt.Errorf("valueFiles: %w", err)
		}
		c.Values = append(c.Values, chart.Values{Text: text, From: s.helmOf() + ": valueFiles"})
	}
	own := []byte(helm.Values)
	if helm.ValuesObject != nil {
		if own, err = json.Marshal(helm.ValuesObject); err != nil {
			return fmt.Errorf("valuesObject: %w", err)
		}
	}
	c.Values = append(c.Values, chart.Values{Text: own, From: s.helmOf() + ": values"})
	for _, p := range helm.Parameters {
		c.Parameters = append(c.Parameters, chart.Parameter{Path: p.Name, Value: p.Value, AsText: p.ForceString, From: s.helmOf() + ": parameters"})
	}
	return nil
}

// valuesIn reads a file of values, relative to the chart's folder or, with a slash in front, to the source.
func valuesIn(b *built, t *tree, q request, name string) ([]byte, error) {
	if t.FS == nil || strings.Contains(name, "://") || strings.HasPrefix(name, "$") {
		return nil, fmt.Errorf("%q is not in the folder of the chart: put the values into the Application", name)
	}
	if !strings.HasPrefix(name, "/") {
		name = path.Join(q.dir, name)
	}
	name, err := gitrepo.CleanPath(name)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(t.FS, name)
	if err != nil {
		return nil, err
	}
	if !isBelow(name, b.Dir) {
		b.reads = append(b.reads, name)
	}
	return data, nil
}

// decodeAll returns the objects of a file, the items of lists in place of the lists.
func decodeAll(data []byte) (objects []map[string]any) {
	documents := yamlvalues.NewDecoder(data)
	for {
		var o map[string]any
		if documents.Decode(&o) != nil {
			return objects
		}
		items, isList := o["items"].([]any)
		if kind, _ := o["kind"].(string); !isList || !strings.HasSuffix(kind, "List") {
			objects = append(objects, o)
			continue
		}
		for _, item := range items {
			if one, ok := item.(map[string]any); ok {
				objects = append(objects, one)
			}
		}
	}
}
