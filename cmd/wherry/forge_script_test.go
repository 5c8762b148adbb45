package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
)

// forgeCommand returns the command forge of the scripts, which starts a forge and does what people do there:
//
//	forge start KIND               starts one; $FORGE is its repository's URL, $FORGE_LOGIN that with a login, $FORGE_GIT its
//	                               folder, $WRITER and $READER are tokens
//	forge close|merge N            closes or merges change request N
//	forge protect BRANCH           refuses pushes to a branch
//	forge commit BRANCH FILE TEXT  commits a file by hand; $COMMIT is the commit
//	forge fail ROUTE STATUS TIMES  answers requests that begin with ROUTE with this status; with half of the answer for 0
//	forge changes FILE             writes all change requests to a file
//	forge statuses COMMIT FILE     writes the statuses of a commit to a file
//	forge git FILE ARGS…           runs git in the repository and writes its output to a file
func forgeCommand(t *testing.T) func(ts *testscript.TestScript, neg bool, args []string) {
	var mu sync.Mutex
	running := map[string]*forgetest.Server{} // by URL
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: forge VERB ARGS…")
		}
		mu.Lock()
		defer mu.Unlock()
		if args[0] == "start" {
			s := forgetest.New(t, args[1])
			running[s.URL] = s
			for name, value := range map[string]string{"FORGE": s.URL, "FORGE_LOGIN": strings.Replace(s.URL, "://", "://robot:"+forgetest.Writer+"@", 1), "FORGE_GIT": s.Git, "WRITER": forgetest.Writer, "READER": forgetest.Reader} {
				ts.Setenv(name, value)
			}
			return
		}
		s := running[ts.Getenv("FORGE")]
		number, _ := strconv.Atoi(args[1])
		switch args[0] {
		case "close":
			s.Edit(number, func(c *forgetest.Change) { c.State = "closed" })
		case "merge":
			s.Merge(number)
		case "protect":
			s.Protect(args[1])
		case "commit":
			ts.Setenv("COMMIT", s.Commit(args[1], args[2], args[3]))
		case "fail":
			status, err := strconv.Atoi(args[2])
			ts.Check(err)
			times, err := strconv.Atoi(args[3])
			ts.Check(err)
			fault := forgetest.Fault{Route: args[1], Status: status, Half: status == 0, Body: `{"message":"said ` + forgetest.Writer + `"}`}
			if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
				fault.Header = http.Header{"Retry-After": {"0"}} // so that nothing sleeps
			}
			for range times {
				s.Fail(fault)
			}
		case "changes":
			ts.Check(writeJSON(ts.MkAbs(args[1]), s.Changes()))
		case "statuses":
			ts.Check(writeJSON(ts.MkAbs(args[2]), s.Statuses(args[1])))
		case "git":
			ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(s.RunGit(args[2:]...)+"\n"), 0o644))
		default:
			ts.Fatalf("forge does not know %s", args[0])
		}
	}
}

func writeJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644)
}
