package kinds

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// DataKey is the key of the ConfigMap's data that holds the JSON Schema, as JSON or YAML.
const DataKey = "schema"

// SiteSchema is a declaration of site values.
type SiteSchema struct {
	Document *sitevalues.Document
	// At is the position of the ConfigMap.
	At    finding.Position
	lines map[place]int
}

// place is a part of a declaration. The keyword is empty for a key as a whole, and both are for the declaration.
type place struct{ key, keyword string }

// Position returns the position of a keyword of a key, or else of the key, or else of the ConfigMap.
func (s *SiteSchema) Position(key, keyword string) finding.Position {
	for _, p := range []place{{key, keyword}, {key, ""}} {
		if line, ok := s.lines[p]; ok {
			return finding.Position{File: s.At.File, Line: line}
		}
	}
	return s.At
}

// keywords of a declaration and of a key, for suggestions.
var (
	topKeywords = []string{"$schema", "additionalProperties", "description", "properties", "required", "title", "type"}
	keyKeywords = []string{
		"default", "description", "enum", "format", "maximum", "maxLength", "minimum", "minLength", "pattern", "siteMaySet", "type",
	}
)

// ParseSiteSchema reads the declaration in a ConfigMap. The error joins all mistakes, each a [finding.Error] with its place.
func ParseSiteSchema(cm *ConfigMap) (*SiteSchema, error) {
	s := &SiteSchema{At: cm.At, lines: map[place]int{}, Document: &sitevalues.Document{Name: cm.Metadata.Name, Properties: map[string]sitevalues.Property{}}}
	r := &reader{SiteSchema: s, name: cm.Metadata.Name}
	for key, text := range cm.Data {
		if key != DataKey {
			r.fail(int(text.Line), finding.DidYouMean(key, []string{DataKey}), "data.%s is not read: the declaration is in data.%s", key, DataKey)
		}
	}
	text, ok := cm.Data[DataKey]
	if !ok {
		r.fail(cm.At.Line, "", "there is no data.%s", DataKey)
	} else if n := r.parse(text); n != nil {
		r.declaration(n)
	}
	if len(r.errs) == 0 {
		for _, m := range s.Document.Check() {
			r.fail(s.Position(m.Key, m.Keyword).Line, m.Hint, "%s", m)
		}
	}
	if _, err := s.Document.Marshal(); err != nil && len(r.errs) == 0 {
		r.fail(r.first, "", "%v", err)
	}
	if len(r.errs) > 0 {
		return nil, finding.Join(r.errs)
	}
	return s, nil
}

type reader struct {
	*SiteSchema
	name  string
	first int // the line of the file on which the text begins
	errs  []error
}

func (r *reader) fail(line int, hint, format string, args ...any) {
	r.errs = append(r.errs, finding.Errorf(finding.CodeSiteSchema, finding.Position{File: r.At.File, Line: line}, hint,
		"site values %q: %s", r.name, fmt.Sprintf(format, args...)))
}

// line returns the line of the file on which a node of the text is.
func (r *reader) line(n *yaml.Node) int { return r.first + n.Line - 1 }

