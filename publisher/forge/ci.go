package forge

import (
	"strconv"
	"strings"
)

// Run is what a CI system says about the run that this process is a part of.
type Run struct {
	URL    string // of the repository
	Kind   Kind
	Number int    // of the change request that the run is for; zero for a run of a branch
	Commit string // that is checked out; for GitHub's pull requests a merge that is in no branch, see [ChangeRequest.Head]
}

// RunOf reads the variables of GitHub Actions, Gitea and Forgejo Actions, GitLab CI and Azure Pipelines from an environment
// such as os.Getenv. It returns false outside all of them.
func RunOf(getenv func(string) string) (Run, bool) {
	r := Run{}
	number := ""
	switch {
	case getenv("GITHUB_ACTIONS") == "true": // GitHub Actions, "Variables reference"; the others set the same
		r = Run{URL: getenv("GITHUB_SERVER_URL") + "/" + getenv("GITHUB_REPOSITORY"), Kind: GitHub, Commit: getenv("GITHUB_SHA")}
		if getenv("GITEA_ACTIONS") == "true" || getenv("FORGEJO_ACTIONS") == "true" {
			r.Kind = Gitea
		}
		if rest, ok := strings.CutPrefix(getenv("GITHUB_REF"), "refs/pull/"); ok {
			number, _, _ = strings.Cut(rest, "/")
		}
	case getenv("GITLAB_CI") == "true": // GitLab CI/CD, "Predefined CI/CD variables reference"
		r = Run{URL: getenv("CI_PROJECT_URL"), Kind: GitLab, Commit: getenv("CI_COMMIT_SHA")}
		if target := getenv("CI_MERGE_REQUEST_PROJECT_URL"); target != "" {
			r.URL = target
		}
		number = getenv("CI_MERGE_REQUEST_IID")
	case getenv("TF_BUILD") == "True": // Azure Pipelines, "Use predefined variables"
		r = Run{URL: getenv("BUILD_REPOSITORY_URI"), Kind: Azure, Commit: getenv("BUILD_SOURCEVERSION")}
		number = getenv("SYSTEM_PULLREQUEST_PULLREQUESTID")
	default:
		return r, false
	}
	if n, err := strconv.Atoi(number); err == nil && n > 0 {
		r.Number = n
	}
	return r, true
}
