package metrics

import (
	"bytes"
	"strconv"
	"strings"
)

// ContentType is that of a page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

const gauge, counter, histogram = "gauge", "counter", "histogram"

// page is a page of metrics in Prometheus' text format, version 0.0.4. It is written here, as the agent writes its own,
// because the client library brings protocol buffers for a few lines of text.
type page struct{ bytes.Buffer }

// sample is one value of a metric. Labels are names and values in turn.
type sample struct {
	value  float64
	suffix string // of the metric's name, as histograms have them
	labels []string
}

// write writes a metric; nothing without samples.
func (p *page) write(name, kind, help string, samples ...sample) {
	if len(samples) == 0 {
		return
	}
	p.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
	for _, s := range samples {
		p.WriteString(name + s.suffix)
		for i := 0; i+1 < len(s.labels); i += 2 {
			p.WriteString([]string{"{", ","}[min(i, 1)] + s.labels[i] + `="` + escapeLabel.Replace(s.labels[i+1]) + `"`)
		}
		if len(s.labels) > 0 {
			p.WriteByte('}')
		}
		p.WriteString(" " + strconv.FormatFloat(s.value, 'f', -1, 64) + "\n")
	}
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
