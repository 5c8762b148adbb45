package forge

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Tokens are the tokens that a process was given, by the names of their environment variables, and the variables by which
// a CI system names its own server.
type Tokens map[string]string

// AnyToken is the variable for a token that is meant for the repository's forge, whatever its kind.
const AnyToken = "WHERRY_FORGE_TOKEN"

// tokenVariables lists the variables of each kind, the first before the others. That of a CI system comes last: a token
// that a person chose may do more.
var tokenVariables = map[Kind][]string{
	GitHub: {AnyToken, "GITHUB_TOKEN", "GH_TOKEN"},
	GitLab: {AnyToken, "GITLAB_TOKEN", "CI_JOB_TOKEN"},
	Gitea:  {AnyToken, "GITEA_TOKEN", "FORGEJO_TOKEN"},
	Azure:  {AnyToken, "AZURE_DEVOPS_TOKEN", "SYSTEM_ACCESSTOKEN"},
}

// serverVariables are set by CI systems to the URL of the forge that they belong to.
var serverVariables = []string{"GITHUB_SERVER_URL", "CI_SERVER_URL", "SYSTEM_COLLECTIONURI"}

// Variables lists the environment variables that may hold a token for a kind of forge, the first before the others.
func Variables(k Kind) []string { return slices.Clone(tokenVariables[k]) }

// TokensOf reads the tokens of all kinds from an environment, such as os.Getenv.
func TokensOf(getenv func(string) string) Tokens {
	tokens := Tokens{}
	for _, names := range append([][]string{serverVariables}, tokenVariables[GitHub], tokenVariables[GitLab], tokenVariables[Gitea], tokenVariables[Azure]) {
		for _, name := range names {
			if value := strings.TrimSpace(getenv(name)); value != "" {
				tokens[name] = value
			}
		}
	}
	return tokens
}

// Any reports whether there is a token.
func (t Tokens) Any() bool {
	for _, names := range tokenVariables {
		if slices.ContainsFunc(names, func(name string) bool { return t[name] != "" }) {
			return true
		}
	}
	return false
}

// credential is a token together with the way in which its forge wants it.
type credential struct{ variable, token string }

// choose returns the credential for a place. A token in the URL goes first: somebody wrote it there for this repository.
// Those of variables go only to a host that the public, the CI system or the caller vouches for, since the URL may come
// from an object that somebody else wrote.
func (t Tokens) choose(p Place) credential {
	if p.token != "" {
		return credential{token: p.token}
	}
	if !t.trusts(p) {
		return credential{}
	}
	for _, name := range tokenVariables[p.Kind] {
		if value := t[name]; value != "" {
			return credential{variable: name, token: value}
		}
	}
	return credential{}
}

// Withheld returns the variable with a token that is not sent to this place, since neither the public, the CI system nor the
// caller says that it is the forge that the token is for. It is empty if there is none, or if a token is used.
func (t Tokens) Withheld(p Place) string {
	if p.token != "" || t.trusts(p) {
		return ""
	}
	for _, name := range tokenVariables[p.Kind] {
		if t[name] != "" {
			return name
		}
	}
	return ""
}

func (t Tokens) trusts(p Place) bool {
	u, err := url.Parse(p.Web)
	if err != nil {
		return false
	}
	if kind, public := wellKnown(u.Hostname()); public {
		return kind == p.Kind && u.Scheme == "https"
	}
	return p.named || slices.ContainsFunc(serverVariables, func(name string) bool {
		own, err := url.Parse(t[name])
		return err == nil && own.Host != "" && own.Host == u.Host && own.Scheme == u.Scheme
	})
}

// Login returns the user and password with which git reaches the repository over HTTP, and none without a token.
func (t Tokens) Login(p Place) (user, password string) {
	c := t.choose(p)
	switch {
	case c.token == "":
		return "", ""
	case p.user != "" && p.token != "":
		return p.user, p.token
	case p.Kind == GitHub:
		return "x-access-token", c.token
	case c.variable == "CI_JOB_TOKEN":
		return "gitlab-ci-token", c.token
	}
	return "oauth2", c.token // GitLab's name for it; Gitea and Azure DevOps take any
}

// authorize adds the token to a request, as the forge's documentation has it.
func (c credential) authorize(k Kind, r *http.Request) {
	switch {
	case c.token == "":
	case k == GitLab && c.variable == "CI_JOB_TOKEN":
		r.Header.Set("JOB-TOKEN", c.token) // GitLab REST API, "Authentication", "Job tokens"
	case k == GitLab:
		r.Header.Set("PRIVATE-TOKEN", c.token) // the same, "Personal, project, and group access tokens"
	case k == Gitea:
		r.Header.Set("Authorization", "token "+c.token) // Gitea, "API Usage", "Authentication"
	case k == Azure && c.variable != "SYSTEM_ACCESSTOKEN":
		r.Header.Set("Authorization", "Basic "+basic(c.token)) // Azure DevOps, "Use personal access tokens"
	default:
		r.Header.Set("Authorization", "Bearer "+c.token) // GitHub REST API, "Authenticating"; Azure Pipelines, "System.AccessToken"
	}
}

func basic(token string) string { return base64.StdEncoding.EncodeToString([]byte(":" + token)) }

// Redact returns text without the token that is used for a place, in each form in which it travels.
func (t Tokens) Redact(p Place, text string) string {
	c := t.choose(p)
	if c.token == "" {
		return text
	}
	user, password := t.Login(p)
	for _, secret := range []string{
		c.token, url.QueryEscape(c.token), url.PathEscape(c.token), basic(c.token),
		base64.StdEncoding.EncodeToString([]byte(user + ":" + password)),
	} {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}
