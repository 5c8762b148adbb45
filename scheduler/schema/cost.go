package schema

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// MaxSteps bounds the work of checking one assignment against the schemas of its workload, and against
	// each ConfigSchema. A step is the check of one value by one subschema, and takes up to a few microseconds.
	// Schemas of real workloads take some hundred steps.
	MaxSteps = 1 << 18
	// maxDepth bounds the nesting of subschemas and values during a check, since the library recurses.
	maxDepth = 1000
	// depthPerStep is the depth from which on a step counts as two, since the library walks up the nesting for each.
	depthPerStep = 16
)

var (
	// errTooManySteps is wrapped by errors about a check that would take more steps than are left.
	errTooManySteps = errors.New("checking the configuration takes too many steps")
	errEndless      = errors.New("it refers to itself for one and the same value, without an end")
)

// meter counts steps down.
type meter struct{ left int }

func (m *meter) take(steps int) error {
	if m.left -= steps; m.left < 0 {
		return errTooManySteps
	}
	return nil
}

// facts are the properties of a subschema that do not depend on a value.
type facts struct {
	weight   int // steps that each look takes
	patterns []*pattern
}

// factsOf returns the facts of a schema and all its parts.
func factsOf(parts []*jsonschema.Schema) map[*jsonschema.Schema]facts {
	all := make(map[*jsonschema.Schema]facts, len(parts))
	for _, s := range parts {
		f := facts{weight: 1 + len(s.Required)}
		if s.Enum != nil {
			f.weight += sizeOf(s.Enum.Values)
		}
		if s.Const != nil {
			f.weight += sizeOf(*s.Const)
		}
		for _, names := range s.DependentRequired {
			f.weight += len(names)
		}
		for _, d := range s.Dependencies {
			if names, ok := d.([]string); ok {
				f.weight += len(names)
			}
		}
		for p := range s.PatternProperties {
			f.patterns = append(f.patterns, p.(*pattern))
		}
		slices.SortFunc(f.patterns, comparePatterns) // so that each run checks them in the same order
		all[s] = f
	}
	return all
}

// sizeOf counts the parts of a JSON value, of which a long text has several.
func sizeOf(v any) int {
	n := 1
	switch v := v.(type) {
	case string:
		n += len(v) / stringStep
	case json.Number:
		if len(v) > 20 || strings.ContainsAny(string(v), "eE") {
			n += 10 // all its digits are written out
		}
	case []any:
		for _, item := range v {
			n += sizeOf(item)
		}
	case map[string]any:
		for key, item := range v {
			n += sizeOf(key) + sizeOf(item)
		}
	}
	return n
}

// steps returns how many steps the library may take at most to check value. It follows no more than limit looks, and
// each once, so it is quick where the library, which follows every path, is not.
func (s *Schema) steps(value any, limit int) (int, error) {
	e := &estimator{of: s, left: limit, known: map[look]cost{}}
	c := e.cost(s.schema, &place{value: value}, 0)
	if e.err != nil {
		return 0, e.err
	}
	if c.depth > maxDepth {
		return 0, errTooManySteps
	}
	return c.steps * (1 + c.depth/depthPerStep), nil
}

// estimator adds up the library's work for checking one value. It assumes that the library never stops early.
type estimator struct {
	of    *Schema
	left  int // looks that may still be followed
	known map[look]cost
	err   error
}

// look is the check of a value by a subschema.
type look struct {
	schema *jsonschema.Schema
	at     *place
}

// cost is the cost of a look with all further looks that follow from it. Zero steps mark a look that is being followed.
type cost struct{ steps, depth int }

// add adds the cost of a further look.
func (c *cost) add(more cost) {
	c.steps = min(c.steps+more.steps, MaxSteps+1) // more is all the same
	c.depth = max(c.depth, more.depth+1)
}

func (e *estimator) cost(s *jsonschema.Schema, at *place, depth int) cost {
	p := look{s, at}
	c, known := e.known[p]
	switch {
	case e.err != nil || s.Bool != nil || !permits(s.Types, at.value):
		return cost{steps: 1}
	case known && c.steps == 0:
		e.err = errEndless
	case known:
		return c
	case e.left == 0 || depth > maxDepth:
		e.err = errTooManySteps
	}
	if e.err != nil {
		return cost{steps: 1}
	}
	e.left--
	e.known[p] = cost{}
	c = cost{steps: e.of.facts[s].weight}
	visit := func(inner *jsonschema.Schema, at *place) {
		if inner != nil {
			c.add(e.cost(inner, at, depth+1))
		}
	}
	switch v := at.value.(type) {
	case map[string]any:
		e.object(s, at, &c, visit)
	case []any:
		e.array(s, at, &c, visit)
	case string:
		c.steps += 1 + len(v)/stringStep
		if p, ok := s.Pattern.(*pattern); ok {
			c.steps += p.steps(v)
		}
	}
	for _, inner := range e.same(s) {
		visit(inner, at)
	}
	e.known[p] = c
	return c
}

