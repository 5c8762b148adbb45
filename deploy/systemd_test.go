package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	require.Equal(t, "wherry-agent run", unit["Service.ExecStart"], "systemd looks in /usr/bin and /usr/local/bin")
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
		runnable := strings.Replace(string(data), "wherry-agent run", analyze+" --version", 1)
		require.NoError(t, os.WriteFile(file, []byte(runnable), 0o644))
		require.NoError(t, os.Mkdir(file+".d", 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(file+".d", "host-changes.conf"), changes, 0o644))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
		require.NotContains(t, string(out), "host-changes.conf", "%s", out)
	}
}

func TestTheUnitsThatTakeInMedia(t *testing.T) {
	read := func(name string) (map[string]string, []byte) {
		data, err := os.ReadFile("systemd/" + name)
		require.NoError(t, err)
		return directives(t, data), data
	}
	agent, _ := read("wherry-agent.service")
	service, data := read("wherry-agent-import.service")
	path, pathData := read("wherry-agent-import.path")

	require.Equal(t, "/media/wherry", path["Path.PathExists"])
	require.NotContains(t, path, "Path.Unit", "it starts the service of its name")
	require.Equal(t, "wherry-agent import --watch /media/wherry --reports .", service["Service.ExecStart"])
	require.NotContains(t, service["Service.ExecStart"], "allow-expired", "only a person may allow that")
	for _, unit := range []map[string]string{service, path} {
		require.Equal(t, "wherry-agent.service", unit["Unit.PartOf"], "it ends with the agent, and does not begin it")
		require.Equal(t, "wherry-agent.service", unit["Unit.After"])
		require.NotContains(t, unit, "Unit.Requires")
	}
	require.Equal(t, "wherry-agent.service", service["Unit.Requisite"])
	require.Equal(t, "wherry-agent.service", path["Install.WantedBy"])
	require.Contains(t, service["Service.Environment"], "WHERRY_CONFIG=/etc/wherry/agent.yaml", "which names the state folder")

	// It is confined as the agent is, and more, but for the medium that it writes.
	confines := regexp.MustCompile(`^Service\.(Protect|Private|Restrict[A-Z]|SystemCall|NoNewPrivileges|LockPersonality|MemoryDeny)`)
	differ := map[string]string{
		"Service.ProtectSystem": "full", "Service.ProtectHome": "yes", "Service.PrivateNetwork": "yes", "Service.RestrictAddressFamilies": "AF_UNIX",
	}
	for _, name := range slices.Sorted(maps.Keys(agent)) {
		if confines.MatchString(name) && differ[name] == "" {
			require.Equal(t, agent[name], service[name], name)
		}
	}
	for name, want := range differ {
		require.Equal(t, want, service[name], name)
	}
	require.NotContains(t, service, "Service.ReadWritePaths", "its mounts would keep a medium busy")
	require.Subset(t, strings.Fields(agent["Service.CapabilityBoundingSet"]), strings.Fields(service["Service.CapabilityBoundingSet"]))

	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		dir := t.TempDir()
		runnable := regexp.MustCompile("(?m)^ExecStart=.*$").ReplaceAllString(string(data), "ExecStart="+analyze+" --version")
		other := "[Service]\nExecStart=" + analyze + " --version\n"
		for name, content := range map[string]string{
			"wherry-agent-import.service": runnable, "wherry-agent-import.path": string(pathData), "wherry-agent.service": other,
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		}
		cmd := exec.Command(analyze, "verify", filepath.Join(dir, "wherry-agent-import.path"), filepath.Join(dir, "wherry-agent-import.service"))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
	}
}

// exposure is what "systemd-analyze security" says about a unit with drop-ins, from 0 for none to 10.
func exposure(t *testing.T, unit string, dropIns ...string) string {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		require.NotContains(t, strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "systemd", "systemd-analyze is missing")
		t.Skip("systemd-analyze is missing")
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "units"), os.DirFS("systemd")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "units", unit+".d"), 0o755))
	for _, name := range dropIns {
		data, err := os.ReadFile("systemd/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "units", unit+".d", name), data, 0o644))
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", filepath.Join(dir, "units", unit)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	score := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+) `).FindSubmatch(out)
	require.NotNil(t, score, "%s", out)
	return string(score[1])
}

func TestUnitsAreConfined(t *testing.T) {
	units, err := filepath.Glob("systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 5)
	for _, unit := range units {
		t.Run(filepath.Base(unit), func(t *testing.T) {
			require.Less(t, exposure(t, filepath.Base(unit)), "3")
		})
	}
	// The drop-in that takes it back says what that costs.
	changes, err := os.ReadFile("systemd/host-changes.conf")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(changes)), " "), fmt.Sprintf("gives the unit %s with it, and %s without",
		exposure(t, "wherry-agent.service", "host-changes.conf"), exposure(t, "wherry-agent.service")))
}

// What mounts a medium does it where the agent looks for it, for those alone who have asked for that, and runs nothing on it.
func TestAMediumIsMountedWhereItIsLookedFor(t *testing.T) {
	data, err := os.ReadFile("systemd/media-wherry.mount")
	require.NoError(t, err)
	mount := directives(t, data)
	require.Equal(t, "/media/wherry", mount["Mount.Where"])
	require.Equal(t, "/dev/disk/by-label/WHERRY", mount["Mount.What"])
	for _, option := range []string{"nodev", "noexec", "nosuid"} {
		require.Contains(t, strings.Split(mount["Mount.Options"], ","), option)
	}
	rules, err := os.ReadFile("systemd/70-wherry-media.rules")
	require.NoError(t, err)
	for _, part := range []string{
		`ENV{ID_FS_LABEL}=="WHERRY"`, `ENV{SYSTEMD_WANTS}+="media-wherry.mount"`,
		`TEST=="/etc/systemd/system/wherry-agent.service.wants/wherry-agent-import.path"`,
	} {
		require.Contains(t, string(rules), part)
	}
	folders, err := os.ReadFile("systemd/wherry-agent.tmpfiles.conf")
	require.NoError(t, err)
	require.Contains(t, string(folders), "\nd /media/wherry ")
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		out, err := exec.Command(analyze, "verify", "systemd/media-wherry.mount").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "media-wherry.mount:", "%s", out)
	}
}
