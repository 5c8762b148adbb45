//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	return execute(t, dir, ours(t, name), args...)
}

// ours is the path of wherry or wherry-agent.
func ours(t *testing.T, name string) string {
	t.Helper()
	programs := os.Getenv(harness.ProgramsEnv)
	require.NotEmpty(t, programs, `%s is not set: run "make e2e"`, harness.ProgramsEnv)
	return filepath.Join(programs, name)
}

// execute runs the program at path. It has the environment of the tests but for WHERRY_*, which would be
// configuration.
func execute(t *testing.T, dir, path string, args ...string) ran {
	t.Helper()
	return executeWith(t, nil, dir, path, args...)
}

// executeWith is execute with more variables in the environment.
func executeWith(t *testing.T, env []string, dir, path string, args ...string) ran {
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
	cmd.Env = append(append(cmd.Env, "COSIGN_PASSWORD="+password), env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	r := ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	logs.add(t, fmt.Sprintf("%s %s\nexit %d\n%s%s", filepath.Base(path), strings.Join(args, " "), r.code, r.stderr, r.stdout))
	return r
}

// logs is what programs have said.
var logs = transcript{said: map[*testing.T][]string{}}

// transcript keeps what the programs of each test have said, for the case that it fails. A long log hides the failure, so
// only the last programs are shown in full.
type transcript struct {
	mu   sync.Mutex
	said map[*testing.T][]string
}

// shownInFull is the number of programs of a failed test whose output is shown, the last ones.
const shownInFull = 6

func (l *transcript) add(t *testing.T, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.said[t]; !known {
		t.Cleanup(func() { l.show(t) })
	}
	l.said[t] = append(l.said[t], text)
}

func (l *transcript) show(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.said[t]
	delete(l.said, t)
	if !t.Failed() {
		return
	}
	for i, text := range said {
		if i < len(said)-shownInFull {
			lines := strings.SplitN(text, "\n", 3)
			text = strings.Join(lines[:min(2, len(lines))], ": ")
		}
		t.Log(text)
	}
}
