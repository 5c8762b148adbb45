package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

// Source is what a job reads.
type Source struct {
	// Files may be nil for a chart with an archive. One goroutine reads them, while the job runs.
	Files fs.FS
	// Remote returns the tree of a commit of another repository. Nil refuses all of them.
	Remote func(ctx context.Context, url, commit string) (fs.FS, error)
}

// job is one of the two, whose large parts are blobs of the message.
type job struct {
	Chart         *chart.Job         `json:"chart,omitempty"`
	From          []string           `json:"from,omitempty"` // of Chart.Values
	HasArchive    bool               `json:"hasArchive,omitempty"`
	Kustomization *kustomizationWork `json:"kustomization,omitempty"`
}

type kustomizationWork struct {
	Dir    string `json:"dir"`
	Remote bool   `json:"remote"`
	Argo   []byte `json:"argo,omitempty"`
}

// builtKustomization has its YAML in a blob.
type builtKustomization struct {
	Read []string `json:"read"`
}

// outcome is the end of a job: an error or one of the results, whose files are blobs of the message.
type outcome struct {
	// Failed means that the job has failed, with the text Err. Cause is the number of the parent's error that it is because
	// of, plus one.
	Failed bool   `json:"failed,omitempty"`
	Err    string `json:"err,omitempty"`
	Cause  int    `json:"cause,omitempty"`
	// CPU is the processor time of the child so far, in nanoseconds.
	CPU           int64               `json:"cpu,omitempty"`
	Chart         *chart.Done         `json:"chart,omitempty"`
	Kustomization *builtKustomization `json:"kustomization,omitempty"`
}

// packJob returns the message that asks for a chart.
func packJob(c chart.Job) (message, error) {
	values, err := encodeValues(c.Options.Values)
	if err != nil {
		return message{}, err
	}
	c.Options.Values = nil
	j := job{Chart: &c, HasArchive: c.Archive != nil}
	blobs := [][]byte{values, c.Archive}
	for _, v := range c.Values {
		j.From, blobs = append(j.From, v.From), append(blobs, v.Text)
	}
	return message{Job: &j, blobs: blobs}, nil
}

// unpack is the inverse of packJob.
func (j *job) unpack(blobs [][]byte) (c chart.Job, err error) {
	if len(blobs) != 2+len(j.From) {
		return c, errors.New("the job is not whole")
	}
	c = *j.Chart
	if c.Options.Values, err = decodeValues(blobs[0]); err != nil {
		return c, err
	}
	if j.HasArchive {
		c.Archive = blobs[1]
	}
	for i, from := range j.From {
		c.Values = append(c.Values, chart.Values{From: from, Text: blobs[2+i]})
	}
	return c, nil
}

// packResult moves the files of a result to blobs.
func packResult(r *chart.Done) *message {
	m := &message{Outcome: &outcome{Chart: r}, blobs: [][]byte{r.Archive}}
	r.Archive = nil
	if r.Rendered == nil {
		return m
	}
	for i := range r.Rendered.Files {
		f := &r.Rendered.Files[i]
		m.blobs, f.Data = append(m.blobs, f.Data), nil
	}
	for i := range r.Rendered.Hooks {
		h := &r.Rendered.Hooks[i]
		m.blobs, h.Data = append(m.blobs, h.Data), nil
	}
	return m
}

// unpackResult is the inverse of packResult.
func unpackResult(m message) (*chart.Done, error) {
	r, blobs := m.Outcome.Chart, m.blobs
	next := func() (data []byte) {
		if len(blobs) > 0 {
			data, blobs = blobs[0], blobs[1:]
		}
		return data
	}
	n := 1
	if r != nil && r.Rendered != nil {
		n += len(r.Rendered.Files) + len(r.Rendered.Hooks)
	}
	if r == nil || len(blobs) != n {
		return nil, errors.New("the result is not whole")
	}
	r.Archive = next()
	if r.Rendered == nil {
		return r, nil
	}
	for i := range r.Rendered.Files {
		r.Rendered.Files[i].Data = next()
	}
	for i := range r.Rendered.Hooks {
		r.Rendered.Hooks[i].Data = next()
	}
	return r, nil
}

// encodeValues writes values as JSON in which a number has a point, or an exponent, if it is a float64: a template prints
// them unlike whole numbers.
func encodeValues(values map[string]any) ([]byte, error) { return json.Marshal(marked(values)) }

func marked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, value := range v {
			all[key] = marked(value)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, value := range v {
			all[i] = marked(value)
		}
		return all
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return json.Number(text)
	}
	return v
}

// decodeValues reads what encodeValues writes. Whole numbers are int64.
func decodeValues(data []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		return nil, err
	}
	read, err := unmarked(values)
	values, _ = read.(map[string]any)
	return values, err
}

func unmarked(v any) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key], err = unmarked(value); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, value := range v {
			if v[i], err = unmarked(value); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			return v.Float64()
		}
		return v.Int64()
	}
	return v, nil
}
