package kindschema

import (
	"bytes"
	"strings"
)

// modelinePrefix begins the comment from which editors learn the schema of a file.
const modelinePrefix = "# yaml-language-server: $schema="

// maxModelineLines bounds the search for a modeline: editors look for it before the first object.
const maxModelineLines = 50

// Modeline returns the comment by which editors find the schema of a file. The schema is a URL, or a path relative to
// the file.
func Modeline(schema string) string { return modelinePrefix + schema }

// WithModeline returns data with the modeline as its first line. A modeline that is there is replaced. Nothing else is
// changed, not even the ends of lines.
func WithModeline(data []byte, schema string) []byte {
	const mark = "\uFEFF" // some editors on Windows begin files with it
	body, marked := bytes.CutPrefix(data, []byte(mark))
	start, end := findModeline(body)
	newline := "\n"
	if first, _, found := bytes.Cut(body, []byte("\n")); found && bytes.HasSuffix(first, []byte("\r")) {
		newline = "\r\n"
	}
	var out bytes.Buffer
	if marked {
		out.WriteString(mark)
	}
	if start == end {
		out.WriteString(Modeline(schema) + newline)
		out.Write(body)
		return out.Bytes()
	}
	out.Write(body[:start])
	out.WriteString(Modeline(schema))
	out.Write(body[end:])
	return out.Bytes()
}

// findModeline returns the place of the modeline's text, without the end of its line; an empty place if there is none.
func findModeline(data []byte) (start, end int) {
	n := 0
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line), "\r\n")
		if strings.HasPrefix(text, "# yaml-language-server:") {
			return start, start + len(text)
		}
		if n++; n > maxModelineLines || text != "" && text[0] != '#' && text != "---" {
			break
		}
		start += len(line)
	}
	return 0, 0
}
