package sitevalues

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/yamltext"
)

// Marker begins a reference to a value in a file.
const Marker = "${site."

// maxDocumentBytes bounds one document, which is a part of a YAML file, in which values are replaced.
const maxDocumentBytes = 4 << 20

// ContentError means that the files of an assignment cannot get values: another release has to mend that.
type ContentError struct{ Text string }

func (e *ContentError) Error() string { return e.Text }

// NewContentError returns a [*ContentError] about a line, counted from 1, of a file.
func NewContentError(name string, line int, format string, args ...any) error {
	at := name
	if line > 0 {
		at = fmt.Sprintf("%s:%d", name, line)
	}
	return &ContentError{bundle.Clip(at + ": " + fmt.Sprintf(format, args...))}
}

// Replace returns a YAML or JSON file with ${site.KEY} replaced in its texts, which are the values of keys and items. Every
// other byte stays, comments and keys too. A value is data: it cannot change the structure of the file, and a ${site.KEY} in
// it is not replaced. A scalar without quotes that is nothing but one ${site.KEY} gets the value with its type; all others
// stay texts. $${site.KEY} stands for the text ${site.KEY}. Limit bounds the result, in bytes.
//
// The error is a *ContentError, for a key that values lacks, or for a file that cannot be changed in place. It contains no
// value.
func Replace(name string, data []byte, values Values, limit int) ([]byte, error) {
	var out bytes.Buffer
	line := 0
	for _, document := range documents(data) {
		if bytes.Contains(document, []byte(Marker)) {
			changed, err := replaceIn(name, line, document, values, limit-out.Len())
			if err != nil {
				return nil, err
			}
			out.Write(changed)
		} else {
			out.Write(document)
		}
		line += bytes.Count(document, []byte("\n"))
		if out.Len() > limit {
			return nil, NewContentError(name, 0, "with the site's values it is larger than permitted")
		}
	}
	return out.Bytes(), nil
}

// documents splits a file before lines that begin a document, with which no other line of YAML may begin, so that each can
// be parsed by itself.
func documents(data []byte) [][]byte {
	var all [][]byte
	begin, at := 0, 0
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && at > begin && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			all, begin = append(all, data[begin:at]), at
		}
		at += len(line)
	}
	return append(all, data[begin:])
}

func replaceIn(name string, above int, document []byte, values Values, limit int) ([]byte, error) {
	if len(document) > maxDocumentBytes {
		return nil, NewContentError(name, above+1, "a document with site values has more than %d bytes", maxDocumentBytes)
	}
	f, err := yamltext.Parse(document)
	if err != nil {
		line, text := NotYAML(err)
		if line > 0 {
			line += above
		}
		return nil, NewContentError(name, line, "%s, so that site values cannot be replaced in it", text)
	}
	grown := len(document)
	changed, err := f.Rewrite(func(n *yaml.Node) (yamltext.Value, bool, error) {
		if !strings.Contains(n.Value, Marker) {
			return yamltext.Value{}, false, nil
		}
		keys := References(n.Value)
		for _, key := range keys {
			if _, ok := values[key]; !ok {
				return yamltext.Value{}, false, NewContentError(name, above+n.Line, "${site.%s} is not one of the keys that the workload lists", bundle.Clip(key))
			}
		}
		if n.Style == 0 && len(keys) == 1 && n.Value == Marker+keys[0]+"}" {
			if v, ok := typed(values[keys[0]]); ok {
				return v, true, nil
			}
		}
		text := Expand(n.Value, values.Texts(keys))
		if grown += len(text); grown > limit {
			return yamltext.Value{}, false, NewContentError(name, above+n.Line, "with the site's values it is larger than permitted")
		}
		return yamltext.Value{Text: text}, true, nil
	})
	var hard *yamltext.HardError
	if errors.As(err, &hard) {
		return nil, NewContentError(name, above+hard.Line, "a site value cannot be replaced here: write the text on one line, in quotes")
	}
	return changed, err
}

// typed returns a number or boolean as YAML; ok is false for a text.
func typed(v Value) (yamltext.Value, bool) {
	switch v.Any.(type) {
	case bool:
		return yamltext.Value{Text: v.Text, Tag: "!!bool"}, true
	case int64:
		return yamltext.Value{Text: v.Text, Tag: "!!int"}, true
	case float64:
		tag := "!!float"
		if !strings.ContainsAny(v.Text, ".eE") {
			tag = "!!int"
		}
		return yamltext.Value{Text: v.Text, Tag: tag}, true
	}
	return yamltext.Value{}, false
}

var (
	// yamlLine finds the line in an error of the parser.
	yamlLine = lazyregexp.New(`line ([0-9]+)`)
	// quotesText matches an error that quotes more than a single character.
	quotesText = lazyregexp.New("['`\"][^'`\"]{2}|\n")
)

// NotYAML describes an error of the parser without its quotes from the text, which may contain a value. The line is 0 if it
// is not known.
func NotYAML(err error) (line int, text string) {
	text = "it is not valid YAML"
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}
	_, detail, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), ": ")
	if detail != "" && !quotesText.MatchString(detail) {
		text += ": " + bundle.Clip(detail)
	}
	return line, text
}
