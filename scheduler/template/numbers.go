package template

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

// asKalypso replaces functions of sprig 3 whose results differ from those of sprig 2, which Kalypso uses.
// Most of all this affects how a text becomes a number, and all simple configuration values are texts: with
// sprig 3, "010" would be 8 and "1.5" would be 1.
func asKalypso(all template.FuncMap) {
	all["int"] = func(v any) int { return int(whole(v)) }
	all["int64"] = whole
	all["float64"] = fraction
	all["add"] = func(numbers ...any) int64 { return reduce(0, numbers, func(a, b int64) int64 { return a + b }) }
	all["add1"] = func(v any) int64 { return whole(v) + 1 }
	all["sub"] = func(a, b any) int64 { return whole(a) - whole(b) }
	all["div"] = func(a, b any) int64 { return whole(a) / whole(b) }
	all["mod"] = func(a, b any) int64 { return whole(a) % whole(b) }
	all["mul"] = func(a any, more ...any) int64 {
		return reduce(whole(a), more, func(a, b int64) int64 { return a * b })
	}
	all["max"] = func(a any, more ...any) int64 {
		return reduce(whole(a), more, func(a, b int64) int64 { return max(a, b) })
	}
	all["min"] = func(a any, more ...any) int64 {
		return reduce(whole(a), more, func(a, b int64) int64 { return min(a, b) })
	}
	all["biggest"] = all["max"]
	all["floor"] = func(v any) float64 { return math.Floor(fraction(v)) }
	all["ceil"] = func(v any) float64 { return math.Ceil(fraction(v)) }
	round := all["round"].(func(any, int, ...float64) float64)
	all["round"] = func(v any, digits int, from ...float64) float64 { return round(fraction(v), digits, from...) }
	all["camelcase"] = camelCase
}

func reduce(a int64, more []any, with func(a, b int64) int64) int64 {
	for _, b := range more {
		a = with(a, whole(b))
	}
	return a
}

// whole reads a value as a whole number. Texts are decimal. A value that is not a number is zero.
func whole(v any) int64 {
	if s, ok := v.(string); ok {
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0
		}
		return i
	}
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return 0
	case r.CanInt():
		return r.Int()
	case r.CanUint():
		return int64(min(r.Uint(), math.MaxInt64))
	case r.CanFloat():
		return int64(r.Float())
	case r.Kind() == reflect.Bool && r.Bool():
		return 1
	default:
		return 0
	}
}

// fraction reads a value as a number. A value that is not a number is zero.
func fraction(v any) float64 {
	if s, ok := v.(string); ok {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0
		}
		return f
	}
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return 0
	case r.CanFloat():
		return r.Float()
	case r.CanUint():
		return float64(r.Uint())
	default:
		return float64(whole(v))
	}
}

// camelCase begins each word with a capital letter and keeps the other letters. It removes the last of the characters
// between two words; characters before the first and after the last word stay.
func camelCase(s string) string {
	runes := []rune(s)
	var b strings.Builder
	started := false
	for i, r := range runes {
		switch {
		case !joinsWords(r):
			if i == 0 || joinsWords(runes[i-1]) {
				r = unicode.ToUpper(r)
			}
			started = true
		case started && i+1 < len(runes) && !joinsWords(runes[i+1]):
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func joinsWords(r rune) bool { return r == '-' || r == '_' || unicode.IsSpace(r) }
