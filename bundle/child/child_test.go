package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is one of the children of these tests where it is told to be one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && children[os.Args[1]] != nil {
		children[os.Args[1]]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var kept []any // what a child allocates

var children = map[string]func(){
	"environment": func() { fmt.Print(strings.Join(os.Environ(), "\n")) },
	"memory": func() {
		Bound(64<<20, time.Minute)
		for {
			kept = append(kept, bytes.Repeat([]byte("x"), 1<<20))
		}
	},
	"one large piece": func() {
		Bound(64<<20, time.Minute)
		kept = append(kept, bytes.Repeat([]byte("x"), 1<<30))
	},
	"stack": func() {
		Bound(64<<20, time.Minute)
		var deeper func(n int) int
		deeper = func(n int) int { return 1 + deeper(n+1) }
		fmt.Print(deeper(0))
	},
	"time": func() {
		Bound(64<<20, 100*time.Millisecond).Begin()
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
		}
	},
	"small pieces of work": func() {
		m := Bound(64<<20, 100*time.Millisecond)
		for range 5 {
			m.Begin()
			for end := ProcessorTime() + 40*time.Millisecond; ProcessorTime() < end; {
			}
			m.End()
		}
	},
	"panic": func() { panic("no reason") },
	"confined": func() {
		fmt.Println(Confine())
		_, opened := os.Open("/etc/passwd")
		_, created := os.Create("left")
		_, dialed := net.Dial("tcp", "127.0.0.1:1")
		started := exec.Command("/bin/true").Run()
		for _, err := range []error{opened, created, dialed, started} {
			fmt.Println(errors.Is(err, os.ErrPermission))
		}
		done := make(chan int) // the runtime still starts threads, collects garbage and sleeps
		go func() { runtime.LockOSThread(); runtime.GC(); time.Sleep(time.Millisecond); done <- 7 }()
		fmt.Println(<-done)
	},
	"wait": func() { fmt.Println("waiting"); time.Sleep(time.Hour) },
	"parent": func() {
		cmd := Command(context.Background(), Self("wait"))
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		time.Sleep(time.Hour)
	},
}

func run(t *testing.T, name string) (stdout string, verdict error) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := Command(t.Context(), Self(name))
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &Head{&stderr, 4 << 10}, t.TempDir()
	var exited *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exited) {
		require.NoError(t, err)
	}
	return out.String(), Verdict(cmd.ProcessState, stderr.String())
}

func TestAChildHasNoVariableOfItsParent(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "secret")
	out, err := run(t, "environment")
	require.NoError(t, err)
	if runtime.GOOS != "windows" { // whose programs do not start without SYSTEMROOT
		require.Equal(t, "GOMAXPROCS=1", out)
	}
	require.NotContains(t, out, "secret")
}

func TestTheEndsOfAChildAreToldApart(t *testing.T) {
	for name, want := range map[string]error{"memory": ErrMemory, "one large piece": ErrMemory, "stack": ErrMemory, "time": ErrCPU, "small pieces of work": nil} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, name)
			require.ErrorIs(t, err, want)
		})
	}
	_, err := run(t, "panic")
	require.EqualError(t, err, "exit status 2: panic: no reason")
	for _, known := range []error{ErrMemory, ErrCPU, ErrKilled} {
		require.NotErrorIs(t, err, known)
	}
}

func TestASignalIsNoVerdict(t *testing.T) {
	cmd := Command(t.Context(), Self("wait"))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.ErrorIs(t, Verdict(cmd.ProcessState, ""), ErrKilled)
}

func TestAHeadKeepsWhatComesFirst(t *testing.T) {
	var b bytes.Buffer
	h := &Head{&b, 5}
	for _, text := range []string{"one", "two", "three"} {
		n, err := io.WriteString(h, text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	require.Equal(t, "onetw", b.String())
}

// A pipe is copied by the ReadFrom of a writer that has one.
func TestTheOutputOfAProgramIsBounded(t *testing.T) {
	var b bytes.Buffer
	cmd := exec.Command("sh", "-c", "echo one; echo two")
	cmd.Stdout = &Head{&b, 5}
	require.NoError(t, Run(t.Context(), cmd))
	require.Equal(t, "one\nt", b.String())
}
