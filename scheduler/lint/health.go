package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// health adds the conditions about a kind, or a name of it, that the assignment does not render: agents
// refuse the assignment because of them.
func (r *renderedFiles) health() {
	for _, found := range r.aboutNothing() {
		if !r.model.Ignores(found.Code) {
			r.addFor(found.Group, r.ct.Metadata.Name+"/"+r.assignment.Name, found)
		}
	}
}

// aboutNothing returns these findings. Their groups are the conditions.
func (r *renderedFiles) aboutNothing() (all []finding.Finding) {
	if len(r.assignment.Health) == 0 || !slices.Contains(objectAdapters, r.assignment.Adapter) {
		return nil
	}
	var rendered []string
	for _, id := range r.own {
		rendered = append(rendered, id.kind)
	}
	slices.Sort(rendered)
	rendered = slices.Compact(rendered)
	for _, text := range r.assignment.Health {
		c, err := manifests.ParseHealth(text)
		if err != nil || c.Kind == "" || r.renders(c.Kind, c.Name) {
			continue
		}
		a, _ := kinds.AnnotationFor(r.ct, r.target(r.assignment.Name), "health")
		hint := cmp.Or(finding.DidYouMean(c.Kind, rendered), "known: "+strings.Join(rendered, ", "))
		if slices.Contains(rendered, c.Kind) {
			hint = "leave the name out, and it is about every " + c.Kind
		}
		f := finding.New(finding.CodeHealthOfNothing, a.At, hint, "annotation %s: %s: nothing that is rendered is it", a.Key, text)
		f.Group = text
		all = append(all, f)
	}
	return all
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
