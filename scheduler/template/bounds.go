package template

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"text/template"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// Bounds on the arguments of functions, and on their results. A template that doubles a value forty
// times, or that builds an endless list of numbers, must fail before it exhausts memory or time.
const (
	// maxGiven bounds the text arguments of one function, in bytes.
	maxGiven = 4 * MaxBytes
	// maxValueNodes bounds the parts of a value; a part that occurs twice counts twice.
	maxValueNodes = 1 << 18
	// maxValueDepth bounds lists in lists; a map that contains itself has no end.
	maxValueDepth = 1000
	// maxWork bounds the steps of functions whose work is a product, such as of the lengths of an expression and a text.
	maxWork = 1 << 25
)

var (
	errTooDeep = fmt.Errorf("the value nests deeper than %d, or contains itself", maxValueDepth)
	errTooMany = fmt.Errorf("the value has more than %d parts", maxValueNodes)
	errTooSlow = errors.New("it would take too long")
)

// bound makes all functions fail whose result, or whose work, would exceed the bounds. They keep
// their types: text/template turns a function's panic into an error of the action.
func bound(all template.FuncMap) {
	all[measureFunction] = func(v reflect.Value) (reflect.Value, error) {
		written := measure{text: MaxBytes, nodes: maxValueNodes}
		return v, written.value(v, 0)
	}
	for _, name := range growing {
		all[name] = limited(reflect.ValueOf(all[name]), nil)
	}
	for name, check := range callChecks {
		all[name] = limited(reflect.ValueOf(all[name]), check)
	}
}

// measureFunction is added wherever a template with functions that change maps writes a value.
const measureFunction = "wherryMeasured"

// growing are functions whose result is longer than their arguments by a factor, or that put values into others. One call
// does no harm.
var growing = []string{
	"append", "mustAppend", "push", "mustPush", "prepend", "mustPrepend", "concat", "list", "tuple", "dict", "set",
	"merge", "mustMerge", "mergeOverwrite", "mustMergeOverwrite", "deepCopy", "mustDeepCopy", "pluck",
	"cat", "quote", "squote", "b64enc", "b32enc", "html", "js", "urlquery", "snakecase", "kebabcase", "camelcase", "title", "regexQuoteMeta",
	"toJson", "mustToJson", "toPrettyJson", "mustToPrettyJson", "toRawJson", "mustToRawJson", "toString", "toStrings", "print", "println",
	"stringify", "hash", "fromJson", "mustFromJson", "urlJoin",
}

// callChecks check the arguments of functions that can exceed the bounds in a single call.
var callChecks = map[string]func(args []reflect.Value) error{
	"join":        func(args []reflect.Value) error { return checkProduct(MaxBytes, args[0].Len(), length(args[1])) },
	"wrapWith":    func(args []reflect.Value) error { return checkWrap(args[0].Int(), args[1].Len(), args[2].Len()) },
	"printf":      checkFormat,
	"uniq":        checkPairs,
	"mustUniq":    checkPairs,
	"without":     checkPairs,
	"mustWithout": checkPairs,
	"trimAll":     checkTexts,
	"trimall":     checkTexts,
	"split":       checkSplit,
	"splitList":   checkSplit,

	"regexMatch": checkRegexp, "mustRegexMatch": checkRegexp, "regexFind": checkRegexp, "mustRegexFind": checkRegexp,
	"regexFindAll": checkRegexp, "mustRegexFindAll": checkRegexp, "regexSplit": checkRegexp, "mustRegexSplit": checkRegexp,
	"regexReplaceAll": checkReplace, "mustRegexReplaceAll": checkReplace,
	"regexReplaceAllLiteral": checkReplace, "mustRegexReplaceAllLiteral": checkReplace,
}

func limited(f reflect.Value, check func([]reflect.Value) error) any {
	return reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
		given := measure{text: maxGiven, nodes: 2 * maxValueNodes}
		err := given.all(args)
		if err == nil && check != nil {
			err = check(args)
		}
		if err != nil {
			panic(err)
		}
		call := f.Call
		if f.Type().IsVariadic() {
			call = f.CallSlice
		}
		results := call(args)
		made := measure{text: MaxBytes, nodes: maxValueNodes}
		if err := made.all(results); err != nil {
			panic(err)
		}
		return results
	}).Interface()
}

// measure counts down the remaining size of values.
type measure struct{ text, nodes int }

func (m *measure) all(values []reflect.Value) error {
	for _, v := range values {
		if err := m.value(v, 0); err != nil {
			return err
		}
	}
	return nil
}

