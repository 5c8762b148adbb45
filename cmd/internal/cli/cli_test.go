package cli

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestWrongArgumentsAreToldTheRightOnes(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a mistyped command":      {[]string{"pubish"}, "tool: unknown command \"pubish\" for \"tool\"\nhint: did you mean publish? Else see \"tool --help\"\n"},
		"half of a command":       {[]string{"group", "l"}, "tool: unknown command \"l\" for \"tool group\"\nhint: did you mean list or look? Else see \"tool group --help\"\n"},
		"no command at all":       {[]string{"xyzzy"}, "tool: unknown command \"xyzzy\" for \"tool\"\nhint: see \"tool --help\"\n"},
		"help for no command":     {[]string{"help", "pubish"}, "tool: unknown command \"pubish\" for \"tool\"\nhint: did you mean publish? Else see \"tool --help\"\n"},
		"help for a half of one":  {[]string{"help", "group", "l"}, "tool: unknown command \"l\" for \"tool group\"\nhint: did you mean list or look? Else see \"tool group --help\"\n"},
		"nothing for a command":   {[]string{""}, "tool: unknown command \"\" for \"tool\"\nhint: see \"tool --help\"\n"},
		"a shell that is none":    {[]string{"completion", "powershel"}, "tool: unknown command \"powershel\" for \"tool completion\"\nhint: did you mean powershell? Else see \"tool completion --help\"\n"},
		"an empty value":          {[]string{"publish", "x", "--to="}, "tool: invalid argument \"\" for \"--to\" flag: it is empty\nhint: see \"tool publish --help\"\n"},
		"an argument too few":     {[]string{"publish"}, "tool: accepts 1 arg(s), received 0\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"an argument too many":    {[]string{"group", "list", "all"}, "tool: unexpected argument \"all\"\nhint: tool group list; see \"tool group list --help\"\n"},
		"an unknown flag":         {[]string{"publish", "--too"}, "tool: unknown flag: --too\nhint: see \"tool publish --help\"\n"},
		"a required flag too few": {[]string{"publish", "x"}, "tool: required flag(s) \"to\" not set\nhint: see \"tool publish --help\"\n"},
	} {
		run := func(*cobra.Command, []string) {}
		root, group := &cobra.Command{Use: "tool", Args: cobra.NoArgs}, &cobra.Command{Use: "group"}
		publish := &cobra.Command{Use: "publish PLATFORM --to PLACE", Args: cobra.ExactArgs(1), Run: run}
		publish.Flags().String("to", "", "")
		require.NoError(t, publish.MarkFlagRequired("to"))
		NotEmpty(publish, "to")
		group.AddCommand(&cobra.Command{Use: "list", Args: cobra.NoArgs, Run: run}, &cobra.Command{Use: "look", Run: run})
		root.AddCommand(publish, group)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(test.args)
		require.Equal(t, Usage, Main(root), name)
		require.Equal(t, test.want, out.String(), name)
	}
}

func TestShellsAreNotShownTheQuotesOfHelp(t *testing.T) {
	newRoot := func(args ...string) (*cobra.Command, *bytes.Buffer) {
		root, sub := &cobra.Command{Use: "tool"}, &cobra.Command{Use: "sign", Run: func(*cobra.Command, []string) {}}
		root.PersistentFlags().String("kept", "", "the `FOLDER` of all")
		sub.Flags().String("key", "", "the private key `FILE` that signs")
		root.AddCommand(sub)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		return root, &out
	}
	root, out := newRoot(cobra.ShellCompRequestCmd, "sign", "--k")
	require.Equal(t, OK, Main(root))
	require.Contains(t, out.String(), "--key\tthe private key FILE that signs\n")
	require.Contains(t, out.String(), "--kept\tthe FOLDER of all\n")

	root, out = newRoot("sign", "--help")
	require.Equal(t, OK, Main(root))
	require.Contains(t, out.String(), "--key FILE ")
	require.Contains(t, out.String(), "the private key FILE that signs\n")
}
