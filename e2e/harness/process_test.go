package harness

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopEndsWhatTheProcessStarted(t *testing.T) {
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	p, err := start(dir, "/bin/sh", []string{"-c", `sleep 600 & echo $! >"$0.new" && mv "$0.new" "$0"; wait`, pidFile})
	require.NoError(t, err)
	var grandchild int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		grandchild, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	}, time.Minute, 5*time.Millisecond)

	require.NoError(t, p.stop())
	require.NoError(t, p.stop(), "a second stop finds nothing to do")
	require.Eventually(t, func() bool { return syscall.Kill(grandchild, 0) != nil }, time.Minute, 5*time.Millisecond)
}

func TestAProcessThatEndsTooEarlyIsReportedWithItsLog(t *testing.T) {
	p, err := start(t.TempDir(), "/bin/sh", []string{"-c", "echo listen: address already in use >&2; exit 4"})
	require.NoError(t, err)
	err = await(context.Background(), http.DefaultClient, loopback("http", 1), p)
	require.ErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, "sh ended (exit status 4) before it was ready; its log ends with:\nlisten: address already in use")
}

func TestAProcessIsHeard(t *testing.T) {
	p, err := start(t.TempDir(), "/bin/sh", []string{"-c", "echo ready; printf 'on 127'; sleep 0.1; echo ':5000'; exec sleep 600"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.stop()) })
	got, err := p.reports(t.Context(), "on ")
	require.NoError(t, err)
	require.Equal(t, "127:5000", got)
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	tests := []struct{ name, kubeconfig, tools, want string }{
		{"neither variable is set", "", "", `neither WHERRY_E2E_KUBECONFIG nor WHERRY_E2E_TOOLS is set: run "make e2e"`},
		{"the tools are not there", "", "/nowhere", `etcd is in no folder of WHERRY_E2E_TOOLS, which is "/nowhere"; "make e2e" builds it`},
		{"the kubeconfig has a relative path", "admin.conf", "", "WHERRY_E2E_KUBECONFIG: admin.conf is not absolute, and tests run in their own folders"},
		{"the kubeconfig is not there", "/nowhere", "/nowhere", "WHERRY_E2E_KUBECONFIG: stat /nowhere: no such file or directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			t.Setenv(KubeconfigEnv, test.kubeconfig)
			t.Setenv(ToolsEnv, test.tools)
			_, err := Start(context.Background())
			require.EqualError(t, err, test.want)
			left, err := filepath.Glob(filepath.Join(temporary, "wherry-e2e-*"))
			require.NoError(t, err)
			left = slices.DeleteFunc(left, func(path string) bool { return strings.HasSuffix(path, ".lock") }) // of the ports
			require.Empty(t, left, "a start that failed leaves nothing behind")
		})
	}
}

func TestFreePortsAreDifferent(t *testing.T) {
	ports, err := freePorts(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range ports {
		require.False(t, seen[port], "port %d twice", port)
		seen[port] = true
	}
}
