package metrics

import (
	"bytes"
	"strconv"
	"strings"
)

// ContentType is that of a page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// page is a page of metrics in Prometheus' text format, version 0.0.4. It is written here because the client
// library, with its protocol buffers, would make the agent half a megabyte larger.
type page struct{ bytes.Buffer }

// sample is one value of a metric. Labels are names and values in turn.
type sample struct {
	value  float64
	suffix string // of the metric's name, as histograms have them
	labels []string
}

func (p *page) write(m metric, samples []sample) {
	if len(samples) == 0 {
		return
	}
	p.WriteString("# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n")
	for _, s := range samples {
		p.WriteString(m.name + s.suffix)
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
