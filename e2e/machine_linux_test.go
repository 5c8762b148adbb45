//go:build e2e && pods

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// Users, packages and cron jobs are root's to make on Debian, as are pods that run.

// machine is this machine, as a site that playbooks set up.
type machine struct {
	*site
	user, command string
}

// newMachine makes a platform and a package with names of their own. Their traces on this machine are
// removed at the end, whatever the result of the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{site: newSite(t)}
	m.user, m.command = m.environment+"-host-app", "wherry-"+m.environment
	workload := "machine/workloads/host/workload.yaml"
	m.edit(workload, "name: app\n      environment: ENVIRONMENT", "name: app\n      environment: "+m.environment)
	m.edit(workload, "package: PACKAGE", "package: "+m.buildPackage())
	m.edit(workload, "command: COMMAND", "command: "+m.command)
	t.Cleanup(func() {
		for _, line := range [][]string{{"dpkg", "--purge", m.command}, {"crontab", "-r", "-u", m.user}, {"userdel", "--remove", m.user}} {
			out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
			t.Logf("%v: %v %s", line, err, out) // most of it is gone already
		}
	})
	return m
}

// buildPackage returns the path of a Debian package with one program.
func (m *machine) buildPackage() string {
	m.t.Helper()
	dir, deb := m.path("package"), m.path(m.command+".deb")
	control := fmt.Sprintf("Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: tests <tests@wherry.invalid>\nDescription: made by a test\n", m.command)
	for name, content := range map[string]string{"DEBIAN/control": control, "usr/local/bin/" + m.command: "#!/bin/sh\necho \"in $REGION\"\n"} {
		path := filepath.Join(dir, name)
		require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(m.t, os.WriteFile(path, []byte(content), 0o755))
	}
	m.run("dpkg-deb", "--root-owner-group", "--build", dir, deb)
	return deb
}

func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(m.t, err, "%s %v: %s", name, args, out)
	return string(out)
}

func (m *machine) publishMachine() {
	m.t.Helper()
	r := m.wherry("publish", "machine/platform", "--environment", m.environment, "--workload", "host=machine/workloads/host",
		"--to", "oci-layout:bundles", "--key", "cosign.key", "--allow-empty")
	require.Zero(m.t, r.code, r.stderr)
}

func (m *machine) pass(more ...string) ran {
	m.t.Helper()
	return program(m.t, m.dir, "wherry-agent", replaced([]string{
		"once", "--registry", "oci-layout:bundles", "--environment", m.environment, "--cluster-type", "machine",
		"--key", "cosign.pub", "--state-dir", "agent", "--ansible-playbook", "ansible-playbook", "--wait", "8m", "--deadline", "8m",
	}, more)...)
}

func (m *machine) item() bundle.Item {
	m.t.Helper()
	items := m.status().Items
	require.Len(m.t, items, 1)
	return items[0]
}

func TestPlaybooksSetUpThisMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.publishMachine()
	require.Zero(t, m.pass("--wait", "0s").code, "what ends with the agent is waited for")
	item := m.item()
	require.Equal(t, []any{"ansible", bundle.Compliant, item.Content.String()}, []any{item.Adapter, item.State, item.Revision})

	u, err := user.Lookup(m.user)
	require.NoError(t, err)
	config := filepath.Join(u.HomeDir, "platform-config.sh")
	require.Contains(t, m.read(config), `export REGION="north"`)
	require.Contains(t, m.run("stat", "-c", "%U %G %a", config), m.user+" "+m.user+" 6")
	require.Contains(t, m.run("dpkg", "--status", m.command), "Status: install ok installed")
	require.Contains(t, m.run("crontab", "-l", "-u", m.user), "*/1 * * * * . $HOME/platform-config.sh; "+m.command)
	require.Equal(t, "in north\n", m.run("su", m.user, "-c", ". "+config+"; "+m.command))

	m.edit("machine/platform/config.yaml", "REGION: north", "REGION: south")
	m.publishMachine()
	require.Zero(t, m.pass().code)
	require.Contains(t, m.read(config), `export REGION="south"`)

	require.NoError(t, os.WriteFile(config, []byte("tampered"), 0o600))
	m.run("crontab", "-r", "-u", m.user)
	r := m.pass()
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, `msg="drift found"`)
	require.Contains(t, r.stderr, "copy the platform's configuration")
	require.Contains(t, r.stderr, "run it every minute")
	require.Contains(t, m.read(config), `export REGION="south"`)
	require.Contains(t, m.run("crontab", "-l", "-u", m.user), m.command)

	m.edit("machine/workloads/host/workload.yaml", "environment: "+m.environment, "environment: elsewhere")
	m.publishMachine()
	require.Zero(t, m.pass().code)
	require.Empty(t, m.status().Items)
	_, err = user.Lookup(m.user)
	require.ErrorAs(t, err, new(user.UnknownUserError))
	require.NoDirExists(t, u.HomeDir)
	require.Error(t, exec.Command("dpkg", "--status", m.command).Run())
}

func (m *machine) read(path string) string {
	m.t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(m.t, err)
	return strings.TrimSpace(string(data))
}
