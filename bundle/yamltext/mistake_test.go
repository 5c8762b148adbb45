package yamltext

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMistake(t *testing.T) {
	for name, c := range map[string]struct {
		text, message string
		line          int
	}{
		"a tab in a mapping":          {"a:\n\tb: 1\n", "line 2 has a tab; YAML is indented with spaces", 2},
		"a tab after spaces":          {"a:\n  b:\n\t  c: 1\n", "line 3 has a tab; YAML is indented with spaces", 3},
		"a tab beside a key":          {"a: 1\n\tb: 2\n", "line 2 has a tab; YAML is indented with spaces", 2},
		"a tab in a list":             {"a:\n  - x\n\t- y\n", "line 3 has a tab; YAML is indented with spaces", 3},
		"a tab in the first line":     {"\ta: 1", "line 1 has a tab; YAML is indented with spaces", 1},
		"a tab in a block text":       {"a: |\n  x\n\ty\n", "line 3 has a tab; YAML is indented with spaces", 3},
		"another mistake above a tab": {"a: @x\n\n\n\tb: 1\n", "a text that begins with @ needs quotes", 1},
		"a mistake without a tab":     {"a: 1\nb: [\n", "a value is missing, or a bracket is not closed or never opened", 2},
		"an owner":                    {"a: 1\nb: @org/x\n", "a text that begins with @ needs quotes", 2},
		"an owner in a list":          {"a:\n  - @org/x\n", "a text that begins with @ needs quotes", 2},
		"an owner in brackets":        {"a: [@org/x]\n", "a text that begins with @ needs quotes", 1},
		"a pattern":                   {"x: 1\na: *.yaml\n", "a text that begins with * needs quotes", 2},
		"a colon in a text":           {"a: 1\nb: one: two\n", `there is a ": " too many: put the text in quotes, or correct the indentation`, 2},
		"a line that is too far in":   {"a: 1\n  b: 2\n", `there is a ": " too many: put the text in quotes, or correct the indentation`, 2},
		"a line between two columns":  {"a:\n  b: 1\n c: 2\n", "the indentation differs from that of the lines above, or text follows a closing quote", 3},
		"text after a quote":          {"a: 'it's'\n", "the indentation differs from that of the lines above, or text follows a closing quote", 1},
		"text after a later quote":    {"x: 1\ny: 2\na: 'it's'\n", "the indentation differs from that of the lines above, or text follows a closing quote", 3},
		"a key alone":                 {"a: 1\nb\nc: 2\n", `a key has no ":" after it, or more than 1024 characters`, 2},
		"an open list":                {"a: [1, 2\nb: 3\n", "a list that begins with [ is not closed, or lacks a comma", 1},
		"an open mapping":             {"a: {x: 1\nb: 3\n", "a mapping that begins with { is not closed, or lacks a comma", 1},
		"an open quote":               {"a: \"x\nb: 1\n", "a text that begins with a quote is not closed", 3},
		"a backslash":                 {"a: \"\\d\"\n", "a backslash in double quotes is followed by a character that YAML does not know: use single quotes", 1},
		"a list beside its key":       {"a: - x\n", `a list of "- " begins on a line of its own`, 1},
		"a key in a list":             {"- a\nb: 1\n", `an item of a list does not begin with "- "`, 2},
		"text beside a bar":           {"a: |x\n  y\n", "a text after | or > begins on the next line", 1},
		"a star":                      {"a: 1\nb: *all\n", "a text that begins with * needs quotes: *all refers to an anchor that is not there", 2},
		"Latin-1":                     {"a: 1\nb: caf\xe9 \n", "the text is not UTF-8: save it as UTF-8", 2},
		"UTF-16 without a mark":       {"a\x00:\x00 \x001\x00\n\x00", "the text is not UTF-8: save it as UTF-8", 1},
		"a control character":         {"a: 1\nb: \x01\n", "control characters are not allowed", 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			require.Error(t, err)
			line, message := Mistake([]byte(c.text), err)
			require.Equal(t, c.message, message)
			require.Equal(t, c.line, line)
		})
	}
}
