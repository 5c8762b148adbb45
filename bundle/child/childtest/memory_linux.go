package childtest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Memory measures until peak is called. Peak returns the bytes by which the memory of this process has grown at most, and those that
// all child processes had together at most. Both are 0 on systems other than Linux, and where the kernel forbids to measure.
func Memory(t testing.TB) (peak func() (own, children int64)) {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM begins again
	began := status("/proc/self")["VmRSS"]
	stop, stopped, most := make(chan struct{}), make(chan struct{}), int64(0)
	go func() {
		defer close(stopped)
		for {
			sum := int64(0)
			for _, dir := range childDirs() {
				sum += status(dir)["VmHWM"]
			}
			most = max(most, sum)
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() (own, children int64) {
		close(stop)
		<-stopped
		return max(status("/proc/self")["VmHWM"]-began, 0), most
	}
}

// status returns the bytes in the status of the process with this folder; none if it has ended.
func status(dir string) map[string]int64 {
	data, _ := os.ReadFile(filepath.Join(dir, "status"))
	found := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) == 3 && words[2] == "kB" {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			found[strings.TrimSuffix(words[0], ":")] = n << 10
		}
	}
	return found
}

func children() int { return len(childDirs()) }

// childDirs returns the folders of this process's children below /proc.
func childDirs() (dirs []string) {
	self := []byte(strconv.Itoa(os.Getpid()))
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		stat, _ := os.ReadFile(name) // a process that has ended has none
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && bytes.Equal(fields[1], self) { // of the state and the parent, after the name
			dirs = append(dirs, filepath.Dir(name))
		}
	}
	return dirs
}
