package chart

import (
	"errors"
	"path"
	"strings"

	helm "helm.sh/helm/v3/pkg/chart"

	"github.com/Masterminds/sprig/v3"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
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

var executing = lazyregexp.New(`template: ([^:]+):(\d+)(?::\d+)?: (?:executing "[^"]*" at <([^>]*)>: )?`)

// explain is an error of text/template with the innermost position and without the way to it. What the templates quote of
// values stays out, as far as it can: only the messages of the chart itself are kept whole.
func explain(err error) error {
	var known *finding.Error
	if errors.As(err, &known) && known.File != "" {
		own := *known
		own.File = inside(known.File)
		return &own
	}
	message := err.Error()
	position, field := finding.Position{}, ""
	if all := executing.FindAllStringSubmatchIndex(message, -1); len(all) > 0 {
		last := all[len(all)-1]
		position = finding.Position{File: inside(message[last[2]:last[3]]), Line: atoi(message[last[4]:last[5]])}
		if last[6] >= 0 {
			field = message[last[6]:last[7]]
		}
		message = message[last[1]:]
	}
	if known != nil {
		own := *known
		own.Position = position
		return &own
	}
	var own chartError
	if errors.As(err, &own) {
		return &finding.Error{Position: position, Message: finding.Sentence("%s", strings.TrimSpace(string(own))), Err: own}
	}
	if errors.Is(err, ErrTooSlow) {
		return err
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
		if _, ok := sprig.GenericFuncMap()[name]; ok {
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
		Position: finding.Position{File: inside(s.template), Line: s.line}, Hint: hint, Err: ErrNotReproducible,
		Message: finding.Sentence("%s gives %s, which reaches %s: the same chart would give other files each time", s.function, what, file),
	}
}
