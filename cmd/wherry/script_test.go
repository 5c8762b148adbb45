package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-dev/wherry/cmd/internal/agentcmd"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestMain(m *testing.M) {
	config := filepath.Join("etc", "agent.yaml") // of the script's folder, not of the machine
	if at := os.Getenv(clockVariable); at != "" {
		cli.SetTime(at)
	}
	command := func(args ...string) int {
		root, kinds := newRootCommand(), failure.Everywhere
		if args[0] == agentProgram {
			root, kinds = agentcmd.Program(config), agentcmd.Kinds
		}
		root.SetArgs(args[1:])
		flags.OpenKey = openScriptKey
		return profiled(func() int { return cli.Main(root, kinds) })
	}
	switch name := filepath.Base(os.Args[0]); {
	case os.Getenv(workerVariable) == "misbehaving":
		work(misbehave)
		os.Exit(0)
	case os.Getenv(workerVariable) != "":
		work(command)
		os.Exit(0)
	case name == program, name == agentProgram:
		os.Exit(command(append([]string{name}, os.Args[1:]...)...))
	}
	os.Unsetenv("GOTMPDIR") // scripts work where tests do, which may be in memory, and not where programs are built
	testscript.Main(withPrograms{m}, map[string]func(){"hubload": func() { os.Exit(hubload.Main()) }})
}

// workerVariable makes this program a worker, which runs one command after another for a script.
const workerVariable = "WHERRY_TEST_WORKER"

var leftBehind []*os.File

// misbehave is a command of a worker, for the test of workers, that leaves behind what its first argument says.
func misbehave(args ...string) int {
	dir, _ := os.Getwd()
	fmt.Printf("%s in %s: %s %s\n", strings.Join(args, " "), filepath.Base(dir), os.Getenv("WORD"), os.Getenv("OTHER"))
	fmt.Fprintln(os.Stderr, "and more")
	switch args[0] {
	case "goroutine":
		go func() { select {} }()
	case "file":
		for range 50 { // some are forgiven
			r, w, _ := os.Pipe()
			leftBehind = append(leftBehind, r, w)
		}
	case "environment":
		os.Setenv("OTHER", "left")
		os.Chdir("/")
	case "panic":
		panic("no reason")
	case "exit":
		os.Exit(7)
	case "hang":
		select {}
	}
	return 3
}

// The programs that scripts run.
const program, agentProgram = "wherry", "wherry-agent"

// programs is the folder that has them, and the examples.
var programs string

// withPrograms runs the tests with this test program under the names of the programs, in the path. testscript.Main would
// do so as well, and take the names of commands of scripts for these processes, which are ours.
type withPrograms struct{ m *testing.M }

func (p withPrograms) Run() int {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if programs, err = os.MkdirTemp(filepath.Dir(self), "programs"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(programs)
	// The examples lie in no git repository there, so that no release has a commit of ours.
	if err := gittest.CopyKnown(filepath.Join(programs, "examples"), "../../examples"); err != nil {
		panic(err)
	}
	for _, name := range []string{program, agentProgram} {
		if err := os.Link(self, filepath.Join(programs, name)); err != nil {
			panic(err)
		}
	}
	os.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if !isSet("test.parallel") { // scripts wait for their servers as long as they compute
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	defer endWorkers()
	return p.m.Run()
}

// isSet reports whether a flag is on the command line.
func isSet(name string) (set bool) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// TestScripts runs the scripts of testdata/script, each in a folder of its own, with the command wherry,
// those that other files describe, and seven more:
//
//	wherry ARGS…, wherry-agent ARGS…
//	                                runs one of them to its end, in one worker process for all of the script. What
//	                                is killed, goes on beside others or has a terminal takes a process: exec wherry ARGS…
//	undigested wherry ARGS…         does so and takes no digests: of a platform that has a random key, or was digested before
//	postgres VAR                    makes a database on a PostgreSQL server; $VAR is its URL
//	exit N COMMAND ARGS…            runs a command, which must end with this exit code
//	gitcommit REPO BRANCH DIR VAR   commits DIR to a bare repository, made if need be; $VAR is the commit
//	gitworktree DIR BRANCH VAR      commits all of DIR to the repository in it, made if need be; $VAR is the commit
//	expand FILE                     replaces $VARIABLES in a file
//
// $EXAMPLES is a copy of the project's folder of examples, and $SOURCE the project's folder. With -update, the files that scripts compare with are rewritten.
func TestScripts(t *testing.T) {
	params := scriptParams(t)
	params.Dir = "testdata/script"
	list, setup := newDigestList(t), params.Setup
	t.Cleanup(func() { list.check(t) })
	params.Setup = func(env *testscript.Env) error {
		one := env.T().(testing.TB)
		env.Values[digestsKey{}] = &scriptDigests{list: list, d: newDigester(one), seen: map[string]bool{}}
		one.Cleanup(func() {
			if !one.Failed() {
				list.complete("script/" + filepath.Base(one.Name()) + "/")
			}
		})
		return setup(env)
	}
	testscript.Run(t, params)
}

// scriptParams is what all scripts have in common.
func scriptParams(t *testing.T) testscript.Params {
	return testscript.Params{
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			source, err := filepath.Abs("../..")
			env.Setenv("SOURCE", source)
			env.Setenv("EXAMPLES", filepath.Join(programs, "examples"))
			env.Setenv("WHERRY_CASES", os.Getenv("WHERRY_CASES"))
			env.Setenv("GOGC", "off") // a thousand processes live for a moment each, and a fourth of that is garbage collection
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			for _, of := range []string{"AUTHOR", "COMMITTER"} { // so that a commit is the same in each run
				env.Setenv("GIT_"+of+"_DATE", digestsTime)
			}
			env.Values[tokenServicesKey{}] = new(tokenServices)
			ws := &workers{program: filepath.Join(programs, program)}
			if end, ok := t.Deadline(); ok {
				ws.deadline = end.Add(-time.Minute)
			}
			env.Values[workersKey{}] = ws
			env.Defer(ws.close)
			env.Setenv("DOCKER_CONFIG", filepath.Join(env.WorkDir, "home", ".docker"))
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": wantExit, "gitcommit": gitCommit, "gitworktree": gitWorkTree, "expand": expand, "fakeagent": fakeAgent,
			"answering": answering, "proxying": proxying, "keyless": keyless, "keypair": new(keyPairs).copy, "release": release,
			"tokenservice": tokenService, "secrets": secrets, "forge": forgeCommand(t),
			program: runProgram(program), agentProgram: runProgram(agentProgram), "undigested": undigested,
			"postgres": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: postgres VAR")
				}
				ts.Setenv(args[0], pgtest.URL(t))
			},
		},
		Condition: func(condition string) (bool, error) {
			switch condition {
			case "postgres":
				return pgtest.Installed(), nil
			case "cases":
				return os.Getenv("WHERRY_CASES") != "", nil
			}
			return false, fmt.Errorf("unknown condition %s", condition)
		},
	}
}

