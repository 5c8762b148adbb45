package kinds

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// decoder fills the structs of kinds.go from YAML nodes. Unlike yaml.v3, it knows the line of
// everything, is as strict with types as the Kubernetes API (a label true is not the text "true"),
// collects every mistake instead of the first, and warns about unknown fields.
type decoder struct {
	file     string
	strict   bool // unknown fields below spec are mistakes of this object, not warnings
	unknown  []finding.Finding
	nodes    int // seen so far, aliases expanded
	depth    int // of merge keys within merge keys
	errs     []error
	findings []finding.Finding
}

const (
	// MaxNodes bounds the nodes of one document, with its aliases expanded.
	MaxNodes = 1 << 20
	// maxMerges bounds the nesting of merge keys.
	maxMerges = 16
)

type (
	// Line is a line of the file; a field Line of this type receives that of the struct's mapping.
	Line int
	// Column is a column of the file, counted from 1; zero if unknown.
	Column int
	// ignored accepts anything.
	ignored struct{}
	// localOnly accepts anything, with a warning: a setting that only wherry.yaml may give.
	localOnly struct{}
	// Text is a string with its line.
	Text struct {
		Value string
		Line  Line
		// first is the line of the text's own first line, which for a block text is the next one.
		First Line
		// Column is that of the text's first character, for a text within one line.
		Column Column
	}
	// Scalar is a string, a number or a boolean with its line. The kinds read any other value without an error, as one that
	// no site value can have.
	Scalar struct {
		Value any
		Line  Line
	}
	// Number is a number with its line, which is zero if there is none.
	Number struct {
		Value float64
		Line  Line
	}
	// Whole is a whole number with its line, which is zero if there is none.
	Whole struct {
		Value int64
		Line  Line
	}
	// Flag is true or false with its line, which is zero if there is neither.
	Flag struct {
		Value bool
		Line  Line
	}
	// TextOrObject is a mapping, left as it is, or a text.
	TextOrObject struct {
		Object *yaml.Node // nil for a text
		Text   Text
	}
)

// Decoded holds the mistakes and findings of decoding an object.
type Decoded struct {
	Errs     []error
	Findings []finding.Finding
	// Unknown are the unknown fields below spec, if Decode was called with strict.
	Unknown []finding.Finding
}

// Decode fills into from n. If strict is true, unknown fields below spec are in Unknown and not in Findings.
func Decode(file string, n *yaml.Node, into Object, strict bool) Decoded {
	d := &decoder{file: file, strict: strict}
	d.decode(n, reflect.ValueOf(into).Elem(), nil)
	return Decoded{d.errs, d.findings, d.unknown}
}

// DecodeSettings reads the document of a wherry.yaml. Unknown keys are mistakes.
func DecodeSettings(file string, n *yaml.Node) (Settings, error) {
	var s Settings
	d := &decoder{file: file}
	d.decode(n, reflect.ValueOf(&s).Elem(), nil)
	for _, f := range d.findings {
		d.errs = append(d.errs, &finding.Error{Position: f.Position, Code: f.Code, Column: f.Column, Message: f.Message, Hint: f.Hint})
	}
	return s, finding.Join(d.errs)
}

func (d *decoder) position(n *yaml.Node) finding.Position {
	return finding.Position{File: d.file, Line: n.Line}
}

func (d *decoder) fail(code string, n *yaml.Node, hint, format string, args ...any) {
	d.errs = append(d.errs, &finding.Error{
		Position: d.position(n), Code: code, Column: n.Column, Message: finding.Sentence(format, args...), Hint: hint,
	})
}

// where is the path to a value from the document's root, formatted only for a message.
type where struct {
	parent *where // nil at the root
	key    string
	index  int // of an item of a list, where key is empty
}

func (w *where) String() string {
	switch {
	case w == nil:
		return "the document"
	case w.key == "":
		return fmt.Sprintf("%s[%d]", w.parent, w.index)
	case w.parent == nil:
		return w.key
	default:
		return w.parent.String() + "." + w.key
	}
}

// top is the key at the document's root that w leads through.
func (w *where) top() string {
	for w.parent != nil {
		w = w.parent
	}
	return w.key
}

