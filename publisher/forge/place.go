package forge

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Kind is a kind of forge.
type Kind string

// The forges that can be talked to. Forgejo speaks the API of Gitea, and GitHub Enterprise that of GitHub.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	Gitea  Kind = "gitea"
	Azure  Kind = "azure"
)

// Kinds lists the kinds of forges.
func Kinds() []Kind { return []Kind{GitHub, GitLab, Gitea, Azure} }

// ParseKind returns the kind of that name. It accepts "forgejo" for Gitea.
func ParseKind(name string) (Kind, error) {
	if name == "forgejo" {
		return Gitea, nil
	}
	if !slices.Contains(Kinds(), Kind(name)) {
		return "", fmt.Errorf("unknown forge %q (known: github, gitlab, gitea, forgejo, azure)", name)
	}
	return Kind(name), nil
}

// Place is the place of a repository at a forge. It holds no credentials.
type Place struct {
	Kind Kind
	// Web is the URL of the repository for people.
	Web string
	// API is the URL that the API's paths begin with.
	API string
	// Owner is the user, organisation or group, with groups inside it at GitLab. At Azure DevOps it is the project.
	Owner string
	// Name is the repository's name.
	Name string

	token string // of the URL
	user  string
	named bool // the caller says the kind; else the host's name does
}

// String returns the place as messages show it.
func (p Place) String() string { return p.Web }

// CloneURL returns the URL by which git reaches the repository without being sent elsewhere. GitLab redirects to a name that
// ends in .git, and a redirect is not followed with a login.
func (p Place) CloneURL(repository string) string {
	if u, err := url.Parse(repository); err == nil && p.Kind == GitLab && (u.Scheme == "https" || u.Scheme == "http") && !strings.HasSuffix(u.Path, ".git") {
		return strings.TrimRight(repository, "/") + ".git"
	}
	return repository
}

type knownHost struct {
	name string
	kind Kind
}

// hosts are the well-known forges; "*" stands for any name before the rest.
var hosts = []knownHost{
	{"github.com", GitHub},
	{"ssh.github.com", GitHub},
	{"gitlab.com", GitLab},
	{"altssh.gitlab.com", GitLab},
	{"dev.azure.com", Azure},
	{"ssh.dev.azure.com", Azure},
	{"*.visualstudio.com", Azure},
	{"codeberg.org", Gitea},
	{"gitea.com", Gitea},
	{"*.ghe.com", GitHub},
}

// wellKnown returns the kind of a forge that the public knows by its host.
func wellKnown(host string) (Kind, bool) {
	i := slices.IndexFunc(hosts, func(h knownHost) bool {
		rest, pattern := strings.CutPrefix(h.name, "*")
		return host == h.name || pattern && strings.HasSuffix(host, rest)
	})
	if i < 0 {
		return "", false
	}
	return hosts[i].kind, true
}

// kindOf returns the kind of forge at a host: a well-known one, or one whose name begins with that of its program, as in
// gitlab.example.com.
func kindOf(host string) (Kind, bool) {
	host = strings.ToLower(host)
	if kind, ok := wellKnown(host); ok {
		return kind, true
	}
	for _, k := range []string{"github", "gitlab", "gitea", "forgejo"} {
		if strings.HasPrefix(host, k+".") {
			kind, err := ParseKind(k)
			return kind, err == nil
		}
	}
	return "", false
}

// PlaceOf returns the place of the repository that git reaches at a URL, over https, http or ssh. Without kind, the host's
// name has to say it; the error wraps [ErrUnknownKind] if it does not. Errors repeat no credentials.
func PlaceOf(repository string, kind Kind) (Place, error) {
	if err := gitrepo.CheckURL(repository); err != nil {
		return Place{}, err
	}
	u, err := webURL(repository)
	if err != nil {
		return Place{}, fmt.Errorf("%s: %w", gitrepo.Redact(repository), err)
	}
	named := kind != ""
	if !named {
		known := false
		if kind, known = kindOf(u.Hostname()); !known {
			return Place{}, fmt.Errorf("%s: %w: the name of the host does not say it", gitrepo.Redact(repository), ErrUnknownKind)
		}
	}
	p := Place{Kind: kind, named: named}
	p.user, p.token = login(u.User, kind)
	u.User = nil
	parts := strings.Split(strings.Trim(strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), ".git"), "/"), "/")
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil || parts[i] == "" || parts[i] == ".." || parts[i] == "." {
			return Place{}, fmt.Errorf("%s: no repository is named", gitrepo.Redact(repository))
		}
	}
	if err := p.locate(u, parts); err != nil {
		return Place{}, fmt.Errorf("%s: %w", gitrepo.Redact(repository), err)
	}
	return p, nil
}

// login returns the user and token of a URL. A user alone is a token if it is long, since forges take tokens there too;
// Azure DevOps writes the organization there.
func login(info *url.Userinfo, k Kind) (user, token string) {
	if info == nil {
		return "", ""
	}
	token, both := info.Password()
	if both && token != "x-oauth-basic" && token != "" {
		return info.Username(), token
	}
	if len(info.Username()) >= 20 && k != Azure {
		return "", info.Username()
	}
	return "", ""
}