var (
	update    = flag.Bool("update", false, "rewrite golden files")
	inProcess = flag.Bool("worker", haveWorkers, "run the commands of a script in one worker process, and not each in its own")
)

type (
	workersKey struct{}
	digestsKey struct{}
)

// runProgram is a command of scripts that runs the program of that name.
func runProgram(name string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		code := runToEnd(ts, name, args...)
		switch {
		case neg && code == 0:
			ts.Fatalf("unexpected command success")
		case !neg && code != 0:
			ts.Fatalf("unexpected command failure: exit code %d", code)
		}
	}
}

// runToEnd runs a command and returns its exit code. Where it is one of ours, that is in the script's worker, but for a
// command that reads something.
func runToEnd(ts *testscript.TestScript, name string, args ...string) (code int) {
	if len(args) > 0 && strings.HasPrefix(args[len(args)-1], "&") {
		ts.Fatalf("%s runs in the foreground: exec %s … &", name, name)
	}
	var env []string
	for _, v := range hidden(ts, "env").Seq2() {
		env = append(env, v.String())
	}
	reads := hidden(ts, "stdin").Len() > 0 || hidden(ts, "ttyin").Len() > 0
	switch ours := name == program || name == agentProgram; {
	case ours && *inProcess && !reads:
		stdout, stderr, worked, err := ts.Value(workersKey{}).(*workers).command(ts.MkAbs("."), append([]string{name}, args...), env)
		ts.Check(err)
		io.WriteString(ts.Stdout(), stdout)
		io.WriteString(ts.Stderr(), stderr)
		code = worked
	default:
		if err := ts.Exec(name, args...); err != nil {
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				ts.Fatalf("%v", err)
			}
			code = ended.ExitCode()
		}
	}
	if d, ok := ts.Value(digestsKey{}).(*scriptDigests); ok && name == program {
		d.after(ts, env, args)
	}
	return code
}

// undigested runs wherry, and scriptDigests does not take part.
func undigested(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || args[0] != program {
		ts.Fatalf("usage: undigested wherry ARGS…")
	}
	if d, ok := ts.Value(digestsKey{}).(*scriptDigests); ok {
		d.off = true
		defer func() { d.off = false }()
	}
	runProgram(program)(ts, neg, args[1:])
}

// hidden returns a field of a script that its type keeps to itself: there is no other way to what a command started by it
// would get. A version without the field panics.
func hidden(ts *testscript.TestScript, name string) reflect.Value {
	f, ok := reflect.TypeFor[testscript.TestScript]().FieldByName(name)
	if !ok {
		panic("testscript has no field " + name)
	}
	return reflect.ValueOf(ts).Elem().FieldByIndex(f.Index)
}

func wantExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit N COMMAND ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := runToEnd(ts, args[1], args[2:]...)
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func gitCommit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: gitcommit REPO BRANCH DIR VAR")
	}
	hash, err := gittest.Commit(ts.MkAbs(args[0]), args[1], ts.MkAbs(args[2]))
	ts.Check(err)
	ts.Setenv(args[3], hash)
}

func gitWorkTree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: gitworktree DIR BRANCH VAR")
	}
	hash, err := gittest.CommitWorkTree(ts.MkAbs(args[0]), args[1])
	ts.Check(err)
	ts.Setenv(args[2], hash)
}

func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	data := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(data), 0o644))
}
