package agentcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/config"
)

// helpOf returns the help of an agent's command, by way of all that was asked before on the same flags.
func helpOf(t *testing.T, root *cobra.Command, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append(args, "--help"))
	require.NoError(t, root.Execute())
	return out.String()
}

func TestHelpListsTheSettingsThatMatter(t *testing.T) {
	root := Program("")
	const more = "\nAll settings of the agent: wherry-agent run --help\n"

	for _, command := range []string{"", "status", "doctor", "trust show", "reports dead list"} {
		help := helpOf(t, root, strings.Fields(command)...)
		require.Contains(t, help, "--config FILE", command)
		require.Contains(t, help, "--state-dir FOLDER", command)
		require.NotContains(t, help, "--registry", command)
		require.Contains(t, help, more, command)
	}
	require.Contains(t, helpOf(t, root, "rebind"), "--ring NAME")
	require.Contains(t, helpOf(t, root, "enroll"), "--hub URL")
	run := helpOf(t, root, "run")
	for _, s := range config.Settings() {
		require.Contains(t, run, "--"+s.Flag+" ")
	}
	require.NotContains(t, run, more)
	require.NotContains(t, helpOf(t, root, "completion", "bash"), "--config")
}

func TestHelpNamesSettingsThatThereAre(t *testing.T) {
	root := Program("")
	for _, command := range append(root.Commands(), root) {
		for _, name := range settingsOf(command.Name()) {
			require.NotNil(t, root.PersistentFlags().Lookup(name), name)
		}
	}
}
