package sitevalues

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/show"
)

// Type is the type of a value.
type Type string

// The types of values.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
)

// Types lists them.
var Types = [...]Type{Boolean, Integer, Number, String}

// Formats lists the values of Property.Format.
var Formats = [...]string{"cidr", "hostname", "ipv4", "ipv6", "uri"}

// Document declares the values that sites of one cluster type have. In the tree it is a JSON Schema of a flat object, with
// the keyword siteMaySet beside those of JSON Schema, and the format cidr.
type Document struct {
	// Name is the name of the ConfigMap with the declaration.
	Name       string              `json:"title"`
	Properties map[string]Property `json:"properties"`
	// Required lists the keys that every cluster must have, sorted.
	Required []string `json:"required,omitempty"`
}

// Property declares one value. The zero value of each field but Type means that there is no such condition.
type Property struct {
	Type        Type   `json:"type"`
	Description string `json:"description,omitempty"`
	// Enum lists the permitted values. Enum and Default hold a string, an int64, a float64 or a bool each, by Type.
	Enum    []any  `json:"enum,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	// Format is one of Formats.
	Format string `json:"format,omitempty"`
	// MinLength and MaxLength count characters.
	MinLength *int     `json:"minLength,omitempty"`
	MaxLength *int     `json:"maxLength,omitempty"`
	Minimum   *float64 `json:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty"`
	// Default is the value without another; a string with {{ is a template for every Type. Nil means that there is none.
	Default any `json:"default,omitempty"`
	// SiteMaySet is true if the site's own file may give the value.
	SiteMaySet bool `json:"siteMaySet,omitempty"`
}

// header makes a document a JSON Schema.
type header struct {
	Type                 string `json:"type"`
	AdditionalProperties *bool  `json:"additionalProperties"`
	Document
}

// Bounds of one property.
const (
	maxDescription = 1024
	maxPattern     = 512
	maxEnum        = 64
)

// Marshal returns the content of DocumentPath. The same declaration gives the same bytes.
func (d *Document) Marshal() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(header{Type: "object", AdditionalProperties: new(bool), Document: *d}); err != nil {
		return nil, fmt.Errorf("site values %s: %w", d.Name, err)
	}
	if b.Len() > MaxDocumentBytes {
		return nil, fmt.Errorf("site values %s: %d bytes: %w (at most %d)", d.Name, b.Len(), bundle.ErrTooLarge, MaxDocumentBytes)
	}
	return b.Bytes(), nil
}

// ParseDocument parses and checks the output of Marshal. Its errors are of type *bundle.Refusal; the reason is
// bundle.UnsupportedSchema for a keyword of a later version.
func ParseDocument(data []byte) (*Document, error) {
	if len(data) > MaxDocumentBytes {
		return nil, bundle.Refuse(bundle.TooLarge, "%s has more than %d bytes", DocumentPath, MaxDocumentBytes)
	}
	var h header
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		if strings.Contains(err.Error(), "unknown field") {
			return nil, bundle.Refuse(bundle.UnsupportedSchema, "%s: %v: it needs a newer version of wherry", DocumentPath, err)
		}
		return nil, bundle.Refuse(bundle.BadContent, "%s: %v", DocumentPath, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bundle.Refuse(bundle.BadContent, "%s: more than one JSON value", DocumentPath)
	}
	if h.Type != "object" || h.AdditionalProperties == nil || *h.AdditionalProperties {
		return nil, bundle.Refuse(bundle.BadContent, "%s: no declaration of site values", DocumentPath)
	}
	d := h.Document
	if mistakes := d.Check(); len(mistakes) > 0 {
		return nil, bundle.Refuse(bundle.BadContent, "%s: %s", DocumentPath, mistakes[0])
	}
	return &d, nil
}

// Mistake is a part of a document that is not allowed.
type Mistake struct {
	// Key and Keyword tell the place; both may be empty.
	Key, Keyword string
	Message      string
	Hint         string // empty if there is none
}

// String returns the message with its place.
func (m Mistake) String() string {
	switch {
	case m.Key == "" && m.Keyword == "":
		return m.Message
	case m.Key == "":
		return m.Keyword + ": " + m.Message
	case m.Keyword == "":
		return m.Key + ": " + m.Message
	}
	return m.Key + ": " + m.Keyword + ": " + m.Message
}

