package sitevalues

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// Read converts a value that was written in YAML or JSON to the property's type: a string, an int64, a float64 or a bool.
// Numbers and booleans may be texts, since a ConfigMap has nothing else. A string must be a text, since 1.10 as a number has
// already lost its last digit. Errors contain no value.
func (p *Property) Read(value any) (any, error) {
	text, isText := "", false
	switch v := value.(type) {
	case string:
		text, isText = v, true
	case json.Number:
		text = v.String()
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		text = fmt.Sprint(v)
	case float32:
		return p.Read(float64(v))
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
		if math.Abs(v) >= 1e21 || math.IsNaN(v) {
			text = strconv.FormatFloat(v, 'g', -1, 64)
		}
	case bool:
		if p.Type != Boolean {
			return nil, fmt.Errorf("it must be a %s, not true or false%s", p.Type, p.quoteHint())
		}
		return v, nil
	case nil:
		return nil, errors.New("it has no value")
	default:
		return nil, fmt.Errorf("it must be a single %s", p.Type)
	}
	switch p.Type {
	case String:
		if !isText {
			return nil, fmt.Errorf("it must be a string, not a number%s", p.quoteHint())
		}
		return checkText(text)
	case Integer:
		return readInteger(text)
	case Number:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(text, "_xXpP") {
			return nil, errors.New("it must be a number")
		}
		return f + 0, nil // without the sign of a zero
	default:
		if text != "true" && text != "false" || !isText {
			return nil, errors.New("it must be true or false")
		}
		return text == "true", nil
	}
}

func (p *Property) quoteHint() string {
	if p.Type == String {
		return ": write it in quotes"
	}
	return ""
}

// maxExact is the largest integer up to which a number of JSON is exact everywhere.
const maxExact = 1 << 53

func readInteger(text string) (any, error) {
	if whole, fraction, ok := strings.Cut(text, "."); ok && strings.Trim(fraction, "0") == "" && fraction != "" { // 3.0, as JSON Schema has it
		text = whole
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil || i > maxExact || i < -maxExact || strings.HasPrefix(text, "+") {
		return nil, errors.New("it must be an integer, of at most 2^53")
	}
	return i, nil
}

func checkText(text string) (any, error) {
	switch {
	case len(text) > MaxValueBytes:
		return nil, fmt.Errorf("it has %d bytes, at most %d are permitted", len(text), MaxValueBytes)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, errors.New("it is not UTF-8 text")
	}
	return text, nil
}

// textOf returns the one text for a value that read returned.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		data, _ := json.Marshal(v) // a finite number
		return string(data)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// Valid returns an error unless the property allows value, which is a string, an int64, a float64 or a bool, by Type. The
// error contains conditions and no value.
func (p *Property) Valid(value any) error {
	if p.Enum != nil && !slices.Contains(p.Enum, value) {
		return errors.New("it is not one of the values that are listed in enum")
	}
	switch v := value.(type) {
	case string:
		return p.validText(v)
	case int64:
		return p.validNumber(float64(v))
	case float64:
		return p.validNumber(v)
	}
	return nil
}

func (p *Property) validText(text string) error {
	switch n := utf8.RuneCountInString(text); {
	case p.MinLength != nil && n < *p.MinLength:
		return fmt.Errorf("it has %d characters, at least %d are required", n, *p.MinLength)
	case p.MaxLength != nil && n > *p.MaxLength:
		return fmt.Errorf("it has %d characters, at most %d are permitted", n, *p.MaxLength)
	}
	if p.Pattern != "" {
		pattern, err := regexp.Compile(p.Pattern)
		if err != nil {
			return err
		}
		if !pattern.MatchString(text) {
			return fmt.Errorf("it does not match the pattern %s", p.Pattern)
		}
	}
	if p.Format != "" && !hasFormat(text, p.Format) {
		return fmt.Errorf("it is not in the format %s", p.Format)
	}
	return nil
}

func (p *Property) validNumber(n float64) error {
	switch {
	case p.Minimum != nil && n < *p.Minimum:
		return fmt.Errorf("it is below the minimum %s", textOf(*p.Minimum))
	case p.Maximum != nil && n > *p.Maximum:
		return fmt.Errorf("it is above the maximum %s", textOf(*p.Maximum))
	}
	return nil
}

// hostname matches a name that Kubernetes takes, in small letters.
var hostname = lazyregexp.New(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// hasFormat reports whether text has one of Formats. A hostname is what Kubernetes takes for an Ingress.
func hasFormat(text, format string) bool {
	switch format {
	case "hostname":
		return len(text) <= 253 && hostname.MatchString(strings.ToLower(text))
	case "ipv4", "ipv6":
		a, err := netip.ParseAddr(text)
		return err == nil && a.Is4() == (format == "ipv4") && a.Zone() == ""
	case "cidr":
		_, err := netip.ParsePrefix(text)
		return err == nil
	case "uri":
		u, err := url.Parse(text)
		return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "" || u.Path != "")
	}
	return false
}
