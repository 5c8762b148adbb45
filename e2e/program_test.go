//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// programTime bounds one run of a program.
const programTime = 10 * time.Minute

// ran is what a program left behind.
type ran struct {
	code           int
	stdout, stderr string
}

// program runs wherry or wherry-agent in dir, as a person at a terminal would.
func program(t *testing.T, dir, name string, args ...string) ran {
	t.Helper()
	programs := os.Getenv(harness.ProgramsEnv)
	require.NotEmpty(t, programs, `%s is not set: run "make e2e"`, harness.ProgramsEnv)
	return execute(t, dir, filepath.Join(programs, name), args...)
}

// execute runs the program at path. It has the environment of the tests but for WHERRY_*, which would be
// configuration.
func execute(t *testing.T, dir, path string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHERRY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "COSIGN_PASSWORD="+password)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	r := ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	t.Logf("%s %s\nexit %d\n%s%s", filepath.Base(path), strings.Join(args, " "), r.code, r.stderr, r.stdout)
	return r
}
