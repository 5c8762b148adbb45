package sitevalues

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// A template is text with references between {{ and }}, of which each is one term and perhaps functions:
//
//	{{ .cluster.name }}  {{ .cluster.labels.zone | default "north" }}  {{ .values.gateway.address | lower }}  {{ "{{" }}
//
// It is much less than a template of Go, so that it cannot loop, call anything or become large, and needs no library in
// the agent.
type template []part

// part is a piece of text, or a term with functions.
type part struct {
	text      string // if key is empty
	key       string // of a value or a fact
	functions []function
}

type function struct{ name, argument string }

// maxParts bounds the parts of a template.
const maxParts = 64

func isTemplate(text string) bool { return strings.Contains(text, "{{") }

// templateForm is the shape that messages name.
const templateForm = `write {{ .values.KEY }} or {{ .cluster.name }}, perhaps with | lower, | upper or | default "TEXT"`

var (
	termForm = lazyregexp.New(`^\s*(?:\.(values|cluster)\.([A-Za-z0-9][A-Za-z0-9._/-]*)|("(?:[^"\\]|\\.)*"))\s*`)
	pipeForm = lazyregexp.New(`^\|\s*([a-z]+)\s*("(?:[^"\\]|\\.)*")?\s*`)
)

// parseTemplate parses a text with {{. Errors contain no text of it but names.
func parseTemplate(text string) (template, error) {
	var t template
	for {
		before, rest, found := strings.Cut(text, "{{")
		if before != "" {
			t = append(t, part{text: before})
		}
		if !found {
			return t, nil
		}
		p, after, err := parseTerm(rest)
		if err != nil {
			return nil, err
		}
		if t = append(t, p); len(t) > maxParts {
			return nil, fmt.Errorf("it has more than %d parts", maxParts)
		}
		text = after
	}
}

// parseTerm parses what follows {{, with the }}, and returns the rest.
func parseTerm(text string) (p part, rest string, err error) {
	term := termForm.FindStringSubmatch(text)
	switch {
	case term == nil:
		return p, "", errors.New("unsupported template: " + templateForm)
	case term[3] != "":
		if p.text, err = strconv.Unquote(term[3]); err != nil {
			return p, "", errors.New("it has a text in quotes that cannot be read")
		}
	case term[1] == "values":
		p.key = term[2]
		if IsFact(p.key) || !keyForm.MatchString(p.key) {
			return p, "", fmt.Errorf("it refers to .values.%s, which cannot be a key", bundle.Clip(p.key))
		}
	default:
		if p.key = ClusterPrefix + term[2]; !IsFact(p.key) {
			return p, "", fmt.Errorf("it refers to .%s: known: .cluster.name, .uid, .type, .environment, .ring and .labels.LABEL", bundle.Clip(p.key))
		}
	}
	text = text[len(term[0]):]
	for !strings.HasPrefix(text, "}}") {
		pipe := pipeForm.FindStringSubmatch(text)
		if pipe == nil {
			return p, "", errors.New("unsupported template: " + templateForm)
		}
		f := function{name: pipe[1]}
		if needs := f.name == "default"; !slices.Contains([]string{"default", "lower", "upper"}, f.name) || needs != (pipe[2] != "") {
			return p, "", fmt.Errorf("it has the function %s, or one with wrong arguments: %s", bundle.Clip(f.name), templateForm)
		}
		if pipe[2] != "" {
			if f.argument, err = strconv.Unquote(pipe[2]); err != nil {
				return p, "", errors.New("it has a text in quotes that cannot be read")
			}
		}
		if p.functions = append(p.functions, f); len(p.functions) > maxParts {
			return p, "", fmt.Errorf("it has more than %d functions", maxParts)
		}
		text = text[len(pipe[0]):]
	}
	return p, text[len("}}"):], nil
}

// refs lists the keys to which the template refers, sorted.
func (t template) refs() []string {
	var keys []string
	for _, p := range t {
		if p.key != "" {
			keys = append(keys, p.key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// has reports whether the part has a default.
func (p part) hasDefault() bool {
	return slices.ContainsFunc(p.functions, func(f function) bool { return f.name == "default" })
}

// apply returns the text of a term with its functions applied to text.
func (p part) apply(text string) string {
	for _, f := range p.functions {
		switch f.name {
		case "lower":
			text = strings.ToLower(text)
		case "upper":
			text = strings.ToUpper(text)
		case "default":
			if text == "" {
				text = f.argument
			}
		}
	}
	return text
}
