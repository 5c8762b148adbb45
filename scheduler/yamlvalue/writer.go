package yamlvalue

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Writer writes keys and values as [Marshal] does, some tens of times faster: it lets yaml.v3
// write each key and each single value once, and then only joins the parts. It does not write most texts
// of several lines, and other parts that cannot be joined: use Marshal for those.
type Writer struct {
	keys    map[string]writtenKey
	scalars map[any]string
}

type writtenKey struct {
	rank int // in the order of yaml.v3, which is not that of the bytes
	text string
}

// NewWriter returns a writer for keys and values: it knows these, and the parts of structured values.
func NewWriter(pairs iter.Seq2[string, any]) *Writer {
	w := &Writer{keys: map[string]writtenKey{}, scalars: map[any]string{}}
	for key, v := range pairs {
		w.collectKey(key)
		w.collect(v)
	}
	w.writeKeys()
	w.writeScalars()
	return w
}

// Keys returns how many keys the writer can write. Their ranks are below.
func (w *Writer) Keys() int { return len(w.keys) }

// Rank returns the position of a key among all that the writer can write, in the order of YAML. It returns false for a key
// that it cannot write.
func (w *Writer) Rank(key string) (int, bool) {
	k, ok := w.keys[key]
	return k.rank, ok
}

// AppendPair appends a line with the key and the value, or several for a structured value, as [Marshal] writes them. It
// returns false if it cannot write one of the parts; then its first result is unusable.
func (w *Writer) AppendPair(text []byte, key string, v any) ([]byte, bool) {
	return w.pair(text, key, v, 0)
}

// Marshal returns what the function [Marshal] does: the parts that the writer knows are joined, and yaml.v3 writes the others.
func (w *Writer) Marshal(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		if text, ok := w.collection(nil, list, 0); ok {
			return strings.TrimSuffix(string(text), "\n")
		}
	}
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return Marshal(v)
	}
	keys := make([]string, 0, len(m))
	for key := range m {
		if _, known := w.keys[key]; !known {
			return Marshal(v)
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return w.keys[a].rank - w.keys[b].rank })
	text := make([]byte, 0, 1024)
	for _, key := range keys {
		next, ok := w.AppendPair(text, key, m[key])
		if !ok {
			alone, err := yaml.Marshal(map[string]any{key: m[key]})
			if err != nil {
				return ""
			}
			next = append(text, alone...)
		}
		text = next
	}
	return strings.TrimSuffix(string(text), "\n")
}

func (w *Writer) collectKey(key string) {
	const longest = 100 // above, YAML writes keys in another way
	if len(key) <= longest && isPlainLine(key) {
		w.keys[key] = writtenKey{}
	}
}

// collect finds the keys and single values in v.
func (w *Writer) collect(v any) {
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

// isPlainLine reports whether s is a text of one line without characters that YAML treats in a special way.
func isPlainLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff'
	})
}

// writeKeys asks yaml.v3 for the text and the order of all keys.
func (w *Writer) writeKeys() {
	keys := slices.Sorted(maps.Keys(w.keys))
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
func (w *Writer) writeScalars() {
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

// nextIndent returns the indent that yaml.v3 gives the content of a mapping at indent: the next multiple of four.
func nextIndent(indent int) int { return (indent/4 + 1) * 4 }

// pair writes a key of a mapping and its value.
func (w *Writer) pair(text []byte, key string, v any, indent int) ([]byte, bool) {
	k, ok := w.keys[key]
	if !ok {
		return text, false
	}
	text = append(append(text, k.text...), ':')
	if isCollection(v) {
		return w.collection(pad(append(text, '\n'), nextIndent(indent)), v, nextIndent(indent))
	}
	if s, ok := v.(string); ok && strings.Contains(s, "\n") {
		return block(append(text, " |\n"...), s, nextIndent(indent))
	}
	return w.scalar(append(text, ' '), v)
}

// block writes a text of several lines if it is a simple one, as YAML is that yaml.v3 has written.
func block(text []byte, s string, indent int) ([]byte, bool) {
	for line := range strings.Lines(s) {
		content, ended := strings.CutSuffix(line, "\n")
		if !ended || content == "" || strings.HasSuffix(content, " ") || strings.ContainsFunc(content, func(r rune) bool { return r < ' ' || r > '~' }) {
			return text, false
		}
		text = append(pad(text, indent), line...)
	}
	return text, s[0] != ' '
}

// collection writes a map or a list whose first line is indented already.
func (w *Writer) collection(text []byte, v any, indent int) (_ []byte, ok bool) {
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

func (w *Writer) sortedKeys(m map[any]any) ([]string, bool) {
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

// isCollection reports whether a value takes lines of its own.
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

func (w *Writer) scalar(text []byte, v any) ([]byte, bool) {
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
