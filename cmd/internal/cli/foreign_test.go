package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/show"
)

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
		require.Equal(t, OK, Main(cmd, nil))
		require.True(t, show.IsSafe(out.Bytes()), out.String())
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
	require.Equal(t, Failed, Main(cmd, nil))
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
		require.Equal(t, Failed, Main(cmd, nil), name)
		require.Equal(t, "tool: no space left on device\n", said.String(), name)
	}
}
