package forge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePlaceOfARepository(t *testing.T) {
	for _, test := range []struct {
		url  string
		kind Kind
		want string // KIND OWNER NAME API, or the error
	}{
		{url: "https://github.com/contoso/gitops", want: "github contoso gitops https://api.github.com"},
		{url: "https://github.com/contoso/gitops.git/", want: "github contoso gitops https://api.github.com"},
		{url: "git@github.com:contoso/gitops.git", want: "github contoso gitops https://api.github.com"},
		{url: "ssh://git@ssh.github.com:443/contoso/gitops.git", want: "github contoso gitops https://api.github.com"},
		{url: "https://contoso.ghe.com/edge/gitops", want: "github edge gitops https://api.contoso.ghe.com"},
		{url: "https://github.contoso.com/edge/gitops", want: "github edge gitops https://github.contoso.com/api/v3"},
		{url: "https://git.contoso.com:8443/edge/gitops", kind: GitHub, want: "github edge gitops https://git.contoso.com:8443/api/v3"},
		{url: "https://gitlab.com/contoso/edge/gitops.git", want: "gitlab contoso/edge gitops https://gitlab.com/api/v4"},
		{url: "https://git.contoso.com/a/b", kind: GitLab, want: "gitlab a b https://git.contoso.com/api/v4"},
		{url: "https://codeberg.org/contoso/gitops", want: "gitea contoso gitops https://codeberg.org/api/v1"},
		{url: "http://10.0.0.1:3000/git/contoso/gitops", kind: Gitea, want: "gitea contoso gitops http://10.0.0.1:3000/git/api/v1"},
		{url: "https://dev.azure.com/contoso/Edge%20Team/_git/gitops", want: "azure Edge Team gitops https://dev.azure.com/contoso"},
		{url: "https://contoso@dev.azure.com/contoso/edge/_git/gitops", want: "azure edge gitops https://dev.azure.com/contoso"},
		{url: "https://dev.azure.com/contoso/_git/gitops", want: "azure gitops gitops https://dev.azure.com/contoso"},
		{url: "git@ssh.dev.azure.com:v3/contoso/edge/gitops", want: "azure edge gitops https://dev.azure.com/contoso"},
		{url: "https://contoso.visualstudio.com/edge/_git/gitops", want: "azure edge gitops https://contoso.visualstudio.com"},
		{url: "https://contoso.visualstudio.com/DefaultCollection/edge/_git/gitops", want: "azure edge gitops https://contoso.visualstudio.com/DefaultCollection"},
		{url: "https://tfs.contoso.com/tfs/Main/edge/_git/gitops", kind: Azure, want: "azure edge gitops https://tfs.contoso.com/tfs/Main"},

		{url: "https://robot:secret@git.example.com/a/b", want: "https://git.example.com/a/b: unknown kind of forge: the name of the host does not say it"},
		{url: "https://robot:secret@github.com/a", want: "https://github.com/a: no repository is named: OWNER/REPOSITORY is wanted"},
		{url: "https://github.com/", want: "https://github.com/: no repository is named"},
		{url: "https://dev.azure.com/contoso/edge", want: "https://dev.azure.com/contoso/edge: ORGANIZATION/PROJECT/_git/REPOSITORY is wanted"},
		{url: "file:///srv/git", want: "file:///srv/git: a folder is at no forge"},
		{url: "/srv/git", want: "/srv/git: a folder is at no forge"},
		{url: "", want: "no repository is named"},
	} {
		p, err := PlaceOf(test.url, test.kind)
		got := strings.Join([]string{string(p.Kind), p.Owner, p.Name, p.API}, " ")
		if err != nil {
			got = err.Error()
		}
		require.Equal(t, test.want, got, test.url)
	}
}