// keyForm matches a key. A key with a slash or a capital would not be one in a ConfigMap or as a variable.
var keyForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]*$`)

// Check returns the mistakes of a document, sorted by key, and brings its values and lists into the form in which they are
// compared and written.
func (d *Document) Check() []Mistake {
	var all []Mistake
	if n := len(d.Properties); n == 0 || n > MaxKeys {
		return []Mistake{{Keyword: "properties", Message: fmt.Sprintf("there must be 1 to %d keys, and there are %d", MaxKeys, n)}}
	}
	variables := map[string]string{}
	for _, key := range d.Keys() {
		if m := checkKey(key, variables); m != nil {
			all = append(all, *m)
			continue
		}
		p := d.Properties[key]
		for _, m := range p.check() {
			m.Key = key
			all = append(all, m)
		}
		d.Properties[key] = p
	}
	slices.Sort(d.Required)
	for i, key := range d.Required {
		if _, ok := d.Properties[key]; !ok {
			all = append(all, Mistake{Keyword: "required", Message: fmt.Sprintf("%q is not one of the keys", key), Hint: suggest(key, d.Keys())})
		} else if i > 0 && d.Required[i-1] == key {
			all = append(all, Mistake{Keyword: "required", Message: fmt.Sprintf("%q is listed twice", key)})
		}
	}
	if len(all) == 0 {
		all = d.checkDefaults()
	}
	return all
}

func suggest(word string, known []string) string {
	if near := show.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// Keys lists the declared keys, sorted.
func (d *Document) Keys() []string {
	if d == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.Properties))
}

func checkKey(key string, variables map[string]string) *Mistake {
	name := Variable(key)
	other, taken := variables[name]
	switch {
	case len(key) > MaxKeyBytes:
		return &Mistake{Key: bundle.Clip(key), Message: fmt.Sprintf("a key may have %d characters, and it has %d", MaxKeyBytes, len(key))}
	case !keyForm.MatchString(key):
		return &Mistake{Key: key, Message: "a key has small letters, digits, '.', '_' and '-', and begins with a letter or digit"}
	case strings.HasPrefix(name, "cluster_"):
		return &Mistake{Key: key, Message: "keys that begin with cluster are those of the cluster's own facts", Hint: "give it another name"}
	case taken:
		return &Mistake{Key: key, Message: fmt.Sprintf("as a variable it would be called %s, as %q", name, other), Hint: "give it another name"}
	}
	variables[name] = key
	return nil
}

// check checks one property without the values to which its default refers.
func (p *Property) check() []Mistake {
	var all []Mistake
	wrong := func(keyword, format string, args ...any) {
		all = append(all, Mistake{Keyword: keyword, Message: fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(Types[:], p.Type) {
		wrong("type", "unknown type %q", bundle.Clip(string(p.Type)))
		all[0].Hint = "known: boolean, integer, number, string"
		return all
	}
	text, numeric := p.Type == String, p.Type == Integer || p.Type == Number
	for keyword, given := range map[string]bool{
		"pattern": p.Pattern != "" && !text, "format": p.Format != "" && !text,
		"minLength": p.MinLength != nil && !text, "maxLength": p.MaxLength != nil && !text,
		"minimum": p.Minimum != nil && !numeric, "maximum": p.Maximum != nil && !numeric,
		"enum": p.Enum != nil && p.Type == Boolean,
	} {
		if given {
			wrong(keyword, "a %s cannot have it", p.Type)
		}
	}
	if len(p.Description) > maxDescription {
		wrong("description", "it has %d bytes, at most %d are permitted", len(p.Description), maxDescription)
	}
	if _, err := regexp.Compile(p.Pattern); err != nil || len(p.Pattern) > maxPattern {
		wrong("pattern", "expected a Go regular expression of at most %d characters", maxPattern)
	}
	if p.Format != "" && !slices.Contains(Formats[:], p.Format) {
		wrong("format", "unknown format %q", bundle.Clip(p.Format))
		all[len(all)-1].Hint = "known: " + strings.Join(Formats[:], ", ")
	}
	for keyword, length := range map[string]*int{"minLength": p.MinLength, "maxLength": p.MaxLength} {
		if length != nil && (*length < 0 || *length > MaxValueBytes) {
			wrong(keyword, "it must be 0 to %d", MaxValueBytes)
		}
	}
	if p.MinLength != nil && p.MaxLength != nil && *p.MinLength > *p.MaxLength {
		wrong("minLength", "it is larger than maxLength")
	}
	for keyword, bound := range map[string]*float64{"minimum": p.Minimum, "maximum": p.Maximum} {
		if bound != nil && (math.IsNaN(*bound) || math.IsInf(*bound, 0)) {
			wrong(keyword, "it must be a number")
		}
	}
	if p.Minimum != nil && p.Maximum != nil && *p.Minimum > *p.Maximum {
		wrong("minimum", "it is larger than maximum")
	}
	if p.Enum != nil && (len(p.Enum) == 0 || len(p.Enum) > maxEnum) {
		wrong("enum", "it must list 1 to %d values", maxEnum)
	}
	slices.SortFunc(all, func(a, b Mistake) int { return strings.Compare(a.Keyword, b.Keyword) })
	if len(all) > 0 {
		return all
	}
	return p.checkValues()
}

// checkValues converts the values of enum and default to the property's type.
func (p *Property) checkValues() []Mistake {
	enum := p.Enum
	p.Enum = nil // its values meet all but enum itself
	var list []any
	for _, value := range enum {
		v, err := p.Read(value)
		if err == nil {
			err = p.Valid(v)
		}
		if err == nil && slices.Contains(list, v) {
			err = errors.New("a value is listed twice")
		}
		if err != nil {
			return []Mistake{{Keyword: "enum", Message: err.Error()}}
		}
		list = append(list, v)
	}
	p.Enum = list
	if p.Default == nil {
		return nil
	}
	if text, ok := p.Default.(string); ok && isTemplate(text) {
		if _, err := parseTemplate(text); err != nil {
			return []Mistake{{Keyword: "default", Message: err.Error()}}
		}
		return nil
	}
	v, err := p.Read(p.Default)
	if err == nil {
		err = p.Valid(v)
	}
	if err != nil {
		return []Mistake{{Keyword: "default", Message: err.Error()}}
	}
	p.Default = v
	return nil
}

// checkDefaults checks what the defaults refer to, on a cluster for which nobody gave another value.
func (d *Document) checkDefaults() []Mistake {
	r := newResolver(d, nil, nil, Facts{})
	var all []Mistake
	for _, key := range d.Keys() {
		text, _ := d.Properties[key].Default.(string)
		if !isTemplate(text) {
			continue
		}
		t, _ := parseTemplate(text) // was parsed before
		for _, ref := range t.refs() {
			if !IsFact(ref) && d.Properties[ref].Type == "" {
				all = append(all, Mistake{Key: key, Keyword: "default", Message: fmt.Sprintf("%q is not one of the keys", ref), Hint: suggest(ref, d.Keys())})
			}
		}
		r.resolve(key)
		if p := r.problems[key]; r.tangled[key] {
			all = append(all, Mistake{Key: key, Keyword: "default", Message: p.Message})
		}
	}
	return all
}
