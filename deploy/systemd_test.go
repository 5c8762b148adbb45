package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheUnitOfSystemd(t *testing.T) {
	data, err := os.ReadFile("systemd/wherry-agent.service")
	require.NoError(t, err)
	unit, section := map[string]string{}, ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		name, value, pair := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			require.True(t, pair, line)
			unit[section+"."+name] = value
		}
	}
	require.Equal(t, "/usr/local/bin/wherry-agent run", unit["Service.ExecStart"])
	require.Equal(t, "wherry-agent", unit["Service.StateDirectory"], "below /var/lib, where the agent looks for its state")
	require.Equal(t, "strict", unit["Service.ProtectSystem"])
	require.Contains(t, unit["Service.Environment"], "WHERRY_CONFIG=/etc/wherry/agent.yaml")
	require.Equal(t, "multi-user.target", unit["Install.WantedBy"])

	// Where there is a systemd, it says what it thinks of the rest.
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(t.TempDir(), "wherry-agent.service")
		runnable := strings.Replace(string(data), "/usr/local/bin/wherry-agent run", analyze+" --version", 1)
		require.NoError(t, os.WriteFile(file, []byte(runnable), 0o644))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
	}
}
