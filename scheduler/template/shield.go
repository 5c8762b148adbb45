package template

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"
)

// Shield keeps an app team's text from being evaluated as a template. While a document is
// evaluated, the braces in such text are hidden behind a letter that the platform uses nowhere; afterwards
// they are restored. So an app team's text can neither begin nor end an action, whatever text surrounds it,
// and is rendered literally.
//
// Functions must not see the hidden form: toYaml would not quote it, sha256sum would give another sum. They
// get the true text, and the braces in their results are hidden again.
type Shield struct {
	mark       string
	hide, show *strings.Replacer
}

// NewShield chooses a letter that is in none of the platform's texts. An app team's text may contain it, since the letter
// is hidden too. It comes from a script without upper and lower case, and is printable, so that other code
// leaves it unchanged.
func NewShield(platform []string) *Shield {
	mark := "ꀀ" // the first of a thousand Yi syllables
	for r := 'ꀀ'; r <= 'ꒌ'; r++ {
		mark = string(r)
		if !slices.ContainsFunc(platform, func(s string) bool { return strings.Contains(s, mark) }) {
			break
		}
	}
	return &Shield{
		mark: mark,
		hide: strings.NewReplacer(mark, mark+"0", "{", mark+"1", "}", mark+"2"),
		show: strings.NewReplacer(mark+"0", mark, mark+"1", "{", mark+"2", "}"),
	}
}

// Mark returns the letter behind which braces are hidden.
func (s *Shield) Mark() string { return s.mark }

// lift restores the braces. A nil shield has hidden none.
func (s *Shield) lift(rendered []byte) []byte {
	if s == nil {
		return rendered
	}
	return []byte(s.show.Replace(string(rendered)))
}

// Cover returns d with the app team's texts shielded.
func (s *Shield) Cover(d Data) Data {
	d.Labels, d.Manifests = s.coverMap(d.Labels), s.coverMap(d.Manifests)
	return d
}

func (s *Shield) coverMap(m map[string]string) map[string]string {
	covered := make(map[string]string, len(m))
	for key, value := range m {
		covered[s.hide.Replace(key)] = s.hide.Replace(value)
	}
	return covered
}

// functions wraps all functions except those that only put values into maps: stored values must stay shielded.
func (s *Shield) functions(all template.FuncMap) template.FuncMap {
	wrapped := template.FuncMap{}
	for name, f := range all {
		if !slices.Contains(mutating, name) {
			wrapped[name] = s.wrap(reflect.ValueOf(f)).Interface()
		}
	}
	for _, name := range looking {
		wrapped[name] = s.wrap(reflect.ValueOf(builtin(name))).Interface()
	}
	return wrapped
}

// looking lists the functions of text/template that read a text, and so must get the true one.
var looking = []string{"eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "html", "js"}

// builtin returns a function of text/template, which exports hardly any of them.
func builtin(name string) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		var result any
		call := name
		for i := range args {
			call += fmt.Sprintf(" (index . %d)", i)
		}
		keep := template.FuncMap{"keep": func(v any) string { result = v; return "" }}
		t, err := template.New(name).Funcs(keep).Parse("{{ keep (" + call + ") }}")
		if err == nil {
			err = t.Execute(io.Discard, args)
		}
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		return result, err
	}
}

// wrap passes f the true text of shielded arguments, and shields the results if there were any.
func (s *Shield) wrap(f reflect.Value) reflect.Value {
	return reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
		shielded := false
		for i, arg := range args {
			if s.holds(arg) {
				shielded = true
				args[i] = replaceText(arg, s.show)
			}
		}
		call := f.Call
		if f.Type().IsVariadic() {
			call = f.CallSlice
		}
		results := call(args)
		if shielded {
			for i, result := range results {
				results[i] = replaceText(result, s.hide)
			}
		}
		return results
	})
}

// holds reports whether there is shielded text anywhere in v.
func (s *Shield) holds(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return strings.Contains(v.String(), s.mark)
	case reflect.Interface:
		return !v.IsNil() && s.holds(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if s.holds(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if s.holds(entry.Key()) || s.holds(entry.Value()) {
				return true
			}
		}
	case reflect.Struct:
		if d, ok := v.Interface().(Data); ok {
			return s.holds(reflect.ValueOf(d.Labels)) || s.holds(reflect.ValueOf(d.Manifests)) || s.holds(reflect.ValueOf(d.ConfigData))
		}
	}
	return false
}

// replaceText returns a copy of v with the replacement made in all its strings.
func replaceText(v reflect.Value, r *strings.Replacer) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		return reflect.ValueOf(r.Replace(v.String())).Convert(v.Type())
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		boxed := reflect.New(v.Type()).Elem()
		boxed.Set(replaceText(v.Elem(), r))
		return boxed
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		replaced := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			replaced.Index(i).Set(replaceText(v.Index(i), r))
		}
		return replaced
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		replaced := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entry := v.MapRange(); entry.Next(); {
			replaced.SetMapIndex(replaceText(entry.Key(), r), replaceText(entry.Value(), r))
		}
		return replaced
	case reflect.Struct:
		if d, ok := v.Interface().(Data); ok {
			d.Labels = replaceText(reflect.ValueOf(d.Labels), r).Interface().(map[string]string)
			d.Manifests = replaceText(reflect.ValueOf(d.Manifests), r).Interface().(map[string]string)
			d.ConfigData = replaceText(reflect.ValueOf(d.ConfigData), r).Interface().(map[string]any)
			return reflect.ValueOf(d)
		}
	}
	return v
}
