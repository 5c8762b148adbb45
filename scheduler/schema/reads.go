package schema

import (
	"iter"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// namedOnly lists the keywords of an object's schema that read only the values named in properties and
// required. Other keywords, such as additionalProperties, are not analysed: they may read
// everything.
var namedOnly = []string{
	"DraftVersion", "Location", "ID", "Anchor", "Title", "Description", "Default", "Comment", "Examples", "Deprecated",
	"Types", "Bool", "Properties", "Required", "Ref", "AllOf", "AnyOf", "OneOf", "Not", "If", "Then", "Else",
}

// readsOf lists the keys of a configuration that a schema reads; all is true if it may read any key.
func readsOf(schema *jsonschema.Schema) (keys map[string]bool, all bool) {
	keys = map[string]bool{}
	seen := map[*jsonschema.Schema]bool{nil: true}
	next := []*jsonschema.Schema{schema}
	for i := 0; i < len(next); i++ {
		part := next[i]
		if seen[part] {
			continue
		}
		seen[part] = true
		v := reflect.ValueOf(part).Elem()
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !v.Field(i).IsZero() && !slices.Contains(namedOnly, f.Name) {
				return nil, true
			}
		}
		for key := range part.Properties {
			keys[key] = true
		}
		for _, key := range part.Required {
			keys[key] = true
		}
		next = append(next, slices.Concat(part.AllOf, part.AnyOf, part.OneOf,
			[]*jsonschema.Schema{part.Ref, part.Not, part.If, part.Then, part.Else})...)
	}
	return keys, false
}

// Check returns the violations of the schema by a configuration, within limit steps. The error comes from the library.
func (s *Schema) Check(all iter.Seq[Value], limit int) (Outcome, error) {
	var values []Value // that it may read
	for v := range all {
		if s.readsAll || s.reads[v.Key] {
			values = append(values, v)
		}
	}
	return s.checkValues(values, limit)
}
