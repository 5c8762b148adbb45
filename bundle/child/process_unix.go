//go:build unix

package child

import (
	"os/exec"
	"syscall"
	"time"
)

// OwnGroup gives cmd, made by exec.CommandContext, a process group, which ends as a whole with the context or with this process.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// ProcessorTime returns the time that processors have worked for this process; zero where that is not known.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
