package browser

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/stretchr/testify/assert"
)

// axe is Deque's library that finds what keeps people from using a page.
//
//go:embed testdata/axe/axe.min.js
var axe string

// accessible requires that axe finds nothing on the page, in both themes. The dark one differs in its colours alone.
func (p tab) accessible(path string) {
	p.Helper()
	script[bool](p, axe+"; true")
	for theme, rules := range map[string]string{
		"light": `{type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}`,
		"dark":  `{type: "rule", values: ["color-contrast", "link-in-text-block"]}`,
	} {
		p.look(theme, 1440)
		for _, f := range script[[]finding](p, `axe.run({runOnly: `+rules+`, resultTypes: ["violations"]}).then(found => found.violations)`) {
			assert.Fail(p, f.String(), "%s, %s", path, theme)
		}
	}
}

type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

func (f finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.ID, f.Help)
	for _, n := range f.Nodes[:min(3, len(f.Nodes))] {
		fmt.Fprintf(&b, "\n%s\n%s", n.HTML, n.FailureSummary)
	}
	return b.String()
}
