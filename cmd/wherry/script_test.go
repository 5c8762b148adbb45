package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/e2e/hubload"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestMain(m *testing.M) {
	config := filepath.Join("etc", "agent.yaml") // of the script's folder, not of the machine
	os.Unsetenv("GOTMPDIR")                      // scripts work where tests do, which may be in memory, and not where programs are built
	command := func(args ...string) int {
		flags.OpenKey = openScriptKey
		return profiled(func() int { return run(args, config) })
	}
	testscript.Main(m, map[string]func(){
		"wherry":       func() { os.Exit(command(os.Args[1:]...)) },
		"wherry-agent": func() { os.Exit(command(append([]string{"agent"}, os.Args[1:]...)...)) }, // the same commands
		"hubload":      func() { os.Exit(hubload.Main()) },
	})
}

// TestScripts runs the scripts of testdata/script, each in a folder of its own, with the command wherry,
// those that other files describe, and five more:
//
//	postgres VAR                    makes a database on a PostgreSQL server; $VAR is its URL
//	exit N COMMAND ARGS…            runs a command, which must end with this exit code
//	gitcommit REPO BRANCH DIR VAR   commits DIR to a bare repository, made if need be; $VAR is the commit
//	gitworktree DIR BRANCH VAR      commits all of DIR to the repository in it, made if need be; $VAR is the commit
//	expand FILE                     replaces $VARIABLES in a file
//
// $EXAMPLES is the project's folder of examples. With -update, the files that scripts compare with are rewritten.
func TestScripts(t *testing.T) {
	params := scriptParams(t)
	params.Dir = "testdata/script"
	testscript.Run(t, params)
}

// scriptParams is what all scripts have in common.
func scriptParams(t *testing.T) testscript.Params {
	return testscript.Params{
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			examples, err := filepath.Abs("../../examples")
			env.Setenv("EXAMPLES", examples)
			env.Setenv("GOGC", "off") // a thousand processes live for a moment each, and a fourth of that is garbage collection
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Values[tokenServicesKey{}] = new(tokenServices)
			env.Setenv("DOCKER_CONFIG", filepath.Join(env.WorkDir, "home", ".docker"))
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": wantExit, "gitcommit": gitCommit, "gitworktree": gitWorkTree, "expand": expand, "fakeagent": fakeAgent,
			"answering": answering, "keyless": keyless, "keypair": new(keyPairs).copy, "release": release,
			"tokenservice": tokenService, "secrets": secrets, "forge": forgeCommand(t),
			"postgres": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: postgres VAR")
				}
				ts.Setenv(args[0], pgtest.URL(t))
			},
		},
		Condition: func(condition string) (bool, error) {
			if condition == "postgres" {
				return pgtest.Installed(), nil
			}
			return false, fmt.Errorf("unknown condition %s", condition)
		},
	}
}

var update = flag.Bool("update", false, "rewrite golden files")

func wantExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit N COMMAND ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
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
