package program

import (
	"bufio"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary an agent that starts a script again and again until it is killed:
// its folder and the script.
const childVariable = "WHERRY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if args := os.Getenv(childVariable); args != "" {
		folder, script, _ := strings.Cut(args, "\n")
		fmt.Println("begins")
		for {
			run, err := Start(folder, shell(script))
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println("started")
			run.Exit()
		}
	}
	os.Exit(m.Run())
}

func shell(script string) Command {
	return Command{Path: "sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Grace: 10 * time.Second}
}

func start(t *testing.T, folder string, c Command) *Run {
	t.Helper()
	run, err := Start(folder, c)
	require.NoError(t, err)
	t.Cleanup(run.Stop)
	return run
}

// says waits until the program has written the line, and returns the number before it.
func says(t *testing.T, folder, line string) int {
	t.Helper()
	number := 0
	require.Eventually(t, func() bool {
		log, err := LogTail(folder, 1<<10)
		require.NoError(t, err)
		for l := range strings.Lines(log) {
			if before, ok := strings.CutSuffix(l, " "+line+"\n"); ok {
				number, err = strconv.Atoi(before)
				return err == nil
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond)
	return number
}

func lives(pid int) bool {
	p, err := readProcess(pid)
	return err == nil && !p.gone
}

func requireGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.False(t, lives(pid), "process %d is there", pid)
	}
}

func requireNothingLeft(t *testing.T, folder string) {
	t.Helper()
	_, err := os.Stat(filepath.Join(folder, recordFile))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAProgramRunsByItself(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made")
	c := shell(`cat; pwd; echo "$1, $HOME"; ps -o sid= -o pgid= -p $$; echo $$; exit 7`)
	c.Args, c.Dir, c.Env = append(c.Args, "sh", "a b"), t.TempDir(), append(c.Env, "HOME=/nowhere")
	run := start(t, folder, c)
	require.Equal(t, Exit{Code: 7}, run.Exit())
	require.Equal(t, "exited with 7", run.Exit().String())
	log, err := LogTail(folder, 1<<10)
	require.NoError(t, err)
	lines := strings.Fields(log)
	require.Equal(t, []string{c.Dir, "a", "b,", "/nowhere"}, lines[:4], "stdin is empty")
	require.Equal(t, []string{lines[6], lines[6]}, lines[4:6], "session and group are its own")
	requireNothingLeft(t, folder)

	run.Stop()
	require.Equal(t, Exit{Code: 7}, run.Exit(), "what has ended is not stopped")
	start(t, folder, shell("echo second")).Exit()
	log, err = LogTail(folder, 4)
	require.NoError(t, err)
	require.Equal(t, "ond\n", log, "the log is that of the newest run")
}

func TestAMissingProgramIsAnError(t *testing.T) {
	_, err := Start(t.TempDir(), Command{Path: "no-such-program"})
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = Start("/proc/no-folder", shell("true"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestARecordThatCannotBeWrittenIsARunThatDoesNotBegin(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, recordFile+".new"), 0o700))
	_, err := Start(folder, shell("echo $$ begun"))
	require.ErrorIs(t, err, syscall.EISDIR)
	log, err := LogTail(folder, 1<<10)
	require.NoError(t, err)
	require.Empty(t, log)
}

func TestStopAndDeadlineEndAllThatWasStarted(t *testing.T) {
	const script = `sleep 600 & echo $! child; setsid sh -c 'echo $$ session; sleep 600; true' & wait`
	t.Run("stop", func(t *testing.T) {
		folder := t.TempDir()
		run := start(t, folder, shell(script))
		child, session := says(t, folder, "child"), says(t, folder, "session")
		require.True(t, lives(child))
		run.Stop()
		run.Stop()
		require.Equal(t, Exit{Code: -1, Cause: ErrStopped}, run.Exit())
		requireGone(t, child, session, run.id.PID)
		requireNothingLeft(t, folder)
	})
	t.Run("deadline", func(t *testing.T) {
		folder := t.TempDir()
		run := start(t, folder, shell(script))
		child, session := says(t, folder, "child"), says(t, folder, "session")
		run.watch(time.Millisecond)
		require.Equal(t, Exit{Code: -1, Cause: ErrDeadline}, run.Exit())
		requireGone(t, child, session, run.id.PID)
		requireNothingLeft(t, folder)
	})
	t.Run("deadline from the start", func(t *testing.T) {
		c := shell("sleep 600")
		c.Deadline = time.Millisecond
		require.Equal(t, Exit{Code: -1, Cause: ErrDeadline}, start(t, t.TempDir(), c).Exit())
	})
	t.Run("a program that does not want to", func(t *testing.T) {
		c, folder := shell(`trap "" TERM; sh -c 'trap "" TERM; echo $$ deaf; while :; do sleep 1; done' & wait; while :; do sleep 1; done`), t.TempDir()
		c.Grace = 100 * time.Millisecond
		run := start(t, folder, c)
		deaf := says(t, folder, "deaf")
		run.Stop()
		require.Equal(t, -1, run.Exit().Code)
		requireGone(t, deaf, run.id.PID)
	})
}

func TestWhatAProgramLeavesRunningAtItsEndStays(t *testing.T) {
	folder := t.TempDir()
	run := start(t, folder, shell(`sleep 600 & echo $! service; exit 0`))
	require.Equal(t, Exit{}, run.Exit())
	service := says(t, folder, "service")
	require.True(t, lives(service))
	start(t, folder, shell("true")).Exit()
	require.True(t, lives(service), "neither does the next run end it")
	require.NoError(t, syscall.Kill(service, syscall.SIGKILL))
}

func TestTheLogIsBounded(t *testing.T) {
	c, folder := shell(`i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo $i; done; sleep 600`), t.TempDir()
	c.LogBytes = 10 << 10
	start(t, folder, c)
	require.Eventually(t, func() bool {
		log, err := LogTail(folder, 1<<20)
		return err == nil && len(log) <= 10<<10 && strings.HasSuffix(log, "\n30000\n")
	}, time.Minute, 10*time.Millisecond)
}

func TestALogLosesNothingWhileItIsTrimmed(t *testing.T) {
	folder := t.TempDir()
	log, err := openLog(folder)
	require.NoError(t, err)
	defer log.Close()
	const last, limit = 50_000, 10 << 10
	written := make(chan error)
	go func() {
		for i := range last + 1 {
			if _, err := fmt.Fprintln(log, i); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for done := false; !done; {
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
		require.NoError(t, trim(log, limit))
	}
	info, err := log.Stat()
	require.NoError(t, err)
	require.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(2*limit), "on the disk")
	require.NoError(t, cut(log, limit))
	text, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines[1:] { // a part of the first may be gone
		require.Equal(t, strconv.Itoa(last-len(lines)+2+i), line)
	}
}

func TestTheAgentIsKilledAndTheProgramIsFound(t *testing.T) {
	folder := t.TempDir()
	child := killedAgent(t, folder, `sleep 600 & echo $! child; echo $$ leader; wait`, func() { says(t, folder, "leader") })
	leader, sleep := says(t, folder, "leader"), says(t, folder, "child")
	require.False(t, lives(child))
	require.True(t, lives(leader) && lives(sleep), "it outlives the agent")

	run := start(t, folder, shell("echo $$ next; sleep 600"))
	says(t, folder, "next")
	requireGone(t, leader, sleep)
	run.Stop()
	found, err := EndLeftover(folder, 0)
	require.NoError(t, err)
	require.False(t, found)
}

func TestTheLeaderIsGoneAndWhatItStartedIsFound(t *testing.T) {
	folder := t.TempDir()
	killedAgent(t, folder, `sleep 600 & echo $! child; echo $$ leader; wait`, func() { says(t, folder, "leader") })
	leader, sleep := says(t, folder, "leader"), says(t, folder, "child")
	require.NoError(t, syscall.Kill(leader, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !lives(leader) }, time.Minute, time.Millisecond)
	require.True(t, lives(sleep))

	found, err := EndLeftover(folder, 0)
	require.NoError(t, err)
	require.True(t, found)
	requireGone(t, sleep)
	requireNothingLeft(t, folder)
}

// An agent is killed at any moment around the start of a program: whatever has begun is found.
func TestNothingBeginsUnrecorded(t *testing.T) {
	folder := t.TempDir()
	for range 25 {
		log := filepath.Join(folder, logFile)
		require.NoError(t, os.WriteFile(log, nil, 0o600))
		killedAgent(t, folder, `echo $$ begun; exec sleep 600`, func() { time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond) })
		_, err := EndLeftover(folder, 0)
		require.NoError(t, err)
		requireNothingLeft(t, folder)
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		if before, ok := strings.CutSuffix(string(text), " begun\n"); ok {
			pid, err := strconv.Atoi(before)
			require.NoError(t, err)
			requireGone(t, pid)
		}
	}
}

// killedAgent starts an agent process, kills it after when returns, and returns its number.
func killedAgent(t *testing.T, folder, script string, when func()) int {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+folder+"\n"+script)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "begins\n", first)
	when()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	return cmd.Process.Pid
}

func TestAnotherProcessIsNeverEnded(t *testing.T) {
	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = ownSession()
	require.NoError(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	truth, err := identify(stranger.Process.Pid, newMark())
	require.NoError(t, err)

	tests := []struct {
		name  string
		wrong func(*identity)
	}{
		{"which has got the number later", func(id *identity) { id.Start-- }},
		{"which has the number since another boot", func(id *identity) { id.Boot = "another" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folder, id := t.TempDir(), truth
			test.wrong(&id)
			require.NoError(t, save(folder, record{identity: id}))
			found, err := EndLeftover(folder, 0)
			require.NoError(t, err)
			require.False(t, found)
			require.True(t, lives(truth.PID))
			requireNothingLeft(t, folder)
		})
	}
	t.Run("in a session whose leader has got the number later and has gone", func(t *testing.T) {
		folder := t.TempDir()
		leader := exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
		leader.SysProcAttr = ownSession()
		out, err := leader.Output()
		require.NoError(t, err)
		sleep, err := strconv.Atoi(strings.TrimSpace(string(out)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = syscall.Kill(sleep, syscall.SIGKILL) })
		id := truth
		id.PID = leader.Process.Pid
		require.NoError(t, save(folder, record{identity: id}))
		found, err := EndLeftover(folder, 0)
		require.NoError(t, err)
		require.False(t, found)
		require.True(t, lives(sleep))
	})
}

func TestADamagedRecordIsForAPerson(t *testing.T) {
	for _, data := range []string{"", "{", "{}", `{"pid":1}`, `{"pid":-1}`} {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, recordFile), []byte(data), 0o600))
		_, err := Start(folder, shell("true"))
		require.ErrorContains(t, err, recordFile+" is damaged")
	}
}