func (m *measure) value(v reflect.Value, depth int) error {
	m.nodes--
	switch v.Kind() { // none is Invalid: a field that is not there
	case reflect.String:
		m.text -= v.Len()
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() && depth <= maxValueDepth {
			return m.value(v.Elem(), depth+1)
		}
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Interface, reflect.Slice, reflect.Map, reflect.Pointer:
			for i := 0; i < v.Len() && m.text >= 0 && m.nodes >= 0; i++ {
				if err := m.value(v.Index(i), depth+1); err != nil {
					return err
				}
			}
		default:
			m.nodes -= v.Len()
		}
	case reflect.Struct: // the dot
		for _, field := range v.Fields() {
			if err := m.value(field, depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next() && m.text >= 0 && m.nodes >= 0; {
			if err := m.value(entry.Key(), depth+1); err != nil {
				return err
			}
			if err := m.value(entry.Value(), depth+1); err != nil {
				return err
			}
		}
	}
	switch {
	case depth > maxValueDepth:
		return errTooDeep
	case m.text < 0:
		return ErrTooLong
	case m.nodes < 0:
		return errTooMany
	}
	return nil
}

// length returns the number of items of v, zero if it is no list.
func length(v reflect.Value) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		return v.Len()
	}
	return 0
}

func checkProduct(limit, a, b int) error {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high > 0 || low > uint64(limit) {
		if limit == MaxBytes {
			return ErrTooLong
		}
		return errTooSlow
	}
	return nil
}

// checkWrap bounds a text that gets a separator after every width letters, or after each word.
func checkWrap(width int64, separator, text int) error {
	return checkProduct(MaxBytes, separator, text/int(max(1, min(width, MaxBytes)))+1)
}

// checkPairs bounds functions that compare each item with each other.
func checkPairs(args []reflect.Value) error {
	n := length(args[0])
	with := n
	if len(args) > 1 {
		with = length(args[1])
	}
	return checkProduct(maxWork>>3, n, with)
}

func checkTexts(args []reflect.Value) error {
	return checkProduct(maxWork, args[0].Len(), args[1].Len())
}

func checkSplit(args []reflect.Value) error {
	if strings.Count(args[1].String(), args[0].String()) > maxItems {
		return fmt.Errorf("the list has more than %d items", maxItems)
	}
	return nil
}

// checkRegexp bounds the match of an expression against a text: Go's regexp takes at most the product of the text's
// length and the compiled expression's, and a short expression can compile to a long program.
func checkRegexp(args []reflect.Value) error {
	parsed, err := syntax.Parse(args[0].String(), syntax.Perl)
	if err != nil {
		return nil // the function returns the error itself
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil // as above
	}
	return checkProduct(maxWork, len(program.Inst), args[1].Len())
}

// checkReplace also counts the inserted text: the replacement for each match, and with each $ of it no more
// than the whole text.
func checkReplace(args []reflect.Value) error {
	if err := checkRegexp(args); err != nil {
		return err
	}
	expression, err := regexp.Compile(args[0].String())
	if err != nil {
		return nil // as above
	}
	text, replacement := args[1].String(), args[2].String()
	matches := len(expression.FindAllStringIndex(text, -1))
	return errors.Join(
		checkProduct(MaxBytes, matches, len(replacement)),
		checkProduct(MaxBytes, strings.Count(replacement, "$"), len(text)))
}

// checkFormat adds up the widths in a format, by which a short format can produce a long text.
func checkFormat(args []reflect.Value) error {
	star := 0 // the largest number that * may stand for
	for i := range length(args[1]) {
		if v := args[1].Index(i); !v.IsNil() && v.Elem().CanInt() {
			star = max(star, int(min(v.Elem().Int(), MaxBytes)), int(min(-v.Elem().Int(), MaxBytes)))
		}
	}
	total := 0
	for _, verb := range formatVerb.FindAllString(args[0].String(), -1) {
		total += strings.Count(verb, "*") * star
		for _, digits := range formatNumber.FindAllString(verb, -1) {
			width := MaxBytes + 1
			if _, err := fmt.Sscanf(digits, "%7d", &width); err != nil || len(digits) > 7 {
				width = 0 // more than a million, which fmt refuses
			}
			total += width
		}
		if total > MaxBytes {
			return ErrTooLong
		}
	}
	return nil
}

var (
	formatVerb   = lazyregexp.New(`%[-+# 0-9.*\[\]]+`)
	formatNumber = lazyregexp.New(`[1-9][0-9]*`)
)
