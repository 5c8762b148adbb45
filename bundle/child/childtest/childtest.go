// Package childtest has what tests of programs with children share.
package childtest

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Main is the child of that name if the program's only argument says so, and runs the tests otherwise. It is the whole of a TestMain.
func Main(m *testing.M, name string, child func(stdin io.Reader, stdout io.Writer) (code int)) {
	if len(os.Args) == 2 && os.Args[1] == name {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// longest is the time in which what has been given up has to end, on a busy machine.
const longest = time.Minute

// Settled returns a function that waits until this process has no more goroutines and, on Linux, no more children than when Settled was
// called: nothing then works on. The test fails if that does not happen.
func Settled(t testing.TB) (wait func()) {
	goroutines, processes := runtime.NumGoroutine(), children()
	return func() {
		t.Helper()
		for deadline := time.Now().Add(longest); runtime.NumGoroutine() > goroutines || children() > processes; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines instead of %d, %d children instead of %d:\n%s", runtime.NumGoroutine(), goroutines, children(), processes, stacks[:runtime.Stack(stacks, true)])
			}
		}
	}
}

// WriteProgram writes a program, such as a shell script, that can be run at once. A child that another test starts while the file is
// open would have it open as well, and a program that somebody writes to cannot be run.
func WriteProgram(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
