package scheduler

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// yamlWriter writes composed configurations as toYAML does, some tens of times faster: it has yaml.v3
// write each key and each single value once, and then only puts the parts together. What it does not know
// to put together, such as texts of several lines, it leaves to toYAML.
type yamlWriter struct {
	keys    map[string]writtenKey
	scalars map[any]string
}

type writtenKey struct {
	rank int // in the order of yaml.v3, which is not that of the bytes
	text string
}

// newYAMLWriter returns a writer for what can be composed of layers, and completes their entries.
func newYAMLWriter(layers []layer) *yamlWriter {
	w := &yamlWriter{keys: map[string]writtenKey{}, scalars: map[any]string{}}
	for _, l := range layers {
		for _, e := range l.entries {
			w.collectKey(e.key)
			w.collect(e.value)
		}
	}
	w.writeKeys()
	w.writeScalars()
	others := map[string]int{} // ranks of keys that cannot be written here: any that differ
	id := 1
	for i := range layers {
		for j := range layers[i].entries {
			e := &layers[i].entries[j]
			e.id, id = id, id+1
			if key, ok := w.keys[e.key]; ok {
				e.rank = key.rank
			} else {
				if others[e.key] == 0 {
					others[e.key] = len(w.keys) + len(others) + 1
				}
				e.rank = others[e.key]
			}
			if text, ok := w.pair(nil, e.key, e.value, 0); ok {
				e.yaml = string(text)
			}
		}
	}
	return w
}

func (w *yamlWriter) collectKey(key string) {
	const longest = 100 // above, YAML writes keys in another way
	if len(key) <= longest && isPlainLine(key) {
		w.keys[key] = writtenKey{}
	}
}

// collect finds the keys and single values in v.
func (w *yamlWriter) collect(v any) {
	switch v := v.(type) {
	case map[any]any:
		for key, value := range v {
			if s, ok := key.(string); ok {
				w.collectKey(s)
			}
			w.collect(value)
		}
	case []any:
		for _, value := range v {
			w.collect(value)
		}
	case string:
		if isPlainLine(v) {
			w.scalars[v] = ""
		}
	case int, int64, uint64, bool:
		w.scalars[v] = ""
	case float64:
		if v != 0 { // there are two zeros, of which a map would know one
			w.scalars[v] = ""
		}
	}
}

// isPlainLine says whether s is a text of one line without characters that YAML treats in a special way.
func isPlainLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff'
	})
}

// writeKeys asks yaml.v3 for the text and the order of all keys.
func (w *yamlWriter) writeKeys() {
	keys := sortedKeys(w.keys)
	numbers := make(map[string]int, len(keys))
	for i, key := range keys {
		numbers[key] = i
	}
	clear(w.keys)
	lines := linesOf(numbers)
	if len(lines) != len(keys) {
		return
	}
	for rank, line := range lines {
		colon := bytes.LastIndexByte(line, ':')
		i, err := strconv.Atoi(string(bytes.TrimSpace(line[colon+1:])))
		if err == nil {
			w.keys[keys[i]] = writtenKey{rank, string(line[:colon])}
		}
	}
}

// writeScalars asks yaml.v3 for the text of all single values.
func (w *yamlWriter) writeScalars() {
	var all []any
	for v := range w.scalars {
		if v == v { // not a number is not equal to itself
			all = append(all, v)
		}
	}
	clear(w.scalars)
	lines := linesOf(all)
	if len(lines) != len(all) {
		return
	}
	for i, line := range lines {
		w.scalars[all[i]] = string(bytes.TrimPrefix(line, []byte("- ")))
	}
}

func linesOf(v any) [][]byte {
	text, err := yaml.Marshal(v)
	if err != nil {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

// document is what toYAML makes of c.
func (w *yamlWriter) document(c *config) string {
	if len(c.values) == 0 {
		return "{}"
	}
	text := make([]byte, 0, 1024)
	for _, v := range c.values {
		ok := v.yaml != ""
		if v.merged != nil {
			text, ok = w.pair(text, v.key, v.merged, 0)
		} else {
			text = append(text, v.yaml...)
		}
		if !ok {
			return toYAML(c.makeMap())
		}
	}
	return string(text[:len(text)-1]) // as toYAML has it, without the last line break
}

// nextIndent is how far yaml.v3 indents what is in a mapping at indent: the next multiple of four.
func nextIndent(indent int) int { return (indent/4 + 1) * 4 }

// pair writes a key of a mapping and its value.
func (w *yamlWriter) pair(text []byte, key string, v any, indent int) ([]byte, bool) {
	k, ok := w.keys[key]
	if !ok {
		return text, false
	}
	text = append(append(text, k.text...), ':')
	if isCollection(v) {
		return w.collection(pad(append(text, '\n'), nextIndent(indent)), v, nextIndent(indent))
	}
	return w.scalar(append(text, ' '), v)
}

// collection writes a map or a list whose first line is indented already.
func (w *yamlWriter) collection(text []byte, v any, indent int) (_ []byte, ok bool) {
	switch v := v.(type) {
	case map[any]any:
		keys, ok := w.sortedKeys(v)
		if !ok {
			return text, false
		}
		for i, key := range keys {
			if i > 0 {
				text = pad(text, indent)
			}
			if text, ok = w.pair(text, key, v[key], indent); !ok {
				return text, false
			}
		}
	case []any:
		for i, item := range v {
			if i > 0 {
				text = pad(text, indent)
			}
			text = append(text, "- "...)
			if isCollection(item) {
				text, ok = w.collection(text, item, indent+2)
			} else {
				text, ok = w.scalar(text, item)
			}
			if !ok {
				return text, false
			}
		}
	}
	return text, true
}

func (w *yamlWriter) sortedKeys(m map[any]any) ([]string, bool) {
	keys := make([]string, 0, 8)
	for key := range m {
		s, ok := key.(string)
		if _, known := w.keys[s]; !ok || !known {
			return nil, false
		}
		keys = append(keys, s)
	}
	slices.SortFunc(keys, func(a, b string) int { return w.keys[a].rank - w.keys[b].rank })
	return keys, true
}

// isCollection is true for what takes lines of its own.
func isCollection(v any) bool {
	switch v := v.(type) {
	case map[any]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	default:
		return false
	}
}

func (w *yamlWriter) scalar(text []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case nil:
		return append(text, "null\n"...), true
	case map[any]any:
		return append(text, "{}\n"...), true
	case []any:
		return append(text, "[]\n"...), true
	case string, int, int64, uint64, bool, float64:
		s, ok := w.scalars[v]
		return append(append(text, s...), '\n'), ok
	default:
		return text, false
	}
}

func pad(text []byte, n int) []byte {
	for range n {
		text = append(text, ' ')
	}
	return text
}
