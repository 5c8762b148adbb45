package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRunOfACISystem(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want Run
	}{
		"GitHub Actions, a pull request": {
			map[string]string{
				"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "a/b", "GITHUB_REF": "refs/pull/12/merge", "GITHUB_SHA": "c",
			},
			Run{URL: "https://github.com/a/b", Kind: GitHub, Number: 12, Commit: "c"},
		},
		"Gitea Actions, a branch": {
			map[string]string{
				"GITHUB_ACTIONS": "true", "GITEA_ACTIONS": "true", "GITHUB_SERVER_URL": "https://git.example.com", "GITHUB_REPOSITORY": "a/b", "GITHUB_REF": "refs/heads/pull/12",
			},
			Run{URL: "https://git.example.com/a/b", Kind: Gitea},
		},
		"GitLab CI, a merge request of a fork": {
			map[string]string{
				"GITLAB_CI": "true", "CI_PROJECT_URL": "https://gitlab.com/fork/b", "CI_MERGE_REQUEST_PROJECT_URL": "https://gitlab.com/a/b",
				"CI_MERGE_REQUEST_IID": "3", "CI_COMMIT_SHA": "c",
			},
			Run{URL: "https://gitlab.com/a/b", Kind: GitLab, Number: 3, Commit: "c"},
		},
		"Azure Pipelines": {
			map[string]string{
				"TF_BUILD": "True", "BUILD_REPOSITORY_URI": "https://dev.azure.com/o/p/_git/r", "SYSTEM_PULLREQUEST_PULLREQUESTID": "9", "BUILD_SOURCEVERSION": "c",
			},
			Run{URL: "https://dev.azure.com/o/p/_git/r", Kind: Azure, Number: 9, Commit: "c"},
		},
	} {
		got, found := RunOf(func(key string) string { return test.env[key] })
		require.True(t, found, name)
		require.Equal(t, test.want, got, name)
	}
	_, found := RunOf(func(string) string { return "" })
	require.False(t, found)
}
