//go:build unix

package freeze

import (
	"os/exec"
	"syscall"
)

// inOwnGroup has all that cmd starts end with it when its context does, and no signal of a terminal reach it.
func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
