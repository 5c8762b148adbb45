package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/template"
)

// permitsMissing reports whether t may print missing keys.
func permitsMissing(t *kinds.Template) bool {
	return t.Metadata.Annotations[template.MissingKeysAnnotation].Value == template.MissingKeysKalypso
}

// checkMissingKeys warns about an unknown value of the annotation.
func checkMissingKeys(t *kinds.Template) []finding.Finding {
	v, ok := t.Metadata.Annotations[template.MissingKeysAnnotation]
	if !ok || permitsMissing(t) {
		return nil
	}
	return []finding.Finding{finding.New(finding.CodeAnnotationValue, t.Position(v.Line), hintOf(v.Value, []string{template.MissingKeysKalypso}), "annotation %s: unknown value %q", template.MissingKeysAnnotation, v.Value)}
}

// missingKeysOf returns the error of an assignment that prints missing keys.
func missingKeysOf(missing []error) error {
	if len(missing) == 0 {
		return nil
	}
	return because(TemplateFailed, errors.Join(missing...))
}

// lackingAssignments is a finding about several assignments, such as a missing key that they print at the same place.
type lackingAssignments struct {
	finding finding.Finding
	first   string
	more    int
}

// alike reports whether two findings have one cause.
func alike(a, b finding.Finding) bool {
	if a.Group != "" && a.Group == b.Group {
		return a.Code == b.Code && a.Position == b.Position
	}
	return a == b
}

// missingFindings groups the findings about rendered assignments, such as missing keys: one for each place.
type missingFindings []*lackingAssignments

func (m *missingFindings) add(assignment string, missing []error) {
	for _, err := range missing {
		for _, f := range finding.In(err) {
			i := slices.IndexFunc(*m, func(known *lackingAssignments) bool { return alike(known.finding, f) })
			if i >= 0 {
				(*m)[i].more++
			} else {
				*m = append(*m, &lackingAssignments{finding: f, first: assignment})
			}
		}
	}
}

// merge adds those of another cluster type.
func (m *missingFindings) merge(other missingFindings) {
	for _, o := range other {
		i := slices.IndexFunc(*m, func(known *lackingAssignments) bool { return alike(known.finding, o.finding) })
		if i >= 0 {
			(*m)[i].more += o.more + 1
		} else {
			*m = append(*m, o)
		}
	}
}

func (m missingFindings) findings() []finding.Finding {
	var all []finding.Finding
	for _, l := range m {
		f := l.finding
		f.Message += " for " + l.first
		if l.more > 0 {
			f.Message += fmt.Sprintf(" and %d more", l.more)
		}
		all = append(all, f)
	}
	return all
}
