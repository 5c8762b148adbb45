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
		"an empty value":          {[]string{"publish", "x", "--to="}, "tool: --to \"\": must not be empty\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"an argument too few":     {[]string{"publish"}, "tool: expected 1 argument, got none\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"an argument too many":    {[]string{"group", "list", "all"}, "tool: unexpected argument \"all\"\nhint: tool group list; see \"tool group list --help\"\n"},
		"an unknown flag":         {[]string{"publish", "--too"}, "tool: unknown flag --too\nhint: did you mean --to? Else see \"tool publish --help\"\n"},
		"no flag that is known":   {[]string{"publish", "--xyzzy"}, "tool: unknown flag --xyzzy\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"an unknown letter":       {[]string{"publish", "-yx"}, "tool: unknown flag -x\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"a flag without a value":  {[]string{"publish", "x", "--to"}, "tool: --to needs a value\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"a letter without one":    {[]string{"publish", "x", "-n"}, "tool: --number needs a value\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"no number":               {[]string{"publish", "x", "--number=x"}, "tool: --number \"x\": it must be a number: invalid syntax\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"neither true nor false":  {[]string{"publish", "x", "--yes=x"}, "tool: --yes \"x\": it must be true or false\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"one value given twice":   {[]string{"publish", "x", "--to", "a", "--to=b"}, "tool: --to is given twice, as \"a\" and as \"b\"\nhint: it takes one value; see \"tool publish --help\"\n"},
		"by its letter, too":      {[]string{"publish", "x", "--to", "a", "-n1", "--number", "2"}, "tool: --number is given twice, as \"1\" and as \"2\"\nhint: it takes one value; see \"tool publish --help\"\n"},
		"yes and no":              {[]string{"publish", "x", "--to", "a", "-y", "--yes=false"}, "tool: --yes is given twice, as \"true\" and as \"false\"\nhint: it takes one value; see \"tool publish --help\"\n"},
		"twice with a login":      {[]string{"publish", "x", "--to", "https://me:secret@a", "--to=b"}, "tool: --to is given twice, with different values\nhint: it takes one value; see \"tool publish --help\"\n"},
		"lists, and the same":     {[]string{"publish", "x", "--to=a", "--to=a", "-n1", "-n01", "-y", "--yes", "--list=a", "--list=b", "--map=a=b", "--map=c=d", "--xyzzy"}, "tool: unknown flag --xyzzy\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
		"of all below":            {[]string{"--above", "a", "publish", "x", "--to", "a", "--above=b"}, "tool: --above is given twice, as \"a\" and as \"b\"\nhint: it takes one value; see \"tool publish --help\"\n"},
		"two that exclude":        {[]string{"group", "look", "--a", "--b"}, "tool: --a and --b cannot be given together\nhint: tool group look; see \"tool group look --help\"\n"},
		"one of three":            {[]string{"group", "look"}, "tool: missing --a, --b or --c\nhint: tool group look; see \"tool group look --help\"\n"},
		"half of two":             {[]string{"group", "look", "--c"}, "tool: missing --d: --c and --d go together\nhint: tool group look; see \"tool group look --help\"\n"},
		"too few of many":         {[]string{"group", "join", "x"}, "tool: expected at least 2 arguments, got 1\nhint: tool group join; see \"tool group join --help\"\n"},
		"too many of a few":       {[]string{"group", "open", "x", "y"}, "tool: expected at most 1 argument, got 2\nhint: tool group open; see \"tool group open --help\"\n"},
		"out of a range":          {[]string{"group", "copy", "x"}, "tool: expected 2 to 3 arguments, got 1\nhint: tool group copy; see \"tool group copy --help\"\n"},
		"a required flag too few": {[]string{"publish", "x"}, "tool: missing --to\nhint: tool publish PLATFORM --to PLACE; see \"tool publish --help\"\n"},
	} {
		run := func(*cobra.Command, []string) {}
		root, group := &cobra.Command{Use: "tool", Args: cobra.NoArgs}, &cobra.Command{Use: "group"}
		publish := &cobra.Command{Use: "publish PLATFORM --to PLACE", Args: cobra.ExactArgs(1), Run: run}
		publish.Flags().String("to", "", "")
		publish.Flags().IntP("number", "n", 0, "")
		publish.Flags().BoolP("yes", "y", false, "")
		publish.Flags().StringArray("list", nil, "")
		publish.Flags().StringToString("map", nil, "")
		root.PersistentFlags().String("above", "", "")
		require.NoError(t, publish.MarkFlagRequired("to"))
		NotEmpty(publish, "to", "list")
		look := &cobra.Command{Use: "look", Run: run}
		for _, name := range []string{"a", "b", "c", "d"} {
			look.Flags().Bool(name, false, "")
		}
		look.MarkFlagsMutuallyExclusive("a", "b")
		look.MarkFlagsOneRequired("a", "b", "c")
		look.MarkFlagsRequiredTogether("c", "d")
		group.AddCommand(&cobra.Command{Use: "list", Args: cobra.NoArgs, Run: run}, look,
			&cobra.Command{Use: "join", Args: cobra.MinimumNArgs(2), Run: run},
			&cobra.Command{Use: "open", Args: cobra.MaximumNArgs(1), Run: run},
			&cobra.Command{Use: "copy", Args: cobra.RangeArgs(2, 3), Run: run})
		root.AddCommand(publish, group)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(test.args)
		require.Equal(t, Usage, Main(root, nil), name)
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
	require.Equal(t, OK, Main(root, nil))
	require.Contains(t, out.String(), "--key\tthe private key FILE that signs\n")
	require.Contains(t, out.String(), "--kept\tthe FOLDER of all\n")

	root, out = newRoot("sign", "--help")
	require.Equal(t, OK, Main(root, nil))
	require.Contains(t, out.String(), "--key FILE ")
	require.Contains(t, out.String(), "the private key FILE that signs\n")
}
