package publisher

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// location is what PLATFORM, --base and --workload name: a folder, or a state of a git repository.
type location struct {
	folder string // else repo is set
	repo   gitRef
	path   string // the folder inside repo or folder
}

// dir is the path of a folder.
func (l location) dir() string { return filepath.Join(l.folder, filepath.FromSlash(l.path)) }

// gitRef names a state of a repository: a commit if there is one, else the tip of a branch (or tag), else HEAD.
type gitRef struct {
	URL    string // a URL, host:path as ssh has it, or the path of a repository
	Branch string
	Commit string // 40 hexadecimal digits
}

var (
	scheme  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	scpLike = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?[A-Za-z0-9._-]{2,}:`)
)

// parseLocation reads FOLDER, URL, URL#BRANCH or URL#BRANCH:FOLDER. The path of a bare repository, and any
// path with #BRANCH, is a repository too.
func parseLocation(s string) (location, error) {
	if s == "" {
		return location{}, errors.New("an empty name is neither a folder nor a git URL")
	}
	if !isRemote(s) && exists(s) {
		if isBareRepository(s) {
			return location{repo: gitRef{URL: s}}, nil
		}
		return location{folder: s}, nil
	}
	repo, fragment, found := strings.Cut(s, "#")
	if !found && !isRemote(s) {
		return location{folder: s}, nil
	}
	branch, dir, _ := strings.Cut(fragment, ":")
	if found && branch == "" {
		return location{}, fmt.Errorf("%s: no branch after the #", redact(s))
	}
	l := location{repo: gitRef{URL: repo, Branch: branch}, path: dir}
	if plumbing.IsHash(branch) {
		l.repo.Branch, l.repo.Commit = "", branch
	}
	return l, checkURL(repo)
}

// String is the location as messages and positions show it: without credentials.
func (l location) String() string {
	if l.folder != "" {
		return filepath.ToSlash(l.dir())
	}
	s := l.repo.String()
	if p, err := cleanPath(l.path); err == nil && p != "." {
		s += ":" + p
	}
	return s
}

func (r gitRef) String() string {
	switch {
	case r.Commit != "":
		return redact(r.URL) + "#" + r.Commit[:min(len(r.Commit), 12)]
	case r.Branch != "":
		return redact(r.URL) + "#" + r.Branch
	}
	return redact(r.URL)
}

func isRemote(s string) bool {
	return scheme.MatchString(s) || scpLike.MatchString(s) && !exists(s)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// isBareRepository follows git's own rule: a HEAD, objects and refs.
func isBareRepository(dir string) bool {
	return exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "objects")) && exists(filepath.Join(dir, "refs"))
}

func checkURL(repo string) error {
	if repo == "" {
		return errors.New("no repository is named")
	}
	if !scheme.MatchString(repo) {
		return nil
	}
	u, err := url.Parse(repo)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // the text around it repeats the URL with its credentials
		}
		return fmt.Errorf("%s: not a URL: %w", redact(repo), err)
	}
	if !slices.Contains([]string{"file", "http", "https", "ssh"}, strings.ToLower(u.Scheme)) {
		return fmt.Errorf("%s: %q is not a way to reach a git repository: use https, http, ssh or file", redact(repo), u.Scheme)
	}
	return nil
}

// mirrors maps the beginnings of URLs to what stands in for them.
type mirrors map[string]string

// of returns what stands in for url: for its longest beginning that ends at the end of a name, with the
// rest behind it. A url without any is returned as it is.
func (m mirrors) of(url string) string {
	best := ""
	for beginning := range m {
		rest, ok := strings.CutPrefix(url, beginning)
		whole := rest == "" || rest == ".git" || strings.HasSuffix(beginning, "/") || strings.HasPrefix(rest, "/")
		if ok && whole && len(beginning) > len(best) {
			best = beginning
		}
	}
	rest := strings.TrimPrefix(url[len(best):], "/")
	switch {
	case best == "":
		return url
	case rest == "" || rest == ".git":
		return m[best]
	}
	return strings.TrimSuffix(m[best], "/") + "/" + rest
}

// redact takes credentials out of a URL: tokens stand in for user names as well as for passwords, and in queries.
func redact(s string) string {
	if !scheme.MatchString(s) {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		_, host, found := strings.Cut(s, "@")
		if !found {
			host = "…" // what cannot be parsed may be a password up to its end
		}
		return scheme.FindString(s) + host[strings.LastIndexByte(host, '@')+1:]
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// cleanPath turns a path field such as "./workloads", "workload/" or "" into a path for fs.Sub.
func cleanPath(p string) (string, error) {
	clean := path.Clean(strings.TrimLeft(p, "/"))
	if !filepath.IsLocal(clean) {
		return "", fmt.Errorf("path %q leads out of the repository", p)
	}
	return clean, nil
}
