//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

func leadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup asks the group that p leads to end, or kills it.
func endGroup(p *os.Process, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, sig) // nobody is left there, or it is gone with this
}