func TestATokenGoesToItsOwnForgeAlone(t *testing.T) {
	const secret = "0123456789abcdef0123"
	for _, test := range []struct {
		name   string
		url    string
		kind   Kind
		tokens Tokens
		header string // NAME: VALUE
		login  string // of git
		held   string
	}{
		{name: "GitHub", url: "https://github.com/a/b", tokens: Tokens{"GITHUB_TOKEN": "t"}, header: "Authorization: Bearer t", login: "x-access-token:t"},
		{name: "GitLab", url: "https://gitlab.com/a/b", tokens: Tokens{"GITLAB_TOKEN": "t", "CI_JOB_TOKEN": "j"}, header: "Private-Token: t", login: "oauth2:t"},
		{name: "a job of GitLab", url: "https://gitlab.com/a/b", tokens: Tokens{"CI_JOB_TOKEN": "j"}, header: "Job-Token: j", login: "gitlab-ci-token:j"},
		{name: "Forgejo", url: "https://codeberg.org/a/b", tokens: Tokens{"FORGEJO_TOKEN": "t"}, header: "Authorization: token t", login: "oauth2:t"},
		{name: "Azure DevOps", url: "https://dev.azure.com/o/p/_git/r", tokens: Tokens{"AZURE_DEVOPS_TOKEN": "t"}, header: "Authorization: Basic OnQ=", login: "oauth2:t"},
		{name: "a pipeline of Azure", url: "https://dev.azure.com/o/p/_git/r", tokens: Tokens{"SYSTEM_ACCESSTOKEN": "s"}, header: "Authorization: Bearer s", login: "oauth2:s"},
		{name: "ours before the others", url: "https://github.com/a/b", tokens: Tokens{"GITHUB_TOKEN": "t", AnyToken: "w"}, header: "Authorization: Bearer w", login: "x-access-token:w"},
		{name: "one in the URL before all", url: "https://robot:u@github.com/a/b", tokens: Tokens{AnyToken: "w"}, header: "Authorization: Bearer u", login: "robot:u"},
		{name: "a user that is a token", url: "https://" + secret + "@github.com/a/b", header: "Authorization: Bearer " + secret, login: "x-access-token:" + secret},
		{name: "a user that is none", url: "https://robot@github.com/a/b"},
		{name: "another forge's", url: "https://github.com/a/b", tokens: Tokens{"GITLAB_TOKEN": "t"}},
		{name: "a host that calls itself a forge", url: "https://github.evil.example/a/b", tokens: Tokens{"GITHUB_TOKEN": "t"}, held: "GITHUB_TOKEN"},
		{name: "a host that the caller calls a forge", url: "https://git.example.com/a/b", kind: Gitea, tokens: Tokens{"GITEA_TOKEN": "t"}, header: "Authorization: token t", login: "oauth2:t"},
		{name: "the server of the CI system", url: "https://gitlab.example.com/a/b", tokens: Tokens{"CI_JOB_TOKEN": "j", "CI_SERVER_URL": "https://gitlab.example.com"}, header: "Job-Token: j", login: "gitlab-ci-token:j"},
		{name: "a well-known host in plain text", url: "http://github.com/a/b", tokens: Tokens{"GITHUB_TOKEN": "t"}, held: "GITHUB_TOKEN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := PlaceOf(test.url, test.kind)
			require.NoError(t, err)
			r := &http.Request{Header: http.Header{}}
			test.tokens.choose(p).authorize(p.Kind, r)
			header := ""
			for name, values := range r.Header {
				header = name + ": " + values[0]
			}
			require.Equal(t, test.header, header)
			user, password := test.tokens.Login(p)
			require.Equal(t, test.login, strings.Trim(user+":"+password, ":"))
			require.Equal(t, test.held, test.tokens.Withheld(p))
			require.NotContains(t, p.Web+p.API+p.String(), password+"@")
		})
	}
}

func TestAnAPIOfOnesOwnIsOnTheSameHost(t *testing.T) {
	for api, want := range map[string]string{
		"https://git.example.com/gitlab/api/v4/": "",
		"https://evil.example.com/api/v4":        "the API at evil.example.com is not on the host of https://git.example.com/gitlab/a/b, so its token is not sent there",
		"http://git.example.com/api":             "the API at git.example.com is not on the host of https://git.example.com/gitlab/a/b, so its token is not sent there",
		"git.example.com":                        "the URL of the API must be http(s)://HOST/PATH",
		"https://u:p@git.example.com":            "the URL of the API must be http(s)://HOST/PATH",
	} {
		_, err := New("https://git.example.com/gitlab/a/b", Options{Kind: GitLab, API: api})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
}

func TestMessagesAreFoundInEachFormOfError(t *testing.T) {
	for body, want := range map[string]string{
		`{"message":"Validation Failed","errors":[{"resource":"PullRequest","message":"No commits"}]}`: "Validation Failed: No commits",
		`{"message":["Another open merge request"]}`:                                                   "Another open merge request",
		`{"message":{"title":["is too long"]}}`:                                                        `{"title":["is too long"]}`,
		`{"error":"insufficient_scope","error_description":"more is needed"}`:                          "insufficient_scope: more is needed",
		`{"errors":["invalid"],"url":"x"}`:                                                             "invalid",
		`<html>`:                                                                                       "", `{"message":`: "", ``: "", `[]`: "", `null`: "",
	} {
		require.Equal(t, want, message([]byte(body)), body)
	}
}
