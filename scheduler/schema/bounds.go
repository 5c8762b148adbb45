package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds on a schema before it is compiled, since the library's time to compile grows with the square of its size. A schema
// at all bounds takes some three seconds.
const (
	// MaxBytes bounds one schema, and all schemas of one registration's workloads together, in bytes.
	MaxBytes = 1 << 20
	// maxParts bounds the objects, true and false of a schema: each may be a subschema.
	maxParts = 4000
	// maxPaths bounds the length of the paths to all these parts together, which the library stores.
	maxPaths = 1 << 20
	// maxExponent bounds the exponent of a number, and maxDigits its length: the library calculates with all its digits.
	maxExponent, maxDigits = 400, 400
	// maxPatternSteps bounds the instructions of all patterns together. The pattern of a DNS name has 130.
	maxPatternSteps = 200_000
	// maxDynamicAnchors bounds the possible targets of one $dynamicRef.
	maxDynamicAnchors = 100
)

// survey counts the parts of a schema while its bounds are checked, and collects data for its compilation.
type survey struct {
	parts, paths int
	// dynamic lists the JSON pointers of the objects with $dynamicAnchor.
	dynamic []string
	// recursive is true if there is a $recursiveAnchor below the top.
	recursive bool
}

// read parses a text within the bounds.
func read(text string) (any, *survey, error) {
	if len(text) > MaxBytes {
		return nil, nil, fmt.Errorf("it is larger than %d bytes", MaxBytes)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, nil, fmt.Errorf("no JSON: %w", err)
	}
	d := &survey{}
	if err := d.read(document, ""); err != nil {
		return nil, nil, err
	}
	if len(d.dynamic) > maxDynamicAnchors {
		return nil, nil, fmt.Errorf("it has more than %d subschemas with $dynamicAnchor", maxDynamicAnchors)
	}
	return document, d, nil
}

func (d *survey) read(v any, path string) error {
	switch v := v.(type) {
	case json.Number:
		return checkNumber(string(v))
	case bool:
		return d.part(path)
	case []any:
		for i, item := range v {
			if err := d.read(item, path+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := d.part(path); err != nil {
			return err
		}
		if _, ok := v["$dynamicAnchor"].(string); ok {
			d.dynamic = append(d.dynamic, path)
		}
		if v["$recursiveAnchor"] == true && path != "" {
			d.recursive = true
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := d.read(v[key], path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *survey) part(path string) error {
	if d.parts++; d.parts > maxParts {
		return fmt.Errorf("it has more than %d subschemas", maxParts)
	}
	if d.paths += len(path); d.paths > maxPaths {
		return errors.New("it nests too deep for its size")
	}
	return nil
}

func checkNumber(text string) error {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if n, err := strconv.Atoi(exponent); exponent != "" && (err != nil || max(n, -n) > maxExponent) || len(text) > maxDigits {
		return fmt.Errorf("the number %.20s is out of range", text)
	}
	return nil
}

// compile compiles a schema, by draft if it names none, with the possible targets of a
// $dynamicRef.
func (d *survey) compile(document any, draft *jsonschema.Draft) (*Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(draft)
	c.UseLoader(noLoader{})
	c.AssertFormat() // from 2019-09 on, a format would otherwise only be an annotation; Kalypso checks it
	patterns := &patterns{left: maxPatternSteps, known: map[string]*pattern{}}
	c.UseRegexpEngine(patterns.compile)
	err := c.AddResource(baseURL, document)
	var schema *jsonschema.Schema
	if err == nil {
		schema, err = c.Compile(baseURL)
	}
	if patterns.left < 0 {
		return nil, errLargePatterns
	}
	if err != nil {
		return nil, err
	}
	s := &Schema{schema: schema}
	for _, path := range d.dynamic {
		// An object that only looks like a subschema, such as one in an enum, does not compile or is never a target.
		if target, err := c.Compile(baseURL + "#" + (&url.URL{Fragment: path}).EscapedFragment()); err == nil {
			s.dynamic = append(s.dynamic, target)
		}
	}
	patterns.done = true
	parts := allParts(append(s.dynamic, schema))
	for _, part := range parts {
		if part.RecursiveRef != nil && d.recursive {
			return nil, errors.New("$recursiveRef is not supported with a $recursiveAnchor below the top level")
		}
	}
	s.facts = factsOf(parts)
	return s, nil
}

// allParts lists schemas with all their subschemas, each once.
func allParts(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{nil: true}
	add := func(some ...*jsonschema.Schema) {
		for _, s := range some {
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	add(schemas...)
	for i := 0; i < len(all); i++ {
		s := all[i]
		for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
			add(list...)
		}
		add(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
			s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema)
		if s.DynamicRef != nil {
			add(s.DynamicRef.Ref)
		}
		for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
			switch either := either.(type) {
			case *jsonschema.Schema:
				add(either)
			case []*jsonschema.Schema:
				add(either...)
			}
		}
		for _, inner := range s.Properties {
			add(inner)
		}
		for _, inner := range s.PatternProperties {
			add(inner)
		}
		for _, inner := range s.DependentSchemas {
			add(inner)
		}
		for _, either := range s.Dependencies {
			if inner, ok := either.(*jsonschema.Schema); ok {
				add(inner)
			}
		}
	}
	return all
}

var errLargePatterns = fmt.Errorf("its patterns have more than %d instructions", maxPatternSteps)

// patterns compiles the patterns of one schema, of bounded size together.
type patterns struct {
	left  int // negative once there were too many
	known map[string]*pattern
	done  bool // the schema is compiled; what follows are values with the format of a pattern
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if known, ok := p.known[text]; ok {
		return known, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := instructions(parsed)
	if p.done {
		if size > maxPatternSteps {
			return nil, errLargePatterns
		}
	} else if p.left -= size; p.left < 0 {
		return nil, errLargePatterns
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	made := &pattern{compiled, size}
	if !p.done {
		p.known[text] = made
	}
	return made, nil
}

// instructions estimates the number of a pattern's instructions with its repetitions expanded.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, part := range re.Sub {
		n += instructions(part)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxPatternSteps+1)
}

// pattern is a regular expression with its size.
type pattern struct {
	*regexp.Regexp
	size int
}

// steps returns the steps of a match: at worst each instruction reads each character.
func (p *pattern) steps(text string) int {
	return 1 + min(p.size*(len(text)+1)/stringStep, MaxSteps)
}

func comparePatterns(a, b *pattern) int { return strings.Compare(a.String(), b.String()) }
