package template

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// The functions below run only after a template in a configuration value has failed. They find the value, which the error
// of a whole rendered document does not name.

// reference finds the values that a value refers to.
var reference = lazyregexp.New(`ConfigData\.([A-Za-z0-9_]+)|ConfigData\s+"([^"]+)"`)

// explainNested blames err, from the evaluation of a text that templates have rendered, on the
// configuration value that fails on its own; if there is none, on the template at at.
func (e *Evaluator) explainNested(ctx context.Context, err error, at finding.Position, in *Input) error {
	if errors.Is(err, ErrTooLong) || errors.Is(err, errTooManySteps) || errors.Is(err, errTooMuchTime) {
		return explainCycle(at, in, err.Error())
	}
	values := in.Config.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, s := range templatesIn(values[key]) {
			value := e.lib.text("value", s, in.Config.Origin(key))
			alone := &Evaluator{lib: e.lib, base: e.base, shielded: e.shielded}
			if valueErr := alone.once(ctx, value, in); valueErr != nil {
				return fmt.Errorf("value of %s: %w", key, valueErr)
			}
		}
	}
	return finding.Errorf("", at, "", "in the text that the template has rendered: %v", explain(err, finding.Position{}))
}

// once evaluates a value, but not the templates in its result.
func (e *Evaluator) once(ctx context.Context, t *parsedText, in *Input) error {
	if t.err != nil {
		return t.err
	}
	run := t.run
	if in.Shield != nil {
		run = t.shielded
	}
	e.out = output{ctx: ctx}
	if err := e.execute(run, t.mutates, in); err != nil {
		return explain(err, t.at)
	}
	return nil
}

// explainCycle returns an error that names the values which refer to each other in a circle, or one with the message
// otherwise if there is no circle.
func explainCycle(at finding.Position, in *Input, otherwise string) error {
	const hint = "a value must not lead back to itself"
	visited := map[string]bool{}
	values := in.Config.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if cycle := findCycle(values, []string{key}, visited); cycle != nil {
			return finding.Errorf(finding.CodeCycleOfValues, in.Config.Origin(cycle[0]), hint, "the value of %s refers to itself: %s", cycle[0], strings.Join(cycle, " → "))
		}
	}
	return finding.Errorf("", at, hint, "%s", otherwise)
}

// findCycle follows the references of the last key of path until one comes up again.
func findCycle(values map[string]any, path []string, visited map[string]bool) []string {
	key := path[len(path)-1]
	if visited[key] {
		return nil
	}
	for _, s := range templatesIn(values[key]) {
		for _, match := range reference.FindAllStringSubmatch(s, -1) {
			next := match[1] + match[2]
			if i := slices.Index(path, next); i >= 0 {
				return append(slices.Clone(path[i:]), next)
			}
			if cycle := findCycle(values, append(slices.Clone(path), next), visited); cycle != nil {
				return cycle
			}
		}
	}
	visited[key] = true
	return nil
}

// templatesIn lists the strings in a value that hold templates.
func templatesIn(value any) []string {
	var found []string
	yamlvalue.MapStrings(yamlvalue.Clone(value), func(s string) any {
		if strings.Contains(s, "{{") {
			found = append(found, s)
		}
		return s
	})
	return found
}
