package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// HealthCondition requires a value in an object.
type HealthCondition struct {
	// Kind and Name select objects. Without a name, the condition is for all objects of the kind; without a kind, for
	// every object that the engine cannot judge by itself.
	Kind, Name string
	// Path is a JSONPath, without braces, to the values.
	Path string
	// Value is the text that each value has to equal. There must be at least one value.
	Value string
}

// String returns the condition in the form that Parse reads.
func (c HealthCondition) String() string {
	var about string
	switch {
	case c.Name != "":
		about = c.Kind + "/" + c.Name + ": "
	case c.Kind != "":
		about = c.Kind + ": "
	}
	return about + c.Path + " == " + c.Value
}

// about matches the text before a path: a kind and perhaps a name.
var about = lazyregexp.New(`^([A-Z][A-Za-z0-9]*)(?:/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?))?:\s+`)

// ParseHealth reads one line. Braces around the path and quotes around the value are taken off.
func ParseHealth(line string) (c HealthCondition, err error) {
	text := strings.TrimSpace(line)
	if found := about.FindStringSubmatch(text); found != nil {
		c.Kind, c.Name, text = found[1], found[2], text[len(found[0]):]
	}
	i := strings.LastIndex(text, " == ") // a filter inside of the path may hold one too
	if i < 0 {
		return c, fmt.Errorf("%q is not a condition", line)
	}
	c.Path, c.Value = strings.TrimSpace(text[:i]), unquote(strings.TrimSpace(text[i+len(" == "):]))
	if strings.HasPrefix(c.Path, "{") != strings.HasSuffix(c.Path, "}") || c.Value == "" {
		return c, fmt.Errorf("%q is not a condition", line)
	}
	c.Path = strings.TrimSuffix(strings.TrimPrefix(c.Path, "{"), "}")
	if !strings.HasPrefix(c.Path, ".") && !strings.HasPrefix(c.Path, "$") {
		return c, fmt.Errorf("%q does not begin with a path", line)
	}
	parsed, err := jsonpath.Parse("", "{"+c.Path+"}")
	if err != nil {
		return c, fmt.Errorf("JSONPath %s: %w", c.Path, err)
	}
	if len(parsed.Root.Nodes) != 1 { // of a template, which is more than a path
		return c, fmt.Errorf("%q has more than one path", line)
	}
	return c, nil
}

func unquote(s string) string {
	for _, quote := range []string{`"`, `'`} {
		if inner, ok := strings.CutPrefix(s, quote); ok && strings.HasSuffix(inner, quote) {
			return strings.TrimSuffix(inner, quote)
		}
	}
	return s
}

// Check reports whether the content of an object meets the condition. If not, found briefly describes the content.
func (c HealthCondition) Check(object map[string]any) (found string, ok bool) {
	path := jsonpath.New("").AllowMissingKeys(true) // each time anew: using it changes it
	if err := path.Parse("{" + c.Path + "}"); err != nil {
		return "no path", false
	}
	results, err := path.FindResults(current(object))
	if err != nil {
		return clip(err.Error()), false
	}
	var others []string
	values := slices.Concat(results...)
	for _, v := range values {
		if text, plain := textOf(v); !plain || text != c.Value {
			others = append(others, text)
		}
	}
	if len(values) == 0 {
		return "absent", false
	}
	slices.Sort(others) // a wildcard finds them in any order
	return clip(strings.Join(slices.Compact(others), ", ")), len(others) == 0
}

// maxFound bounds a quotation from an object, in bytes, so that a message has room for five.
const maxFound = 120

func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxFound {
		return strings.ToValidUTF8(s[:maxFound], "") + "…" // without half a character
	}
	return s
}

// textOf returns the text of a string, number or boolean; for other values plain is false.
func textOf(v reflect.Value) (text string, plain bool) {
	switch value := v.Interface().(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case nil:
		return "null", true
	case map[string]any:
		return "an object", false
	case []any:
		return "a list", false
	default: // a number
		data, err := json.Marshal(value)
		return string(data), err == nil
	}
}

// current returns an object without the status.conditions that belong to an older generation.
func current(object map[string]any) map[string]any {
	status, _ := object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	metadata, _ := object["metadata"].(map[string]any)
	generation, _ := metadata["generation"].(int64)
	older := func(condition any) bool {
		c, _ := condition.(map[string]any)
		seen, there := c["observedGeneration"].(int64)
		return there && seen < generation
	}
	if !slices.ContainsFunc(conditions, older) {
		return object
	}
	object, status = maps.Clone(object), maps.Clone(status)
	status["conditions"] = slices.DeleteFunc(slices.Clone(conditions), older)
	object["status"] = status
	return object
}