// decode fills v from n. at names v in messages.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, at *where) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.exhausted(n) {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *ignored:
		return
	case *localOnly:
		d.findings = append(d.findings, finding.New(finding.CodeUnknownField, d.position(n), "write it into wherry.yaml", "%s is not read from a Platform object", at))
		return
	case *TextOrObject:
		if p.Object = n; n.Kind != yaml.MappingNode {
			p.Object = nil
			d.decode(n, reflect.ValueOf(&p.Text).Elem(), at)
		}
		return
	case *PromotionContent:
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			p.Line = Line(n.Line)
			d.decode(n, reflect.ValueOf(&p.Any).Elem(), at)
			return
		}
	case *Scalar:
		p.Value, p.Line = ScalarOf(n), Line(n.Line)
		return
	case *Text:
		p.Value, p.Line, p.First = d.str(n, at), Line(n.Line), Line(n.Line)
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			p.First++
		} else if !strings.Contains(p.Value, "\n") {
			p.Column = Column(n.Column)
			if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
				p.Column++
			}
		}
		return
	}
	if n.ShortTag() == "!!null" {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *Number:
		p.Value, p.Line = d.number(n, at), Line(n.Line)
		return
	case *Whole:
		p.Value, p.Line = d.integer(n, at), Line(n.Line)
		return
	case *Flag:
		p.Value, p.Line = d.boolean(n, at), Line(n.Line)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(d.str(n, at))
	case reflect.Int64:
		v.SetInt(d.integer(n, at))
	case reflect.Bool:
		v.SetBool(d.boolean(n, at))
	case reflect.Struct:
		d.decodeStruct(n, v, at)
	case reflect.Map:
		d.decodeMap(n, v, at)
	case reflect.Slice:
		d.decodeSlice(n, v, at)
	default:
		panic("kinds.go has a field of type " + v.Type().String())
	}
}

// exhausted counts n, and reports whether there are too many nodes to go on.
func (d *decoder) exhausted(n *yaml.Node) bool {
	if d.nodes++; d.nodes == MaxNodes {
		d.fail(finding.CodeTooLarge, n, "", "the document holds more than %d values once its aliases are expanded", MaxNodes)
	}
	return d.nodes >= MaxNodes
}

// ShortTag is n's tag as Kubernetes sees it: words that only YAML 1.1 takes for booleans are booleans, and
// dates are texts.
func ShortTag(n *yaml.Node) string {
	switch tag := n.ShortTag(); tag {
	case "!!str":
		if n.Kind == yaml.ScalarNode && n.Style == 0 && slices.Contains(oldBooleans, n.Value) {
			return "!!bool"
		}
		return tag
	case "!!timestamp":
		return "!!str"
	default:
		return tag
	}
}

// ScalarOf returns the value of a node: a string, a bool, a number as an int, an uint64 or a float64, nil for null, and an
// empty list for anything else.
func ScalarOf(n *yaml.Node) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		return []any{}
	}
	switch ShortTag(n) {
	case "!!str":
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		return slices.Contains([]string{"y", "yes", "on", "true"}, strings.ToLower(n.Value))
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return []any{}
	}
	return value
}

// oldBooleans are the booleans of YAML 1.1 that are none in YAML 1.2.
var oldBooleans = []string{
	"y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF",
}

// str is the string that n must be.
func (d *decoder) str(n *yaml.Node, at *where) string {
	switch tag := ShortTag(n); {
	case n.Kind != yaml.ScalarNode:
		d.fail(finding.CodeType, n, "", "%s must be a string, not a %s", at, KindName(n))
	case tag == "!!null":
		return ""
	case tag != "!!str":
		d.fail(finding.CodeType, n, finding.Sentence("write it in quotes: %q", n.Value), "%s must be a string, and %s is a %s", at, n.Value, TagName(tag))
	}
	return n.Value
}

// integer is the number that n must be.
func (d *decoder) integer(n *yaml.Node, at *where) int64 {
	number, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
		d.fail(finding.CodeType, n, "", "%s must be a whole number", at)
	}
	return number
}

// number is the number that n must be: neither an infinite one nor none.
func (d *decoder) number(n *yaml.Node, at *where) float64 {
	var number float64
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || n.Decode(&number) != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		d.fail(finding.CodeType, n, "", "%s must be a number", at)
		return 0
	}
	return number
}

