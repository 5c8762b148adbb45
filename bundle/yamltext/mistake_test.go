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
		"another mistake above a tab": {"a: @x\n\n\n\tb: 1\n", "found character that cannot start any token", 0},
		"a mistake without a tab":     {"a: 1\nb: [\n", "did not find expected node content", 2},
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
