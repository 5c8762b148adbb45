// Package builtin checks objects of Kubernetes' own kinds as an API server does before it stores them.
//
// [Check] reads an object strictly into the Go type of its kind, asks the schema by which server-side apply merges, and
// applies rules of the API server about sizes and values that every version has. It knows the kinds of one version of Kubernetes. So it
// passes over unknown kinds, unknown fields, alpha versions, and fields that are missing: it refuses nothing that an API server of another
// version takes. No mistake quotes the value of a ConfigMap or a Secret.
package builtin

import (
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Mistake is a reason for which an API server refuses an object.
type Mistake struct {
	Field string // such as spec.ports[0].port
	Text  string
	// Apply means that only server-side apply refuses it.
	Apply bool
	// NoText means that a text belongs there.
	NoText bool
}

func (m Mistake) String() string { return m.Field + " " + m.Text }

// Check returns the mistakes in an object, which is not changed; none for an object of a kind that is not known.
func Check(object map[string]any) []Mistake {
	mistakes := checkAnnotations(object)
	u := &unstructured.Unstructured{Object: object}
	kind := u.GroupVersionKind()
	t := typeOf(kind)
	if t == nil {
		return mistakes
	}
	r := &reader{mistakes: mistakes}
	known, _ := r.read(object, t).(map[string]any)
	r.merge(kind, known)
	slices.SortFunc(r.mistakes, func(a, b Mistake) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Text, b.Text))
	})
	rules := &ruling{}
	if kind == configMapKind { // most objects are; their type is plain
		rules.configMap(known)
	} else if rule := ruleOf(t); rule != nil {
		into := reflect.New(t).Interface()
		if runtime.DefaultUnstructuredConverter.FromUnstructured(known, into) == nil {
			rule(rules, into)
		}
	}
	return append(r.mistakes, rules.mistakes...)
}

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// types are the Go types of kinds; nil for a kind that is not known.
var types sync.Map

func typeOf(kind schema.GroupVersionKind) reflect.Type {
	if t, known := types.Load(kind); known {
		return t.(reflect.Type)
	}
	into, err := scheme.Scheme.New(kind)
	if err != nil || strings.Contains(kind.Version, "alpha") {
		return nil
	}
	t := reflect.TypeOf(into).Elem()
	types.Store(kind, t)
	return t
}

// reader reads an object strictly.
type reader struct {
	mistakes []Mistake
	path     []step // to the value that is read
	lists    bool   // there are any
}

// step is a key, or an index if the key is empty.
type step struct {
	key   string
	index int
}

func (r *reader) report(format string, args ...any) {
	var field strings.Builder
	for i, s := range r.path {
		switch {
		case s.key == "":
			fmt.Fprintf(&field, "[%d]", s.index)
		case i > 0:
			field.WriteString("." + s.key)
		default:
			field.WriteString(s.key)
		}
	}
	r.mistakes = append(r.mistakes, Mistake{Field: field.String(), Text: fmt.Sprintf(format, args...)})
}

// read returns the value of a type without its unknown fields, and without what has a mistake: the value itself if it has
// neither.
func (r *reader) read(value any, t reflect.Type) any {
	before := len(r.mistakes)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface {
		return value
	}
	switch own := readsItself(t); {
	case own:
		data, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			r.report("cannot be a %s", nameOf(t))
		}
	case t.Kind() == reflect.Struct:
		fields := fieldsOf(t)
		return r.readMap(value, func(key string) (reflect.Type, bool) {
			field, known := fields[key]
			return field, known
		})
	case t.Kind() == reflect.Map:
		return r.readMap(value, func(string) (reflect.Type, bool) { return t.Elem(), true })
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return r.readList(value, t.Elem())
	case t.Kind() == reflect.Slice:
		r.readBytes(value)
	default:
		r.readScalar(value, t)
	}
	if len(r.mistakes) > before {
		return nil
	}
	return value
}

// readMap reads the entries of a mapping as what typeOf returns for their keys.
func (r *reader) readMap(value any, typeOf func(key string) (reflect.Type, bool)) any {
	entries, ok := value.(map[string]any)
	if !ok {
		r.wrong(value, "mapping")
		return nil
	}
	var changed map[string]any
	change := func() map[string]any {
		if changed == nil {
			changed = maps.Clone(entries)
		}
		return changed
	}
	r.path = append(r.path, step{})
	for key, entry := range entries {
		t, known := typeOf(key)
		if !known {
			delete(change(), key)
			continue
		}
		r.path[len(r.path)-1].key = key
		if read := r.read(entry, t); !same(read, entry) {
			change()[key] = read
		}
	}
	r.path = r.path[:len(r.path)-1]
	if changed != nil {
		return changed
	}
	return entries
}

