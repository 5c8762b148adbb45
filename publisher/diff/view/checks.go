package view

import (
	"bytes"
	"fmt"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/diff"
)

// writeChecks lists the platform's checks that do not accept the plan.
func writeChecks(b *bytes.Buffer, d *diff.Difference) {
	for _, j := range d.Checks {
		word := "REFUSED: "
		if j.Warning {
			word = "WARNING: "
		}
		fmt.Fprintf(b, "%s%s\n\n", word, show.Line(j.Err().Error()))
	}
}

// checks is writeChecks for Markdown.
func (c *comment) checks(d *diff.Difference) {
	for _, j := range d.Checks {
		mark, word := "CAUTION", "Refused"
		if j.Warning {
			mark, word = "WARNING", "Warning"
		}
		fmt.Fprintf(c, "\n> [!%s]\n> **%s:** %s\n", mark, word, show.Markdown(j.Err().Error()))
	}
}
