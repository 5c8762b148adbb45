package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// directives are those of a unit, by SECTION.NAME.
func directives(t *testing.T, data []byte) map[string]string {
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
	return unit
}

func TestTheUnitOfSystemd(t *testing.T) {
	data, err := os.ReadFile("systemd/wherry-agent.service")
	require.NoError(t, err)
	unit := directives(t, data)
	require.Equal(t, "/usr/local/bin/wherry-agent run", unit["Service.ExecStart"])
	require.Equal(t, "wherry-agent", unit["Service.StateDirectory"], "below /var/lib, where the agent looks for its state")
	require.Equal(t, "strict", unit["Service.ProtectSystem"])
	require.Equal(t, "notify", unit["Service.Type"])
	require.NotEmpty(t, unit["Service.WatchdogSec"])
	require.Contains(t, unit["Service.Environment"], "WHERRY_CONFIG=/etc/wherry/agent.yaml")
	require.Equal(t, "multi-user.target", unit["Install.WantedBy"])

	// For playbooks, all that confines the agent is taken back.
	changes, err := os.ReadFile("systemd/host-changes.conf")
	require.NoError(t, err)
	dropIn := directives(t, changes)
	confines := regexp.MustCompile(`^Service\.(Protect|Private|Restrict[A-Z]|SystemCall|Capability|NoNewPrivileges|LockPersonality|MemoryDeny|MemoryMax)`)
	for name, value := range unit {
		if confines.MatchString(name) {
			require.Contains(t, dropIn, name)
			require.NotEqual(t, value, dropIn[name], name)
		}
	}

	// If there is a systemd, it checks the rest.
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		dir := t.TempDir()
		file := filepath.Join(dir, "wherry-agent.service")
		runnable := strings.Replace(string(data), "/usr/local/bin/wherry-agent run", analyze+" --version", 1)
		require.NoError(t, os.WriteFile(file, []byte(runnable), 0o644))
		require.NoError(t, os.Mkdir(file+".d", 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(file+".d", "host-changes.conf"), changes, 0o644))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
		require.NotContains(t, string(out), "host-changes.conf", "%s", out)
	}
}