func (r *reader) readList(value any, t reflect.Type) any {
	items, ok := value.([]any)
	if !ok {
		r.wrong(value, "list")
		return nil
	}
	r.lists = true
	known := make([]any, len(items))
	r.path = append(r.path, step{})
	for i, item := range items {
		r.path[len(r.path)-1].index = i
		known[i] = r.read(item, t)
	}
	r.path = r.path[:len(r.path)-1]
	return known
}

// same reports whether reading has changed nothing. Lists are always made anew.
func same(read, entry any) bool {
	switch e := entry.(type) {
	case map[string]any:
		r, ok := read.(map[string]any)
		return ok && reflect.ValueOf(r).Pointer() == reflect.ValueOf(e).Pointer()
	case []any:
		return false
	}
	return read != nil || entry == nil
}

// ownReading knows the types that read their JSON themselves.
var ownReading sync.Map

func readsItself(t reflect.Type) bool {
	if known, ok := ownReading.Load(t); ok {
		return known.(bool)
	}
	pointer := reflect.PointerTo(t)
	own := pointer.Implements(unmarshaler) || pointer.Implements(textUnmarshaler)
	ownReading.Store(t, own)
	return own
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (r *reader) readBytes(value any) {
	text, ok := value.(string)
	if !ok {
		r.wrong(value, "text in base64")
	} else if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		r.report("must be in base64, and is not")
	}
}

func (r *reader) readScalar(value any, t reflect.Type) {
	number, isInt := value.(int64)
	switch kind := t.Kind(); kind {
	case reflect.String:
		if _, ok := value.(string); !ok {
			r.wrong(value, "text")
			r.mistakes[len(r.mistakes)-1].NoText = true
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			r.wrong(value, "boolean")
		}
	case reflect.Float32, reflect.Float64:
		if _, ok := value.(float64); !ok && !isInt {
			r.wrong(value, "number")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		switch fraction, isFloat := value.(float64); {
		case !isInt && (!isFloat || fraction != math.Trunc(fraction)):
			r.wrong(value, "whole number")
		case reflect.Zero(t).OverflowInt(number) || isFloat:
			r.report("is too large a number")
		}
	}
}

func (r *reader) wrong(value any, belongs string) {
	r.report("must be a %s, and is a %s", belongs, typeName(value))
}

func typeName(value any) string {
	switch value.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	case string:
		return "text"
	case bool:
		return "boolean"
	}
	return "number"
}

// nameOf is the word for a type that reads its JSON itself.
func nameOf(t reflect.Type) string {
	switch t.Name() {
	case "Quantity":
		return "quantity, such as 100m or 1Gi"
	case "IntOrString":
		return "whole number or a text"
	case "Time", "MicroTime":
		return "time, such as 2006-01-02T15:04:05Z"
	case "Duration":
		return "duration, such as 30s"
	}
	return t.Name()
}

// fieldTypes are the types of the fields of structs by their names in JSON.
var fieldTypes sync.Map

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldTypes.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || options == "inline"):
			for name, inner := range fieldsOf(f.Type) {
				fields[name] = inner
			}
		case name != "":
			fields[name] = f.Type
		}
	}
	fieldTypes.Store(t, fields)
	return fields
}

// converter reads objects by the schema of server-side apply. It takes a tenth of a second to make.
var converter = sync.OnceValue(func() interface {
	ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error)
} {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

// merge asks the schema by which server-side apply merges lists: each entry must have its key, and no two the same. An
// object without lists needs no question.
func (r *reader) merge(kind schema.GroupVersionKind, known map[string]any) {
	if !r.lists || len(r.mistakes) > 0 {
		return
	}
	_, err := converter().ObjectToTyped(&unstructured.Unstructured{Object: known})
	var all typed.ValidationErrors
	if !errors.As(err, &all) {
		return // such as for a kind that server-side apply has no schema of
	}
	for _, e := range all {
		key, twice := strings.CutPrefix(e.ErrorMessage, "duplicate entries for key ")
		field := strings.TrimPrefix(e.Path, ".")
		switch {
		case twice:
			r.mistakes = append(r.mistakes, Mistake{Field: field, Text: "has two entries with " + strings.Trim(key, "[]") + ", which server-side apply refuses", Apply: true})
		case strings.Contains(e.ErrorMessage, "associative list"):
			r.mistakes = append(r.mistakes, Mistake{Field: field, Text: "cannot be merged by server-side apply: " + e.ErrorMessage, Apply: true})
		}
	}
}
