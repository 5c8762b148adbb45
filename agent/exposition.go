package agent

import (
	"bytes"
	"strconv"
	"strings"
)

// exposition is a page of metrics in Prometheus' text format, version 0.0.4. It is written here because the client
// library, with its protocol buffers, would make the agent half a megabyte larger.
type exposition struct{ bytes.Buffer }

// sample is one value of a metric. Labels are names and values in turn.
type sample struct {
	value  float64
	suffix string // of the metric's name, as histograms have them
	labels []string
}

func (e *exposition) write(m metric, samples []sample) {
	if len(samples) == 0 {
		return
	}
	e.WriteString("# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n")
	for _, s := range samples {
		e.WriteString(m.name + s.suffix)
		for i := 0; i+1 < len(s.labels); i += 2 {
			e.WriteString([]string{"{", ","}[min(i, 1)] + s.labels[i] + `="` + escapeLabel.Replace(s.labels[i+1]) + `"`)
		}
		if len(s.labels) > 0 {
			e.WriteByte('}')
		}
		e.WriteString(" " + strconv.FormatFloat(s.value, 'f', -1, 64) + "\n")
	}
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