// boolean is the truth value that n must be, as YAML 1.2 and JSON write it.
func (d *decoder) boolean(n *yaml.Node, at *where) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		d.fail(finding.CodeType, n, "", "%s must be true or false", at)
	}
	return strings.EqualFold(n.Value, "true")
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, at *where) {
	fields, names := structFields(v)
	if l := v.FieldByName("Line"); l.IsValid() && l.Type() == reflect.TypeFor[Line]() {
		l.SetInt(int64(n.Line))
	}
	for _, p := range d.pairs(n, at) {
		key := &where{parent: at, key: p.key.Value}
		field, ok := fields[p.key.Value]
		if !ok {
			unknown := finding.New(finding.CodeUnknownField, d.position(p.key), finding.DidYouMean(p.key.Value, names), "unknown field %s", key)
			unknown.Column = p.key.Column
			if d.strict && key.top() == "spec" {
				d.unknown = append(d.unknown, unknown)
				continue
			}
			d.findings = append(d.findings, unknown)
			continue
		}
		d.decode(p.value, field, key)
	}
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, at *where) {
	pairs := d.pairs(n, at)
	v.Set(reflect.MakeMapWithSize(v.Type(), len(pairs)))
	for _, p := range pairs {
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(p.value, value, &where{parent: at, key: p.key.Value})
		v.SetMapIndex(reflect.ValueOf(p.key.Value), value)
	}
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value, at *where) {
	if n.Kind != yaml.SequenceNode {
		d.fail(finding.CodeType, n, "", "%s must be a list, not a %s", at, KindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.decode(item, v.Index(i), &where{parent: at, index: i})
	}
}

type pair struct{ key, value *yaml.Node }

// pairs lists the keys of a mapping, with merge keys (<<) resolved: its own keys win over merged ones.
func (d *decoder) pairs(n *yaml.Node, at *where) []pair {
	if n.Kind != yaml.MappingNode {
		d.fail(finding.CodeType, n, "", "%s must be a mapping, not a %s", at, KindName(n))
		return nil
	}
	var own, merged []pair
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merged = append(merged, d.mergedPairs(value, at)...)
			continue
		}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if !(ShortTag(key) == "!!int" && isDecimal(key.Value)) { // Kubernetes takes numbers for keys
			d.str(key, &where{parent: at, key: key.Value})
		}
		if first, ok := lines[key.Value]; ok {
			d.fail(finding.CodeDuplicateKey, key, "", "%s is given twice, first on line %d", &where{parent: at, key: key.Value}, first)
			continue
		}
		lines[key.Value] = key.Line
		own = append(own, pair{key, value})
	}
	for _, p := range merged {
		if _, ok := lines[p.key.Value]; !ok {
			lines[p.key.Value] = p.key.Line
			own = append(own, p)
		}
	}
	return own
}

// mergedPairs lists the pairs of a merge key: those of one mapping or of several, of which the first wins.
func (d *decoder) mergedPairs(n *yaml.Node, at *where) []pair {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.depth++
	defer func() { d.depth-- }()
	if d.depth > maxMerges { // a mapping can be made to merge itself
		d.fail(finding.CodeTooLarge, n, "", "merge keys nest more than %d deep", maxMerges)
		return nil
	}
	if d.exhausted(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return d.pairs(n, at)
	}
	var all []pair
	for _, item := range n.Content {
		all = append(all, d.mergedPairs(item, at)...)
	}
	return all
}

// structFields maps the YAML keys of a struct to its fields, those of inlined structs among them.
func structFields(v reflect.Value) (map[string]reflect.Value, []string) {
	fields, names := map[string]reflect.Value{}, []string{}
	for i := range v.NumField() {
		name, inline := strings.CutSuffix(v.Type().Field(i).Tag.Get("yaml"), ",inline")
		switch {
		case inline:
			inner, innerNames := structFields(v.Field(i))
			for _, n := range innerNames {
				fields[n] = inner[n]
			}
			names = append(names, innerNames...)
		case name != "":
			fields[name] = v.Field(i)
			names = append(names, name)
		}
	}
	return fields, names
}

// KindName returns the word for the kind of a node: mapping, list or single value.
func KindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	case yaml.AliasNode:
		return KindName(n.Alias)
	default:
		return "single value"
	}
}

// TagName returns the word for a tag, such as boolean for !!bool.
func TagName(tag string) string {
	names := map[string]string{"!!bool": "boolean", "!!int": "number", "!!float": "number"}
	if name, ok := names[tag]; ok {
		return name
	}
	return tag
}

func isDecimal(s string) bool {
	return s == "0" || strings.Trim(s, "0123456789") == "" && !strings.HasPrefix(s, "0")
}

// Field finds the value of a key without judging the rest.
func Field(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	}
	return &yaml.Node{}
}

// StringField returns the text of a key, or "" if there is none.
func StringField(n *yaml.Node, key string) string { return Field(n, key).Value }

// SequenceField returns the items of the list at a key, or nil if there is none.
func SequenceField(n *yaml.Node, key string) []*yaml.Node {
	if f := Field(n, key); f.Kind == yaml.SequenceNode {
		return f.Content
	}
	return nil
}