// stringStep is the number of bytes of a text that count as one step, for checks of its length and its format.
const stringStep = 64

// same lists the subschemas of s that check the same value, whatever its kind.
func (e *estimator) same(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else})
	if r := s.RecursiveRef; r != nil {
		if r.RecursiveAnchor {
			r = e.of.schema // see dynamicTargets
		}
		all = append(all, r)
	}
	if d := s.DynamicRef; d != nil {
		all = append(all, d.Ref)
		for _, other := range e.of.dynamic {
			if d.Anchor != "" && other.DynamicAnchor == d.Anchor && other != d.Ref {
				all = append(all, other)
			}
		}
	}
	return all
}

func (e *estimator) object(s *jsonschema.Schema, at *place, c *cost, visit func(*jsonschema.Schema, *place)) {
	patterns := e.of.facts[s].patterns
	rest, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for _, key := range at.keys() {
		value := at.inner[key]
		c.add(cost{steps: 1})
		visit(s.Properties[key], value)
		for _, p := range patterns {
			c.add(cost{steps: p.steps(key)})
			if p.MatchString(key) {
				visit(s.PatternProperties[p], value)
			}
		}
		visit(rest, value)
		visit(s.UnevaluatedProperties, value)
		if s.PropertyNames != nil {
			visit(s.PropertyNames, at.name(key))
		}
		visit(s.DependentSchemas[key], at)
		if d, ok := s.Dependencies[key].(*jsonschema.Schema); ok {
			visit(d, at)
		}
		if e.err != nil {
			return
		}
	}
}

func (e *estimator) array(s *jsonschema.Schema, at *place, c *cost, visit func(*jsonschema.Schema, *place)) {
	if s.UniqueItems {
		c.add(cost{steps: 10 * at.size()}) // up to 20 items are compared with one another
	}
	all, _ := s.Items.(*jsonschema.Schema)
	first, _ := s.Items.([]*jsonschema.Schema)
	rest, _ := s.AdditionalItems.(*jsonschema.Schema)
	for i, item := range at.items() {
		c.add(cost{steps: 1})
		for _, inner := range []*jsonschema.Schema{all, s.Items2020, s.Contains, s.UnevaluatedItems, nth(first, i), nth(s.PrefixItems, i)} {
			visit(inner, item)
		}
		if i >= len(first) {
			visit(rest, item)
		}
		if e.err != nil {
			return
		}
	}
}

func nth(list []*jsonschema.Schema, i int) *jsonschema.Schema {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// permits reports whether the keyword type permits a value of this kind. If it permits one kind of number, it counts for all.
func permits(types *jsonschema.Types, value any) bool {
	if types == nil || types.IsEmpty() {
		return true
	}
	var of jsonschema.Types
	switch value.(type) {
	case string:
		of.Add("string")
	case bool:
		of.Add("boolean")
	case nil:
		of.Add("null")
	case []any:
		of.Add("array")
	case map[string]any:
		of.Add("object")
	default:
		of.Add("number")
		of.Add("integer")
	}
	return *types&of != 0
}

// place is a value at its place: equal values at two places are different.
type place struct {
	value   any
	inner   map[string]*place // of an object, once keys is called
	sorted  []string
	listed  []*place // of an array, once items is called
	names   map[string]*place
	counted int
}

// keys lists an object's keys, sorted.
func (p *place) keys() []string {
	if object, ok := p.value.(map[string]any); ok && p.inner == nil {
		p.sorted, p.inner = slices.Sorted(maps.Keys(object)), make(map[string]*place, len(object))
		for key, v := range object {
			p.inner[key] = &place{value: v}
		}
	}
	return p.sorted
}

func (p *place) items() []*place {
	if array, ok := p.value.([]any); ok && p.listed == nil {
		for _, v := range array {
			p.listed = append(p.listed, &place{value: v})
		}
	}
	return p.listed
}

// name is the place of a key, as a text of its own.
func (p *place) name(key string) *place {
	if p.names == nil {
		p.names = map[string]*place{}
	}
	if p.names[key] == nil {
		p.names[key] = &place{value: key}
	}
	return p.names[key]
}

func (p *place) size() int {
	if p.counted == 0 {
		p.counted = sizeOf(p.value)
	}
	return p.counted
}
