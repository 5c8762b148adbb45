package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/health"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// health adds the conditions about a kind, or a name of it, that the assignment does not render: agents
// refuse the assignment because of them.
func (r *renderedFiles) health() {
	if len(r.assignment.Health) == 0 || !slices.Contains(objectAdapters, r.assignment.Adapter) {
		return
	}
	var rendered []string
	for _, id := range r.own {
		rendered = append(rendered, id.kind)
	}
	slices.Sort(rendered)
	rendered = slices.Compact(rendered)
	for _, text := range r.assignment.Health {
		c, err := health.Parse(text)
		if err != nil || c.Kind == "" || r.renders(c.Kind, c.Name) {
			continue
		}
		a, _ := kinds.AnnotationFor(r.ct, r.target(r.assignment.Name), "health")
		hint := cmp.Or(finding.DidYouMean(c.Kind, rendered), "known: "+strings.Join(rendered, ", "))
		if slices.Contains(rendered, c.Kind) {
			hint = "leave the name out, and it is about every " + c.Kind
		}
		r.addFor(text, r.ct.Metadata.Name+"/"+r.assignment.Name, finding.New(finding.CodeHealthOfNothing, a.At, hint,
			"annotation %s: %s: nothing that is rendered is it", a.Key, text))
	}
}

// renders reports whether the assignment holds an object of a kind, and of a name if one is given.
func (r *renderedFiles) renders(kind, name string) bool {
	for _, id := range r.own {
		if id.kind == kind && (name == "" || id.name == name) {
			return true
		}
	}
	return false
}