// webURL turns what git takes into the URL of the repository over HTTP.
func webURL(repository string) (*url.URL, error) {
	if !gitrepo.HasScheme(repository) { // user@host:path, as ssh has it
		host, path, found := strings.Cut(repository, ":")
		if !found || !gitrepo.IsURL(repository) {
			return nil, errors.New("a folder is at no forge")
		}
		_, host, _ = strings.Cut("@"+host, "@")
		return &url.URL{Scheme: "https", Host: host[strings.LastIndexByte(host, '@')+1:], Path: "/" + path}, nil
	}
	u, err := url.Parse(repository)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	switch u.Scheme {
	case "http", "https":
		return &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User, Path: u.Path, RawPath: u.RawPath}, nil
	case "ssh":
		return &url.URL{Scheme: "https", Host: u.Hostname(), Path: u.Path, RawPath: u.RawPath}, nil
	}
	return nil, errors.New("a folder is at no forge")
}

// HostOf returns the host that git reaches at a URL, with its port; empty if it is none.
func HostOf(repository string) string {
	u, err := webURL(repository)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// locate fills in the rest from the parts of the repository's path.
func (p *Place) locate(u *url.URL, parts []string) error {
	if p.Kind == Azure {
		return p.locateAzure(u, parts)
	}
	if len(parts) < 2 {
		return errors.New("no repository is named: OWNER/REPOSITORY is wanted")
	}
	switch u.Host { // names that only ssh uses
	case "ssh.github.com":
		u.Host = "github.com"
	case "altssh.gitlab.com":
		u.Host = "gitlab.com"
	}
	last := len(parts) - 1
	p.Name = parts[last]
	root := *u
	root.RawPath = ""
	switch p.Kind {
	case GitLab: // groups lie in groups
		p.Owner, root.Path = strings.Join(parts[:last], "/"), ""
		p.API = root.String() + "/api/v4" // GitLab REST API, "Authentication" and "Request requirements"
	case Gitea: // may be served below a path
		p.Owner, root.Path = parts[last-1], pathOf(parts[:last-1])
		p.API = root.String() + "/api/v1" // Gitea, "API Usage"
	case GitHub:
		p.Owner, root.Path = parts[last-1], pathOf(parts[:last-1])
		switch {
		case u.Host == "github.com":
			p.API = "https://api.github.com"
		case strings.HasSuffix(u.Host, ".ghe.com"): // GitHub Enterprise Cloud with data residency
			p.API = "https://api." + u.Host
		default:
			p.API = root.String() + "/api/v3" // GitHub Enterprise Server, "Using the REST API"
		}
	}
	p.Web = root.String() + "/" + p.Owner + "/" + p.Name
	return nil
}

func pathOf(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return "/" + strings.Join(parts, "/")
}

// locateAzure reads ORGANIZATION/PROJECT/_git/REPOSITORY, and v3/ORGANIZATION/PROJECT/REPOSITORY of ssh. A server of one's
// own has a collection in place of the organization, maybe below a path.
func (p *Place) locateAzure(u *url.URL, parts []string) error {
	wanted := errors.New("ORGANIZATION/PROJECT/_git/REPOSITORY is wanted")
	if u.Host == "ssh.dev.azure.com" || strings.HasPrefix(u.Host, "vs-ssh.") {
		if len(parts) != 4 || parts[0] != "v3" {
			return wanted
		}
		u.Host, parts = "dev.azure.com", []string{parts[1], parts[2], "_git", parts[3]}
	}
	i := slices.Index(parts, "_git")
	if i < 0 || i != len(parts)-2 {
		return wanted
	}
	p.Name = parts[i+1]
	before := parts[:i]
	inName := strings.HasSuffix(u.Host, ".visualstudio.com") // the organization is in the host's name
	switch {
	case inName && (len(before) == 0 || len(before) == 1 && before[0] == "DefaultCollection"), !inName && len(before) == 1:
		p.Owner = p.Name // the repository that a project begins with
	case len(before) > 0:
		p.Owner, before = before[len(before)-1], before[:len(before)-1]
	default:
		return wanted
	}
	root := *u
	root.Path, root.RawPath = pathOf(before), ""
	p.API = root.String()
	p.Web = p.API + "/" + url.PathEscape(p.Owner) + "/_git/" + url.PathEscape(p.Name)
	return nil
}

// ownAPI returns the URL of an API that an option gives. A token must not leave for another host.
func ownAPI(p Place, api string) (string, error) {
	u, err := url.Parse(strings.TrimRight(api, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("the URL of the API must be http(s)://HOST/PATH")
	}
	for _, own := range []string{p.Web, p.API} {
		if o, err := url.Parse(own); err == nil && o.Host == u.Host && (o.Scheme == u.Scheme || u.Scheme == "https") {
			return u.String(), nil
		}
	}
	return "", fmt.Errorf("the API at %s is not on the host of %s, so its token is not sent there", u.Host, p)
}
