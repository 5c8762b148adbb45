package child

import (
	"os/exec"
	"syscall"
	"time"
)

// OwnGroup keeps the console's interrupts from cmd.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// ProcessorTime returns the time that processors have worked for this process; zero where that is not known.
func ProcessorTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, ended, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &ended, &kernel, &user) != nil {
		return 0
	}
	ticks := func(t syscall.Filetime) time.Duration { // of 100 ns
		return time.Duration(int64(t.HighDateTime)<<32+int64(t.LowDateTime)) * 100
	}
	return ticks(kernel) + ticks(user)
}