// parse returns the one document in the text; nil after a mistake.
func (r *reader) parse(text Text) *yaml.Node {
	r.first = int(text.First)
	if len(text.Value) > sitevalues.MaxDocumentBytes {
		r.fail(r.first, "", "it has %d bytes, at most %d are permitted", len(text.Value), sitevalues.MaxDocumentBytes)
		return nil
	}
	var document, more yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(text.Value))
	err := dec.Decode(&document)
	if err == nil && !errors.Is(dec.Decode(&more), io.EOF) {
		err = errors.New("there is more than one document")
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("must not be empty")
	}
	if err != nil {
		r.fail(r.first, "", "data.%s: %s", DataKey, strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	return document.Content[0]
}

// eachPair calls take with the keys of a mapping and their values, each once. Aliases are resolved.
func (r *reader) eachPair(n *yaml.Node, what string, take func(key, value *yaml.Node)) {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		r.fail(r.line(n), "", "%s must be a mapping, not a %s", what, KindName(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolved(n.Content[i+1])
		if key.Kind != yaml.ScalarNode || seen[key.Value] {
			r.fail(r.line(key), "", "%s has the key %q twice, or one that is no text", what, key.Value)
			continue
		}
		seen[key.Value] = true
		take(key, value)
	}
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (r *reader) declaration(n *yaml.Node) {
	r.eachPair(n, "the declaration", func(key, value *yaml.Node) {
		r.lines[place{"", key.Value}] = r.line(key)
		switch key.Value {
		case "$schema", "title", "description": // for people and editors
		case "type":
			if value.Value != "object" {
				r.fail(r.line(value), "", "type must be object: site values are a flat object")
			}
		case "additionalProperties":
			if value.ShortTag() != "!!bool" || value.Value != "false" {
				r.fail(r.line(value), "", "additionalProperties can only be false: every key is declared")
			}
		case "properties":
			r.eachPair(value, "properties", r.property)
		case "required":
			r.Document.Required = r.texts(value, "required")
		default:
			r.fail(r.line(key), hint(key.Value, topKeywords), "the keyword %s is not supported here", key.Value)
		}
	})
}

func hint(word string, known []string) string {
	if h := finding.DidYouMean(word, known); h != "" {
		return h
	}
	return "known: " + strings.Join(known, ", ")
}

func (r *reader) property(key, value *yaml.Node) {
	name := key.Value
	r.lines[place{name, ""}] = r.line(key)
	var p sitevalues.Property
	r.eachPair(value, name, func(keyword, value *yaml.Node) {
		r.lines[place{name, keyword.Value}] = r.line(keyword)
		what := name + ": " + keyword.Value
		switch keyword.Value {
		case "type":
			if p.Type = sitevalues.Type(r.text(value, what)); p.Type == "object" || p.Type == "array" {
				r.fail(r.line(value), "take it apart into keys such as "+name+".host and "+name+".port", "%s: a site value cannot be an %s", what, p.Type)
			}
		case "description":
			p.Description = r.text(value, what)
		case "pattern":
			p.Pattern = r.text(value, what)
		case "format":
			p.Format = r.text(value, what)
		case "enum":
			if value.Kind != yaml.SequenceNode {
				r.fail(r.line(value), "", "%s must be a list", what)
				return
			}
			p.Enum = []any{}
			for _, item := range value.Content {
				p.Enum = append(p.Enum, ScalarOf(item))
			}
		case "minLength":
			p.MinLength = r.integer(value, what)
		case "maxLength":
			p.MaxLength = r.integer(value, what)
		case "minimum":
			p.Minimum = r.number(value, what)
		case "maximum":
			p.Maximum = r.number(value, what)
		case "default":
			if p.Default = ScalarOf(value); p.Default == nil {
				r.fail(r.line(value), "leave it out for a key without a default", "%s has no value", what)
			}
		case "siteMaySet":
			if value.ShortTag() != "!!bool" {
				r.fail(r.line(value), "", "%s must be true or false", what)
			}
			p.SiteMaySet = value.Value == "true"
		default:
			r.fail(r.line(keyword), hint(keyword.Value, keyKeywords), "%s: the keyword is not supported", what)
		}
	})
	r.Document.Properties[name] = p
}

func (r *reader) text(n *yaml.Node, what string) string {
	if text, ok := ScalarOf(n).(string); ok {
		return text
	}
	r.fail(r.line(n), "", "%s must be a text", what)
	return ""
}

func (r *reader) texts(n *yaml.Node, what string) []string {
	if n.Kind != yaml.SequenceNode || len(n.Content) > sitevalues.MaxKeys {
		r.fail(r.line(n), "", "%s must be a list of at most %d keys", what, sitevalues.MaxKeys)
		return nil
	}
	var all []string
	for _, item := range n.Content {
		all = append(all, r.text(item, what))
	}
	return slices.Clip(all)
}

func (r *reader) number(n *yaml.Node, what string) *float64 {
	p := sitevalues.Property{Type: sitevalues.Number}
	value, err := p.Read(ScalarOf(n))
	if err != nil || n.ShortTag() == "!!str" {
		r.fail(r.line(n), "", "%s must be a number", what)
		return nil
	}
	f, _ := value.(float64)
	return &f
}

func (r *reader) integer(n *yaml.Node, what string) *int {
	f := r.number(n, what)
	if f == nil {
		return nil
	}
	if *f != math.Trunc(*f) || math.Abs(*f) > math.MaxInt32 {
		r.fail(r.line(n), "", "%s must be a whole number", what)
		return nil
	}
	i := int(*f)
	return &i
}
