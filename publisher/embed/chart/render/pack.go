package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Pack returns c as an archive that Helm reads, for a chart that comes from a folder. The same files give the same bytes.
// The archives in its charts/ are folders in it.
func (c *Chart) Pack() ([]byte, error) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	w := tar.NewWriter(zip)
	files := slices.Clone(c.files)
	slices.SortFunc(files, func(a, b *file) int {
		return strings.Compare(rank(a.Name)+a.Name, rank(b.Name)+b.Name)
	})
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: c.Name() + "/" + f.Name, Mode: 0o644, Size: int64(len(f.Data))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// rank puts Chart.yaml first, as Helm does, so that its readers find it without reading all.
func rank(name string) string {
	if name == chartutil.ChartfileName {
		return "0"
	}
	return "1"
}

// File returns a file of the chart, such as another file of values. Its data must not be changed.
func (c *Chart) File(name string) (data []byte, ok bool) {
	i := slices.IndexFunc(c.files, func(f *file) bool { return f.Name == name })
	if i < 0 {
		return nil, false
	}
	return c.files[i].Data, true
}

// WithValuesFiles returns c with files of its own in place of values.yaml, each over those before it, as Flux does for a
// HelmRelease's valuesFiles. An empty list leaves c as it is.
func (c *Chart) WithValuesFiles(names []string) (*Chart, error) {
	if len(names) == 0 {
		return c, nil
	}
	merged := map[string]any{}
	for _, name := range names {
		data, ok := c.File(name)
		if !ok {
			return nil, finding.Errorf("", finding.Position{File: name}, "", "the chart %s has no such file of values", c.Name())
		}
		values, err := chart.ParseValues(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		merged = chart.MergeValues(merged, values)
	}
	data, err := yaml.Marshal(merged)
	if err != nil {
		return nil, err
	}
	other := &Chart{metadata: c.metadata, folders: c.folders, files: []*file{{Name: chartutil.ValuesfileName, Data: data}}}
	for _, f := range c.files {
		if f.Name != chartutil.ValuesfileName {
			other.files = append(other.files, f)
		}
	}
	return other, nil
}
