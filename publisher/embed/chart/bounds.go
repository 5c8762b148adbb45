package chart

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
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Bounds on one rendering. A chart that doubles a value forty times must fail before it exhausts memory or time.
const (
	// maxSteps bounds calls of functions, turns of loops and templates.
	maxSteps = 2_000_000
	// maxDepth bounds templates in templates, by include, tpl and template.
	maxDepth = 1000
	// maxText bounds one text that a function makes, in bytes; maxMade all of them.
	maxText = 32 << 20
	maxMade = 512 << 20
	// maxItems bounds one list that a function makes; maxListed all of them.
	maxItems  = 1 << 20
	maxListed = 32 << 20
	// maxNodes and maxValueDepth bound values that are written.
	maxNodes      = 4 << 20
	maxValueDepth = 1000
	// maxWork bounds the steps of functions whose work is a product, such as of the lengths of an expression and a text.
	maxWork = 1 << 28
	// maxTpl bounds a text for tpl, and maxActions its actions.
	maxTpl     = 1 << 20
	maxActions = 50_000
)

func tooLarge(format string, args ...any) error {
	return &finding.Error{Message: finding.Sentence(format, args...), Err: ErrTooLarge}
}

func tooSlow(format string, args ...any) error {
	return &finding.Error{Message: finding.Sentence(format, args...), Err: ErrTooSlow}
}

func refused(format string, args ...any) error {
	return &finding.Error{Message: finding.Sentence(format, args...), Err: ErrNotReproducible}
}

var (
	errLongText = tooLarge("the text would have more than %d bytes", maxText)
	errLongList = tooLarge("the list would have more than %d items", maxItems)
	errWork     = tooSlow("the call would take too long")
	errDeep     = tooLarge("the value nests deeper than %d, or holds itself", maxValueDepth)
	errNodes    = tooLarge("the value has more than %d parts", maxNodes)
)

// boundedAll bounds functions: text/template turns their panics into errors of the action that calls them.
func (r *run) boundedAll(all template.FuncMap) {
	for name, f := range all {
		all[name] = r.bounded(name, f)
	}
}

// bounded is f with its steps, arguments and results counted.
func (r *run) bounded(name string, f any) any {
	of := reflect.ValueOf(f)
	check, writes, copies := callChecks[name], writers[name], copiers[name]
	call := of.Call
	if of.Type().IsVariadic() {
		call = of.CallSlice
	}
	return reflect.MakeFunc(of.Type(), func(args []reflect.Value) []reflect.Value {
		r.step()
		if writes || copies {
			m := measure{nodes: maxNodes, text: maxText, closed: writes, formats: writes && !marshallers[name]}
			for i, arg := range args {
				top := 0
				if i == len(args)-1 && of.Type().IsVariadic() {
					top = -1 // the list of the arguments
				}
				if err := m.value(arg, top); err != nil {
					panic(err)
				}
			}
		}
		if check != nil {
			if err := check(r, args); err != nil {
				panic(err)
			}
		}
		results := call(args)
		r.made(results[0])
		return results
	}).Interface()
}

// made counts a result.
func (r *run) made(v reflect.Value) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if r.text += v.Len(); v.Len() > maxText {
			panic(errLongText)
		}
	case reflect.Slice, reflect.Array, reflect.Map:
		if r.listed += v.Len(); v.Len() > maxItems {
			panic(errLongList)
		}
	}
	if r.text > maxMade || r.listed > maxListed {
		panic(tooLarge("the functions of the templates make more than %d bytes or %d items", maxMade, maxListed))
	}
}

// step counts a step.
func (r *run) step() {
	if r.steps++; r.steps > maxSteps {
		panic(tooSlow("rendering takes more than %d steps", maxSteps))
	}
}

// writers write all of their arguments out, and copiers copy or compare all of them.
var (
	writers = setOf("toYaml", "toYamlPretty", "toJson", "mustToJson", "toPrettyJson", "mustToPrettyJson", "toRawJson", "mustToRawJson", "toToml",
		"toString", "toStrings", "quote", "squote", "cat", "join", "sortAlpha", "print", "printf", "println", "html", "js", "urlquery", "urlJoin", "toDecimal")
	copiers = setOf("deepCopy", "mustDeepCopy", "merge", "mustMerge", "mergeOverwrite", "mustMergeOverwrite",
		"uniq", "mustUniq", "without", "mustWithout", "has", "mustHas", "deepEqual")
	// marshallers write what pointers point to.
	marshallers = setOf("toYaml", "toYamlPretty", "toJson", "mustToJson", "toPrettyJson", "mustToPrettyJson", "toRawJson", "mustToRawJson", "toToml")
)

