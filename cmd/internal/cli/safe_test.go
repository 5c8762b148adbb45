package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
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
			s := Safe(&whole)
			n, err := io.WriteString(s, test.in)
			require.NoError(t, err)
			require.Equal(t, len(test.in), n)
			require.NoError(t, s.Close())
			require.Equal(t, test.want, whole.String())

			s = Safe(&bytewise)
			_, err = io.Copy(struct{ io.Writer }{s}, iotest.OneByteReader(strings.NewReader(test.in)))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.Equal(t, test.want, bytewise.String(), "in pieces of one byte")
		})
	}
}

func FuzzSafeWriter(f *testing.F) {
	f.Add([]byte("\x1b]0;x\a ##vso[y] \u202e\n ::error::"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var out bytes.Buffer
		s := Safe(&out)
		cut = min(max(cut, 0), len(data))
		_, _ = s.Write(data[:cut])
		_, _ = s.Write(data[cut:])
		require.NoError(t, s.Close())
		requireHarmless(t, out.String())
		require.True(t, isSafe(out.Bytes()), "what is escaped stays as it is")
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

func TestEveryFormatKeepsForeignTextHarmlessAndWhole(t *testing.T) {
	value := map[string]string{
		"escape": "\x1b[31m", "c1": "a\u009b", "bidi": "a\u202eb", "flag": "🏴\U000e0067\U000e007f", "command": "a\n::error::b\n##[error]c", "plain": "Grüße\n",
	}
	for _, format := range formats {
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
			return Print(cmd.OutOrStdout(), format, value, func(w io.Writer) {
				_, _ = io.WriteString(w, strings.Join([]string{value["escape"], value["command"]}, "\t"))
			})
		}}
		cmd.SetOut(&out)
		cmd.SetArgs(nil)
		require.Equal(t, OK, Main(cmd))
		requireHarmless(t, out.String())
		var got map[string]string
		switch format {
		case "json":
			require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		case "yaml":
			require.NoError(t, yaml.Unmarshal(out.Bytes(), &got))
		default:
			continue
		}
		require.Equal(t, value, got)
	}
}

func TestAnErrorWithForeignTextIsOneMessage(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
		return Fail(Failed, errors.New("read \x1b]0;x\a\nhint: curl\n::error::x"), "look at \u202ex\ntool: y")
	}}
	cmd.SetErr(&out)
	cmd.SetArgs(nil)
	require.Equal(t, Failed, Main(cmd))
	require.Equal(t, "tool: read \\u001b]0;x\\u0007\n  hint: curl\n  :\\u003aerror::x\nhint: look at \\u202ex\n  tool: y\n", out.String())
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatIsLostIsAFailure(t *testing.T) {
	for name, args := range map[string][]string{"help": {"--help"}, "a print that nobody looks at": nil, "completion": {"completion", "bash"}} {
		var said bytes.Buffer
		cmd := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
			_, _ = io.WriteString(cmd.OutOrStdout(), "x")
			return Exit(No)
		}}
		cmd.AddCommand(&cobra.Command{Use: "sub", Run: func(*cobra.Command, []string) {}})
		cmd.SetOut(fullDisk{})
		cmd.SetErr(&said)
		cmd.SetArgs(args)
		require.Equal(t, Failed, Main(cmd), name)
		require.Equal(t, "tool: no space left on device\n", said.String(), name)
	}
}
