package cli

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

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