var errAddress = refused("the text would have an address in memory, which is another one each time; write the fields one by one")

// measure counts down what a value may have.
type measure struct {
	nodes, text int
	closed      bool // the capabilities of clusters must not be in it, unless they are known
	formats     bool // the value is formatted by package fmt, which writes pointers inside of values as addresses
}

// hasText reports whether fmt writes v by its own method.
func hasText(v reflect.Value) bool {
	if !v.CanInterface() {
		return false
	}
	return v.Type().Implements(reflect.TypeFor[fmt.Stringer]()) || v.Type().Implements(reflect.TypeFor[error]())
}

func (m *measure) value(v reflect.Value, depth int) error {
	m.nodes--
	switch {
	case !v.IsValid():
		return nil
	case m.formats && v.Kind() != reflect.Interface && hasText(v):
		return nil
	case m.formats && v.Kind() == reflect.Pointer && depth > 0 && !v.IsNil():
		return errAddress
	}
	switch v.Kind() {
	case reflect.String:
		m.text -= v.Len()
	case reflect.Interface:
		return m.value(v.Elem(), depth)
	case reflect.Pointer:
		if !v.IsNil() && depth <= maxValueDepth {
			return m.value(v.Elem(), depth+1)
		}
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Interface, reflect.Slice, reflect.Map, reflect.Pointer:
			for i := 0; i < v.Len() && m.nodes >= 0 && depth <= maxValueDepth; i++ {
				if err := m.value(v.Index(i), depth+1); err != nil {
					return err
				}
			}
		default:
			m.text -= v.Len()
		}
	case reflect.Struct:
		if m.closed && v.Type() == reflect.TypeFor[unknownCapabilities]() {
			return errCapabilities()
		}
		for _, field := range v.Fields() {
			if err := m.value(field, depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); m.nodes >= 0 && depth <= maxValueDepth && entry.Next(); {
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
		return errDeep
	case m.nodes < 0:
		return errNodes
	case m.text < 0:
		return errLongText
	}
	return nil
}

// callChecks check the arguments of functions that can exceed the bounds in a single call.
var callChecks = map[string]func(r *run, args []reflect.Value) error{
	"repeat": func(_ *run, args []reflect.Value) error {
		if args[0].Int() < 0 {
			return errors.New("the number of repetitions is negative")
		}
		return product(maxText, errLongText, int(args[0].Int()), max(1, args[1].Len()))
	},
	"indent": checkIndent, "nindent": checkIndent,
	"replace": func(_ *run, args []reflect.Value) error {
		return product(maxText, errLongText, strings.Count(args[2].String(), args[0].String()), args[1].Len())
	},
	"until": func(_ *run, args []reflect.Value) error { return checkNumbers(0, int(args[0].Int()), 1) },
	"untilStep": func(_ *run, args []reflect.Value) error {
		return checkNumbers(int(args[0].Int()), int(args[1].Int()), int(args[2].Int()))
	},
	"seq": func(_ *run, args []reflect.Value) error {
		low, high := 0, 0
		for i := range args[0].Len() {
			low, high = min(low, int(args[0].Index(i).Int())), max(high, int(args[0].Index(i).Int()))
		}
		return checkNumbers(low, high, 1)
	},
	"join": func(_ *run, args []reflect.Value) error {
		return product(maxText, errLongText, args[0].Len(), length(args[1]))
	},
	"wrap": func(_ *run, args []reflect.Value) error { return checkWrap(args[0], 1, args[1].Len()) },
	"wrapWith": func(_ *run, args []reflect.Value) error {
		return checkWrap(args[0], args[1].Len(), args[2].Len())
	},
	"printf": func(_ *run, args []reflect.Value) error { return checkFormat(args) },
	"uniq":   checkPairs, "mustUniq": checkPairs, "without": checkPairs, "mustWithout": checkPairs,
	"trimAll": checkCut, "trimall": checkCut,
	"split": checkSplit, "splitList": checkSplit,
	"fromToml": func(_ *run, args []reflect.Value) error {
		text := args[0].String()
		if len(text) > maxTpl || strings.Count(text, "[")+strings.Count(text, "{") > 10_000 {
			return tooLarge("the TOML is too long, or has too many brackets")
		}
		return nil
	},
	"derivePassword": func(r *run, _ []reflect.Value) error {
		if r.steps += maxSteps / 4; r.steps > maxSteps { // it takes a tenth of a second
			return errWork
		}
		return nil
	},

	"regexMatch": checkRegexp, "mustRegexMatch": checkRegexp, "regexFind": checkRegexp, "mustRegexFind": checkRegexp,
	"regexFindAll": checkRegexp, "mustRegexFindAll": checkRegexp, "regexSplit": checkRegexp, "mustRegexSplit": checkRegexp,
	"regexReplaceAll": checkReplace, "mustRegexReplaceAll": checkReplace,
	"regexReplaceAllLiteral": checkReplace, "mustRegexReplaceAllLiteral": checkReplace,
}

// product returns the error if a times b is more than the limit.
func product(limit uint64, otherwise error, a, b int) error {
	if a < 0 || b < 0 {
		return nil
	}
	if high, low := bits.Mul64(uint64(a), uint64(b)); high > 0 || low > limit {
		return otherwise
	}
	return nil
}

func checkIndent(_ *run, args []reflect.Value) error {
	if args[0].Int() < 0 {
		return errors.New("the number of spaces is negative")
	}
	return product(maxText, errLongText, int(args[0].Int()), 1+strings.Count(args[1].String(), "\n"))
}

func checkNumbers(start, stop, step int) error {
	if step == 0 {
		return nil
	}
	distance, stride := uint64(stop)-uint64(start), uint64(step)
	if stop < start {
		distance = uint64(start) - uint64(stop)
	}
	if step < 0 {
		stride = -uint64(step)
	}
	if distance/stride > maxItems {
		return errLongList
	}
	return nil
}

// length is the number of items of v, zero if it is no list.
func length(v reflect.Value) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		return v.Len()
	}
	return 0
}

