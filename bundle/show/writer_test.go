package show

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestWhatTerminalsAndCISystemsObeyIsEscaped(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"plain text":                           {"a\tb\nGrüße, 日本語 👩‍🌾\n", "a\tb\nGrüße, 日本語 👩‍🌾\n"},
		"a colour":                             {"\x1b[31mred", `\u001b[31mred`},
		"a bell and a carriage return":         {"a\a\rb", `a\u0007\u000db`},
		"C1 in UTF-8":                          {"\u009b31m", `\u009b31m`},
		"C1 as a byte":                         {"\x9b31m", `\x9b31m`},
		"delete":                               {"a\x7f", `a\u007f`},
		"text turned around":                   {"a\u202eb\u2066c", `a\u202eb\u2066c`},
		"a flag":                               {"🏴\U000e0067\U000e007f", "🏴\U000e0067\U000e007f"},
		"a line separator":                     {"a\u2028::error::b", `a\u2028::error::b`},
		"GitHub's command":                     {"::error::x", `:\u003aerror::x`},
		"after white space, which it trims":    {"a\n \t\u00a0::set-output name=a::b\n", "a\n \t\u00a0:\\u003aset-output name=a::b\n"},
		"colons within a line":                 {"a::b ::c\n: :d\n", "a::b ::c\n: :d\n"},
		"GitHub's older command, anywhere":     {"a ##[add-mask]b", `a ##\u005badd-mask]b`},
		"more hashes":                          {"###[error]", `###\u005berror]`},
		"Azure's command":                      {"x ##vso[task.setvariable]y", `x ##vso\u005btask.setvariable]y`},
		"TeamCity's command":                   {"##teamcity[message]", `##teamcity\u005bmessage]`},
		"headings and links":                   {"## a [b](c)\n#[x]\n# #[y]\n", "## a [b](c)\n#[x]\n# #[y]\n"},
		"the end in the middle of a character": {"a\xe2\x80", `a\xe2\x80`},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, bytewise bytes.Buffer
			s := NewWriter(&whole)
			n, err := io.WriteString(s, test.in)
			require.NoError(t, err)
			require.Equal(t, len(test.in), n)
			require.NoError(t, s.Close())
			require.Equal(t, test.want, whole.String())

			s = NewWriter(&bytewise)
			_, err = io.Copy(struct{ io.Writer }{s}, iotest.OneByteReader(strings.NewReader(test.in)))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.Equal(t, test.want, bytewise.String(), "in pieces of one byte")
		})
	}
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x1b]0;x\a ##vso[y] \u202e\n ::error::"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var out bytes.Buffer
		s := NewWriter(&out)
		cut = min(max(cut, 0), len(data))
		_, _ = s.Write(data[:cut])
		_, _ = s.Write(data[cut:])
		require.NoError(t, s.Close())
		requireHarmless(t, out.String())
		require.True(t, IsSafe(out.Bytes()), "what is escaped stays as it is")
		require.Equal(t, bytes.Count(data, []byte("\n")), strings.Count(out.String(), "\n"))
	})
}

// requireHarmless fails if a terminal or a CI system would obey any of text.
func requireHarmless(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text))
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			t.Fatalf("%q holds %U", text, r)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") || strings.Contains(line, "##vso[") {
			t.Fatalf("%q is a command", line)
		}
	}
}
