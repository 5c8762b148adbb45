//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// followerTime is what an agent gets to start, and to make a pass, on a machine that is busy.
const followerTime = 3 * time.Minute

// follower is an agent that runs, and asks the registry for nothing by itself after its first pass. Its adapter is
// directory.
type follower struct {
	agent.Client
	tb  testing.TB
	cmd *exec.Cmd
	log *bytes.Buffer // to be read when it has ended
}

// place is the location of an agent, and its stream.
type place struct {
	registry    string // oci://…; empty where bundles come by import only
	clusterType string // of environment dev
	key         string // the file with the key of releases
	state       string // its state folder; the applied files are beside it
	// start, where it is set, starts the process in a place of its own.
	start func(*exec.Cmd) error
	env   []string
	more  []string // flags
	// engines are the flags of other adapters, in place of those of directory.
	engines []string
}

// applied is the folder that the assignments are applied to.
func (p place) applied() string { return p.state + "-applied" }

func (p place) flags() []string {
	engines := p.engines
	if engines == nil {
		engines = []string{"--adapter", "directory", "--directory-root", p.applied()}
	}
	var registry []string
	if p.registry != "" {
		registry = []string{"--registry", p.registry}
	}
	return replaced(slices.Concat(registry, []string{
		"--environment", "dev", "--cluster-type", p.clusterType, "--key", p.key, "--state-dir", p.state,
	}, engines), p.more)
}

// follow starts an agent and returns when it answers.
func follow(tb testing.TB, p place) *follower {
	tb.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry-agent"), replaced([]string{"run", "--interval", "24h"}, p.flags())...)
	log := &bytes.Buffer{}
	cmd.Env, cmd.Stderr = append(os.Environ(), p.env...), log
	if p.start == nil {
		p.start = (*exec.Cmd).Start
	}
	require.NoError(tb, p.start(cmd))
	f := &follower{agent.NewClient(p.state), tb, cmd, log}
	tb.Cleanup(f.stop)
	require.Eventually(tb, func() bool {
		_, err := f.Status(tb.Context())
		return err == nil
	}, followerTime, 10*time.Millisecond)
	return f
}

// stop ends the agent in order, unless it has ended.
func (f *follower) stop() {
	f.tb.Helper()
	if f.cmd.ProcessState != nil {
		return
	}
	require.NoError(f.tb, f.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(f.tb, f.cmd.Wait(), f.log.String())
}

// kill ends it as a power cut would.
func (f *follower) kill() {
	f.tb.Helper()
	require.NoError(f.tb, f.cmd.Process.Kill())
	require.Error(f.tb, f.cmd.Wait())
}

// sync has the agent make a pass, which has to end well.
func (f *follower) sync() {
	f.tb.Helper()
	require.NoError(f.tb, f.trySync())
}

func (f *follower) trySync() error {
	r, err := f.Sync(f.tb.Context(), followerTime)
	switch {
	case err != nil:
		return err
	case r.Error != "":
		return errors.New(r.Error)
	case r.Status.State != bundle.Compliant:
		return fmt.Errorf("%s: %v", r.Status.State, r.Status.Items)
	}
	return nil
}

// syncUntilDone has the agent make passes until one ends well.
func (f *follower) syncUntilDone() {
	f.tb.Helper()
	for end := time.Now().Add(2 * followerTime); ; time.Sleep(200 * time.Millisecond) {
		err := f.trySync()
		if err == nil {
			return
		}
		require.True(f.tb, time.Now().Before(end), err)
	}
}