// checkWrap bounds a text that gets a separator after every width letters, or after each word.
func checkWrap(width reflect.Value, separator, text int) error {
	return product(maxText, errLongText, separator, text/int(max(1, min(width.Int(), maxText)))+1)
}

func checkPairs(_ *run, args []reflect.Value) error {
	n := length(args[0])
	with := n
	if len(args) > 1 {
		with = length(args[1])
	}
	return product(maxWork>>4, errWork, n, with)
}

func checkCut(_ *run, args []reflect.Value) error {
	return product(maxWork, errWork, args[0].Len(), args[1].Len())
}

func checkSplit(_ *run, args []reflect.Value) error {
	if strings.Count(args[1].String(), args[0].String()) > maxItems {
		return errLongList
	}
	return nil
}

// checkRegexp bounds the match of an expression against a text: Go's regexp takes at most the product of the text's length
// and the compiled expression's.
func checkRegexp(_ *run, args []reflect.Value) error {
	parsed, err := syntax.Parse(args[0].String(), syntax.Perl)
	if err != nil {
		return nil // the function returns the error itself
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil // as above
	}
	return product(maxWork, errWork, len(program.Inst), args[1].Len())
}

// checkReplace also counts the inserted text: the replacement for each match, and with each $ of it no more than the whole
// text.
func checkReplace(r *run, args []reflect.Value) error {
	if err := checkRegexp(r, args); err != nil {
		return err
	}
	expression, err := regexp.Compile(args[0].String())
	if err != nil {
		return nil // as above
	}
	text, replacement := args[1].String(), args[2].String()
	matches := len(expression.FindAllStringIndex(text, -1))
	return errors.Join(product(maxText, errLongText, matches, len(replacement)), product(maxText, errLongText, strings.Count(replacement, "$"), len(text)))
}

// checkFormat adds up the widths in a format, by which a short format can produce a long text.
func checkFormat(args []reflect.Value) error {
	star := 0 // the largest number that * may stand for
	for i := range length(args[1]) {
		if v := args[1].Index(i); !v.IsNil() && v.Elem().CanInt() {
			star = max(star, int(min(v.Elem().Int(), maxText)), int(min(-v.Elem().Int(), maxText)))
		}
	}
	if formatPointer.MatchString(args[0].String()) {
		return errAddress
	}
	total := 0
	for _, verb := range formatVerb.FindAllString(args[0].String(), -1) {
		total += strings.Count(verb, "*") * star
		for _, digits := range formatNumber.FindAllString(verb, -1) {
			width := 0
			if len(digits) <= 7 { // fmt refuses more than a million
				width = atoi(digits)
			}
			total += width
		}
		if total > maxText {
			return errLongText
		}
	}
	return nil
}

var (
	formatPointer = lazyregexp.New(`%[-+# 0-9.*\[\]]*p`)
	formatVerb    = lazyregexp.New(`%[-+# 0-9.*\[\]]+`)
	formatNumber  = lazyregexp.New(`[1-9][0-9]*`)
)
