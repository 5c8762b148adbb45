package template

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/mitchellh/hashstructure"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// MaxBytes bounds a rendered file, and the result of a function, in bytes.
const MaxBytes = 1 << 20

// maxItems bounds the lists that functions make out of numbers.
const maxItems = 100_000

// impure lists functions in sprig's own hermetic set that nevertheless use the clock, the
// time zone, the random generator or the operating system, or make new keys.
var impure = []string{
	"ago", "duration_round", "durationRound", "must_date_modify", "mustDateModify", "mustToDate", "toDate", "unixEpoch",
	"randInt", "shuffle",
	"osBase", "osClean", "osDir", "osExt", "osIsAbs",
	"bcrypt", "htpasswd", "derivePassword", "encryptAES", "decryptAES",
	"genPrivateKey", "buildCustomCert", "genCA", "genCAWithKey",
	"genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey",
}

// mutating lists the functions that change a map argument, which must not be a shared one.
var mutating = []string{"set", "unset", "merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite"}

// functions returns the functions for templates: sprig's pure ones, and Kalypso's own four. Those whose
// result could be much larger than their arguments are bounded.
func functions() template.FuncMap {
	all := sprig.HermeticTxtFuncMap()
	for _, name := range impure {
		delete(all, name)
	}
	asKalypso(all)
	all["toYaml"], all["stringify"] = toYAML(yamlvalue.Marshal), stringify(yamlvalue.Marshal)
	all["hash"], all["unquote"] = hash, unquote
	all["keys"], all["values"] = keys, values
	all["until"] = func(n int) ([]int, error) { return sequence(0, n, cmp.Compare(n, 0)) }
	all["untilStep"] = sequence
	all["seq"] = bounded(all["seq"].(func(...int) string), checkSeq)
	all["repeat"] = func(count int, s string) (string, error) {
		if count < 0 || count*len(s) > MaxBytes || count > MaxBytes {
			return "", ErrTooLong
		}
		return strings.Repeat(s, count), nil
	}
	all["replace"] = func(before, after, s string) (string, error) {
		if strings.Count(s, before)*len(after) > MaxBytes {
			return "", ErrTooLong
		}
		return strings.ReplaceAll(s, before, after), nil
	}
	all["indent"], all["nindent"] = indent, func(spaces int, s string) (string, error) {
		s, err := indent(spaces, s)
		return "\n" + s, err
	}
	all["print"] = func(args ...any) (string, error) { return checkLength(fmt.Sprint(args...)) }
	all["printf"] = func(format string, args ...any) (string, error) { return checkLength(fmt.Sprintf(format, args...)) }
	all["urlquery"] = template.URLQueryEscaper // built in; here for the shield to find
	all["println"] = func(args ...any) (string, error) { return checkLength(fmt.Sprintln(args...)) }
	all["html"], all["js"] = template.HTMLEscaper, template.JSEscaper // built in too
	bound(all)
	return all
}

// ErrTooLong is wrapped by errors about a text that would be longer than [MaxBytes].
var ErrTooLong = fmt.Errorf("the result is longer than %d bytes", MaxBytes)

func checkLength(s string) (string, error) {
	if len(s) > MaxBytes {
		return "", ErrTooLong
	}
	return s, nil
}

func indent(spaces int, s string) (string, error) {
	if spaces < 0 || spaces > MaxBytes || spaces*(1+strings.Count(s, "\n")) > MaxBytes {
		return "", ErrTooLong
	}
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

// sequence lists the numbers from start on as long as they are before stop.
func sequence(start, stop, step int) ([]int, error) {
	if step == 0 {
		return []int{}, nil
	}
	var distance, stride uint64 // which ints may be too small for
	if step > 0 && start < stop {
		distance, stride = uint64(stop)-uint64(start), uint64(step)
	} else if step < 0 && start > stop {
		distance, stride = uint64(start)-uint64(stop), -uint64(step)
	}
	if distance == 0 {
		return []int{}, nil
	}
	count := (distance-1)/stride + 1
	if count > maxItems {
		return nil, fmt.Errorf("the list has more than %d items", maxItems)
	}
	all := make([]int, count)
	for i := range all {
		all[i] = start + i*step
	}
	return all, nil
}

// bounded calls f only if check finds nothing wrong with the arguments.
func bounded(f func(...int) string, check func([]int) error) func(...int) (string, error) {
	return func(args ...int) (string, error) {
		if err := check(args); err != nil {
			return "", err
		}
		return f(args...), nil
	}
}

// checkSeq takes seq's arguments to be its bounds: the numbers in between are at most as many.
func checkSeq(args []int) error {
	if len(args) > 0 && uint64(slices.Max(args))-uint64(slices.Min(append(args, 0))) > maxItems {
		return fmt.Errorf("the list has more than %d items", maxItems)
	}
	return nil
}

// keys lists the keys of maps, sorted, so that the same input gives the same bytes.
func keys(of ...map[string]any) []string {
	all := []string{}
	for _, m := range of {
		all = append(all, slices.Sorted(maps.Keys(m))...)
	}
	return all
}

// values lists the values of a map in the order of its keys.
func values(m map[string]any) []any {
	all := make([]any, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

func toYAML(marshal func(any) string) func(any) (string, error) {
	return func(v any) (string, error) { return checkLength(marshal(v)) }
}

// stringify is toYaml with the lists in a map written as texts. Maps in it stay maps, as with
// Kalypso's function, whose check for maps never matches their type.
func stringify(marshal func(any) string) func(any) string {
	return func(v any) string {
		m, ok := v.(map[string]any)
		if !ok {
			return marshal(v)
		}
		texts := make(map[string]any, len(m))
		for key, value := range m {
			switch texts[key] = value; value.(type) {
			case []any, map[string]any:
				text := marshal(value)
				if text == "" {
					return ""
				}
				texts[key] = text + "\n"
			}
		}
		return marshal(texts)
	}
}

// hash returns a number that identifies a value. Platforms use it in names of objects, so it must never change.
func hash(v any) string {
	h, err := hashstructure.Hash(v, nil)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(h, 10)
}

// unquote removes the white space, then the double, then the single quotes around a string.
func unquote(v any) string {
	s, _ := v.(string)
	return strings.Trim(strings.Trim(strings.TrimSpace(s), `"`), "'")
}

// explainFunction adds to an error about an undefined function the reason why it is undefined.
func explainFunction(message string) string {
	_, rest, ok := strings.Cut(message, `function "`)
	name, _, ok2 := strings.Cut(rest, `" not defined`)
	if !ok || !ok2 {
		return ""
	}
	if _, ok := sprig.TxtFuncMap()[name]; ok {
		return fmt.Sprintf("%s is not a pure function: the same platform would not always give the same files", name)
	}
	return finding.DidYouMean(name, slices.Sorted(maps.Keys(functions())))
}
