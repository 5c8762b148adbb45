// Package render reads, packs and renders Helm charts as "helm template" does, without the machine around it.
//
// Begin with [Do], or with [Read] or [ReadFolder], and [Chart.Render]. The same chart, values and options give the same bytes: no cluster is
// asked, no file and no environment variable of the machine is read, no program runs, and a random value or the time that
// reaches the output is an error. What a chart depends on must be in it. Archives and output are bounded; time and memory are
// those of the process, which publisher/sandbox bounds.
//
// Helm's own library reads charts, composes values and executes templates, with a few functions of ours in place of its own:
// those whose results are random, are the time, or are in no order. To name the place of a call that has an effect on the
// output, the templates are executed again with each such call marked.
package render

import (
	"bytes"
	"fmt"
	"io/fs"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helm "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

type file = archive.BufferedFile

// Chart is a chart with all that it depends on. It may be rendered by several goroutines.
type Chart struct {
	files    []*file // with the archives in charts/ unpacked
	metadata helm.Metadata
	folders  []string
}

// Name is the name in Chart.yaml.
func (c *Chart) Name() string { return c.metadata.Name }

// Version is the version in Chart.yaml.
func (c *Chart) Version() string { return c.metadata.Version }

// Folders lists the folders that [ReadFolder] read, sorted: the chart's own, and those of its dependencies of the kind
// file://. It is empty for an archive.
func (c *Chart) Folders() []string { return c.folders }

// Do reads, packs and renders the chart of a job, which is an archive or a folder of files.
func Do(files fs.FS, job chart.Job) (*chart.Done, error) {
	var c *Chart
	var err error
	if job.Archive != nil {
		c, err = Read(bytes.NewReader(job.Archive))
	} else {
		c, err = ReadFolder(files, job.Dir)
	}
	if err == nil {
		c, err = c.WithValuesFiles(job.ValuesFiles)
	}
	if err != nil {
		return nil, err
	}
	done := &chart.Done{Name: c.Name(), Version: c.Version(), AppVersion: c.metadata.AppVersion, Folders: c.Folders()}
	if job.Pack {
		if done.Archive = job.Archive; job.Archive == nil || len(job.ValuesFiles) > 0 {
			if done.Archive, err = c.Pack(); err != nil {
				return nil, err
			}
		}
	}
	if !job.Render {
		return done, nil
	}
	for _, v := range job.Values {
		values, err := chart.ParseValues(v.Text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.From, err)
		}
		job.Options.Values = chart.MergeValues(job.Options.Values, values)
	}
	for _, p := range job.Parameters {
		if err := chart.SetValue(job.Options.Values, p.Path, p.Value, p.AsText); err != nil {
			return nil, fmt.Errorf("%s: %w", p.From, err)
		}
	}
	done.Rendered, err = c.Render(job.Options)
	return done, err
}
