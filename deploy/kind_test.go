package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands is a folder that holds programs of this machine, and scripts that stand for others.
func commands(t *testing.T, scripts map[string]string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	return dir
}

func kindRun(t *testing.T, path string, command ...string) (output string, code int) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	cmd := exec.Command(bash, append([]string{"kind/run"}, command...)...)
	cmd.Env = []string{"PATH=" + path, "KIND=kind-of-the-test", "TMPDIR=" + t.TempDir()}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestWithoutAContainerEngineTheReasonIsSaid(t *testing.T) {
	out, code := kindRun(t, commands(t, nil, "dirname"), "false")
	require.Zero(t, code)
	require.Equal(t, "e2e-kind: SKIPPED: there is no container engine: neither docker nor podman is installed\n", out)

	docker := map[string]string{"docker": "echo the daemon sleeps >&2; exit 1"}
	out, code = kindRun(t, commands(t, docker, "dirname"), "false")
	require.Zero(t, code)
	require.Equal(t, "e2e-kind: SKIPPED: there is no container engine: docker is installed and says: the daemon sleeps\n", out)
}

// Containers cannot be had everywhere; what the script asks for can be seen everywhere.
func TestWhatWasStartedInContainersEndsWithTheCommand(t *testing.T) {
	scripts := map[string]string{
		"podman":           "echo podman $1 >&2\n[ $1 != port ] || echo 127.0.0.1:50123",
		"kind-of-the-test": "echo kind $1 by $KIND_EXPERIMENTAL_PROVIDER >&2",
		"curl":             "for url; do :; done; echo curl $url >&2",
		"tests":            "echo tests on $WHERRY_E2E_REGISTRY and ${WHERRY_E2E_KUBECONFIG##*/} >&2; exit 7",
	}
	out, code := kindRun(t, commands(t, scripts, "dirname", "mktemp", "rm"), "tests")
	require.Equal(t, 7, code)
	require.Equal(t, `podman run
podman port
kind create by podman
curl http://127.0.0.1:50123/v2/
tests on 127.0.0.1:50123 and kubeconfig
kind delete by podman
podman rm
`, out)
}

func TestTheConfigurationOfZot(t *testing.T) {
	data, err := os.ReadFile("zot/config.json")
	require.NoError(t, err)
	var config struct {
		Storage struct{ RootDirectory string }
		HTTP    struct{ Address, Port string }
	}
	require.NoError(t, json.Unmarshal(data, &config))
	require.NotEmpty(t, config.Storage.RootDirectory)
	require.Equal(t, "5000", config.HTTP.Port, "which kind/run publishes")
	require.Equal(t, "0.0.0.0", config.HTTP.Address, "loopback inside of the container is nobody's")
}
