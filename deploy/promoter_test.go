package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheUnitThatPromotes(t *testing.T) {
	data, err := os.ReadFile("systemd/wherry-promote.service")
	require.NoError(t, err)
	unit := directives(t, data)
	require.Contains(t, unit["Service.ExecStart"], `exec wherry promote "$PLATFORM" --watch`)
	require.Equal(t, "always", unit["Service.Restart"])
	require.Equal(t, "multi-user.target", unit["Install.WantedBy"])
	require.Empty(t, unit["Service.CapabilityBoundingSet"])
	require.Equal(t, "yes", unit["Service.DynamicUser"])

	// It is confined as the agent is, and more.
	agentData, err := os.ReadFile("systemd/wherry-agent.service")
	require.NoError(t, err)
	agent := directives(t, agentData)
	confines := regexp.MustCompile(`^Service\.(Protect|Private|Restrict[A-Z]|SystemCall|NoNewPrivileges|LockPersonality|MemoryDeny)`)
	for _, name := range slices.Sorted(maps.Keys(agent)) {
		if confines.MatchString(name) && name != "Service.ProtectHome" {
			require.Equal(t, agent[name], unit[name], name)
		}
	}
	require.Equal(t, "yes", unit["Service.ProtectHome"])

	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(t.TempDir(), "wherry-promote.service")
		require.NoError(t, os.WriteFile(file, data, 0o644))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
	}
}
