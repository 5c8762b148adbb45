package render

import (
	"errors"
	"path"
	"strings"

	helm "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// inChart names a file of c relative to the chart that is rendered, such as "charts/redis/values.yaml".
func inChart(c *helm.Chart, file string) string {
	_, below, _ := strings.Cut(c.ChartFullPath()+"/", "/")
	return path.Join(below, file)
}

// inside is a template's name without that of the chart.
func inside(name string) string {
	_, rest, ok := strings.Cut(name, "/")
	if !ok {
		return name
	}
	return rest
}

// prefixOf is the prefix of the values of the chart that has a template: "redis." for charts/redis.
func prefixOf(template string) string {
	parts := strings.Split(template, "/")
	prefix := ""
	for i := 1; i+1 < len(parts) && parts[i] == "charts"; i += 2 {
		prefix += parts[i+1] + "."
	}
	return prefix
}

// The forms of the errors of Helm's engine: that of text/template, one with the place in front, and one with a line for each
// place, from the outermost to the innermost.
var (
	executing     = lazyregexp.New(`template: ([^:]+):(\d+)(?::\d+)?: (?:executing "[^"]*" at <([^>]*)>: )?`)
	wrapped       = lazyregexp.New(`^(?:execution|parse) error (?:at|in) \(([^:)]+)(?::(\d+))?(?::\d+)?\): `)
	traced        = lazyregexp.New(`(?m)^(\S[^:\n]*):(\d+)(?::\d+)?\n(?:  executing "[^"]*" at <([^\n]*)>:\n)?`)
	firstLocation = lazyregexp.New(`^(?:template: |(?:execution|parse) error (?:at|in) \()?([^:\n]+):\d+`)
)

// locate returns the innermost place in an error of Helm's engine, the expression there, and the message.
func locate(message string) (position finding.Position, field, rest string) {
	for _, form := range []*lazyregexp.Regexp{executing, wrapped, traced} {
		all := form.FindAllStringSubmatchIndex(message, -1)
		if len(all) == 0 {
			continue
		}
		last := all[len(all)-1]
		group := func(i int) string {
			if 2*i+1 >= len(last) || last[2*i] < 0 {
				return ""
			}
			return message[last[2*i]:last[2*i+1]]
		}
		return finding.Position{File: inside(group(1)), Line: atoi(group(2))}, group(3), strings.TrimSpace(message[last[1]:])
	}
	return finding.Position{}, "", message
}

// locatedError is an error of a function, with what Helm's engine made of it, which has the place.
type locatedError struct {
	err  error
	text string
}

func (e *locatedError) Error() string { return e.text }
func (e *locatedError) Unwrap() error { return e.err }

// located returns the error of a function with the place in the engine's; nil if the function's error was dropped.
func located(own, engine error) error {
	if engine == nil {
		return own
	}
	return &locatedError{own, engine.Error()}
}

// explain is an error of Helm's engine with the innermost position and without the way to it. What the templates quote of
// values stays out, as far as it can: only the messages of the chart itself are kept whole.
func explain(err error) error {
	position, field, message := locate(err.Error())
	var known *finding.Error
	if errors.As(err, &known) {
		own := *known
		if own.File = inside(known.File); known.File == "" {
			own.Position = position
		}
		return &own
	}
	var own chartError
	if errors.As(err, &own) {
		return &finding.Error{Position: position, Message: finding.Sentence("%s", strings.TrimSpace(string(own))), Err: own}
	}
	if message == "" {
		message = "the template cannot be executed"
	}
	hint := ""
	if strings.HasPrefix(field, ".Values.") && strings.HasPrefix(message, "nil pointer evaluating") {
		hint = "the template reads " + field + ": set it, or the mapping that it is in, in the chart's values"
	}
	if _, rest, ok := strings.Cut(message, `function "`); ok {
		name, _, _ := strings.Cut(rest, `"`)
		hint = "the chart may need a newer Helm"
		if _, ok := sprigFunctions[name]; ok {
			hint = "Helm does not have it either, because it reads the environment"
		}
	}
	return &finding.Error{Position: position, Message: finding.Sentence("%s", message), Hint: hint, Err: err}
}

// notReproducible is an error about a place whose value reaches the output.
func (s *site) notReproducible(file string) error {
	what := "a random value"
	switch {
	case strings.HasPrefix(s.function, "gen"):
		what = "a new key or certificate"
	case s.function == "now" || s.function == "ago" || strings.Contains(strings.ToLower(s.function), "date") || s.function == "durationRound":
		what = "the time"
	case s.function == "bcrypt" || s.function == "htpasswd":
		what = "a hash with a random salt"
	}
	hint := s.advice(prefixOf(s.template))
	if hint == "" {
		hint = "give the values that make the template not call it; the chart's values.yaml and README name them"
	}
	return &finding.Error{
		Position: finding.Position{File: inside(s.template), Line: s.line}, Hint: hint, Err: chart.ErrNotReproducible,
		Message: finding.Sentence("%s gives %s, which reaches %s: the same chart would give other files each time", s.function, what, file),
	}
}
