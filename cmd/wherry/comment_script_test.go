package main

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
)

// TestCommentScripts runs the scripts of testdata/forge at each kind of forge, in the environment of its CI system for change
// request 1, which is open. There is one command beside those of TestScripts:
//
//	comments N    requires so many comments in the change request, and prints them
//
// $REQUEST is the URL of the change request, and $READER a token that may not write.
func TestCommentScripts(t *testing.T) {
	for _, kind := range []string{"github", "gitlab", "gitea", "azure"} {
		t.Run(kind, func(t *testing.T) {
			server := forgetest.New(t, kind)
			server.Commit("change", "a.yaml", "a: 1\n")
			require.Equal(t, 1, server.Add(forgetest.Change{Source: "change", Target: "dev", Title: "A change"}))
			params := scriptParams(t)
			params.Dir = "testdata/forge"
			setup := params.Setup
			params.Setup = func(env *testscript.Env) error {
				env.Setenv("WHERRY_FORGE_TOKEN", forgetest.Writer)
				env.Setenv("READER", forgetest.Reader)
				for name, value := range ciVariables(kind, server.URL) {
					env.Setenv(name, value)
				}
				return setup(env)
			}
			params.Cmds["comments"] = func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: comments N")
				}
				all := server.Changes()[0].Comments
				if want, err := strconv.Atoi(args[0]); err != nil || len(all) != want {
					ts.Fatalf("there are %d comments, want %s", len(all), args[0])
				}
				for _, c := range all {
					fmt.Fprintln(ts.Stdout(), c.Body)
				}
			}
			testscript.Run(t, params)
		})
	}
}

// ciVariables are those of a forge's CI system in a run for change request 1.
func ciVariables(kind, url string) map[string]string {
	switch kind {
	case "gitlab":
		return map[string]string{"GITLAB_CI": "true", "CI_PROJECT_URL": url, "CI_MERGE_REQUEST_IID": "1", "REQUEST": url + "/-/merge_requests/1"}
	case "azure":
		return map[string]string{"TF_BUILD": "True", "BUILD_REPOSITORY_URI": url, "SYSTEM_PULLREQUEST_PULLREQUESTID": "1", "REQUEST": url + "/pullrequest/1"}
	}
	root := url[:len(url)-len("/"+forgetest.Owner+"/"+forgetest.Repository)]
	all := map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": root, "GITHUB_REPOSITORY": forgetest.Owner + "/" + forgetest.Repository,
		"GITHUB_REF": "refs/pull/1/merge", "REQUEST": url + "/pull/1",
	}
	if kind == "gitea" {
		all["GITEA_ACTIONS"], all["REQUEST"] = "true", url+"/pulls/1"
	}
	return all
}
