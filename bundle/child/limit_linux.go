package child

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that starts it ends, which is with the program.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// limitData bounds the process's data to what it has now and more bytes. The address space as a whole would be no measure:
// Go reserves more than it uses.
func limitData(more int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "VmData:" {
			continue
		}
		if held, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			most := uint64(held<<10 + more)
			_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most}) // else Bound looks by itself
		}
	}
}
