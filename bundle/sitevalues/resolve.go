package sitevalues

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
)

// maxUnknown bounds the keys of a site's file that are reported as unknown.
const maxUnknown = 32

// Resolve returns the values of one cluster, and a problem for each key without a valid one, sorted by key. document is nil
// for a cluster type without declared values, row is nil for a cluster without a row.
//
// A value of site, the content of the site's own file, overrides the row's, which overrides the default. A value that is not
// valid, or that the site may not set, never gives way to the next source: it is a problem. The declaration is checked
// against the final value.
//
// A row's value or a default that contains {{ is composed: .values.KEY is another value, .cluster.NAME a fact, and a pipe
// with lower, upper or default "TEXT" may follow. Values may be composed of composed ones, MaxLevels deep. A site's value is
// taken as it is, also where others refer to it.
func Resolve(document *Document, row *Row, site map[string]any, facts Facts) (Values, []Problem) {
	r := newResolver(document, row, site, facts)
	for _, key := range document.Keys() {
		r.resolve(key)
	}
	r.unknown(FromPlatform, slices.Sorted(maps.Keys(r.row)))
	r.unknown(FromSite, slices.Sorted(maps.Keys(site)))
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(r.problems)) {
		problems = append(problems, r.problems[key])
	}
	return r.values, problems
}

type resolver struct {
	document  *Document
	row, site map[string]any
	values    Values
	problems  map[string]Problem
	// height is the number of levels of a composed value: 0 for a plain one and one of facts alone.
	height map[string]int
	// open are the keys that are being resolved, the first one first.
	open []string
	// tangled has the keys whose problem is a cycle or too many levels, whatever values the others have.
	tangled map[string]bool
}

func newResolver(document *Document, row *Row, site map[string]any, facts Facts) *resolver {
	r := &resolver{document: document, site: site, values: Values{}, problems: map[string]Problem{}, height: map[string]int{}, tangled: map[string]bool{}}
	if row != nil {
		r.row = row.Values
	}
	for key, text := range facts.values(row) {
		r.values[key] = Value{Any: text, Text: text, Source: FromCluster}
	}
	return r
}

// unknown adds a problem for each of keys that the document lacks.
func (r *resolver) unknown(source Source, keys []string) {
	n := 0
	for _, key := range keys {
		if r.declares(key) {
			continue
		}
		if n++; n > maxUnknown {
			return
		}
		message := "the cluster type declares no such key"
		if hint := suggest(key, r.document.Keys()); hint != "" {
			message += ": " + hint
		}
		r.problems[bundle.Clip(key)] = Problem{Key: bundle.Clip(key), Kind: Unknown, Source: source, Message: message}
	}
}

func (r *resolver) declares(key string) bool {
	if r.document == nil {
		return false
	}
	_, ok := r.document.Properties[key]
	return ok
}

// fail records that key has no value.
func (r *resolver) fail(key string, kind Kind, source Source, format string, args ...any) {
	r.problems[key] = Problem{
		Key: key, Kind: kind, Source: source, Required: slices.Contains(r.document.Required, key), Message: fmt.Sprintf(format, args...),
	}
}

// unset is fail for a value that is only not given.
func (r *resolver) unset(key string, kind Kind, source Source, format string, args ...any) {
	r.fail(key, kind, source, format, args...)
	p := r.problems[key]
	p.Unset = true
	r.problems[key] = p
}

// resolve sets the value of a declared key, or its problem.
func (r *resolver) resolve(key string) {
	_, known := r.values[key]
	if _, failed := r.problems[key]; known || failed {
		return
	}
	p := r.document.Properties[key]
	given, source := r.given(key, &p)
	text, isText := given.(string)
	switch {
	case source == "":
		return // given has recorded the problem
	case isText && isTemplate(text) && source != FromSite:
		r.compose(key, &p, source, text)
	default:
		r.set(key, &p, source, given, "")
	}
}

// given returns the value of the source with the highest precedence; the source is empty if there is none that may give it.
func (r *resolver) given(key string, p *Property) (any, Source) {
	if value, ok := r.site[key]; ok {
		if !p.SiteMaySet {
			r.fail(key, NotPermitted, FromSite, "the site may not set it")
			return nil, ""
		}
		return value, FromSite
	}
	if value, ok := r.row[key]; ok {
		return value, FromPlatform
	}
	if p.Default != nil {
		return p.Default, FromDefault
	}
	if p.SiteMaySet {
		r.unset(key, Missing, "", "it has no value: neither the platform nor the site has set it")
	} else {
		r.unset(key, Missing, "", "it has no value: the platform has not set it for this cluster")
	}
	return nil, ""
}

// set checks a value and keeps it.
func (r *resolver) set(key string, p *Property, source Source, given any, from string) {
	value, err := p.Read(given)
	if err == nil {
		err = p.Valid(value)
	}
	if err != nil {
		r.fail(key, Invalid, source, "%v", err)
		return
	}
	r.values[key] = Value{Any: value, Text: textOf(value), Source: source, From: from}
}

// compose evaluates a template and sets the result.
func (r *resolver) compose(key string, p *Property, source Source, text string) {
	t, err := parseTemplate(text)
	if err != nil {
		r.fail(key, Composition, source, "%v", err)
		return
	}
	r.open = append(r.open, key)
	defer func() { r.open = r.open[:len(r.open)-1] }()
	for _, ref := range t.refs() {
		if !r.declares(ref) {
			continue
		}
		if i := slices.Index(r.open, ref); i >= 0 {
			r.cycle(r.open[i:])
			continue
		}
		r.resolve(ref)
		r.height[key] = max(r.height[key], r.height[ref]+1)
	}
	if _, failed := r.problems[key]; failed { // it is part of a cycle
		return
	}
	if r.height[key] > MaxLevels {
		r.tangled[key] = true
		r.fail(key, Composition, source, "it is composed of values that are composed themselves, more than %d levels deep", MaxLevels)
		return
	}
	var out strings.Builder
	for _, part := range t {
		piece, ok := r.piece(key, source, part)
		if !ok {
			return
		}
		if out.WriteString(piece); out.Len() > MaxValueBytes {
			r.fail(key, Composition, source, "it is composed to more than %d bytes", MaxValueBytes)
			return
		}
	}
	r.set(key, p, source, out.String(), text)
}

// cycle records that each of keys refers to the next, and the last to the first.
func (r *resolver) cycle(keys []string) {
	first := slices.Index(keys, slices.Min(keys))
	names := slices.Concat(keys[first:], keys[:first])
	names = append(names, names[0])
	for _, key := range keys {
		_, source := r.given(key, new(r.document.Properties[key]))
		r.tangled[key] = true
		r.fail(key, Composition, source, "it refers to itself: %s", strings.Join(names, " → "))
	}
}

// piece returns the text of one part.
func (r *resolver) piece(key string, source Source, p part) (string, bool) {
	if p.key == "" {
		return p.apply(p.text), true
	}
	v, ok := r.values[p.key]
	problem, failed := r.problems[p.key]
	missing := !failed && strings.HasPrefix(p.key, LabelPrefix) || failed && problem.Kind == Missing
	switch {
	case ok, missing && p.hasDefault():
		return p.apply(v.Text), true
	case failed && problem.Unset:
		r.unset(key, Composition, source, "it refers to %s, which has no value", p.key)
	case missing:
		r.fail(key, Composition, source, "it refers to %s, and the cluster has no such label", p.key)
	case !failed:
		r.fail(key, Composition, source, "it refers to %s, which is not declared", p.key)
	default:
		r.fail(key, Composition, source, "it refers to %s, which has no valid value", p.key)
	}
	return "", false
}
