package gitrepo

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// Ref names a state of a repository: a commit if there is one, else the tip of a branch (or tag), else HEAD.
type Ref struct {
	URL    string // a URL, host:path as ssh has it, or the path of a repository
	Branch string
	Commit string // 40 hexadecimal digits
}

var (
	scheme  = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	scpLike = lazyregexp.New(`^([A-Za-z0-9._-]+@)?[A-Za-z0-9._-]{2,}:`)
)

// String returns r as messages show it: without credentials.
func (r Ref) String() string {
	switch {
	case r.Commit != "":
		return Redact(r.URL) + "#" + r.Commit[:min(len(r.Commit), 12)]
	case r.Branch != "":
		return Redact(r.URL) + "#" + r.Branch
	}
	return Redact(r.URL)
}

// IsURL reports whether s has the form of a URL or of host:path, as ssh has it.
func IsURL(s string) bool { return scheme.MatchString(s) || scpLike.MatchString(s) }

// HasScheme reports whether s begins like a URL.
func HasScheme(s string) bool { return scheme.MatchString(s) }

// IsRemote reports whether s is a URL, and no file of this machine is called so.
func IsRemote(s string) bool {
	return scheme.MatchString(s) || scpLike.MatchString(s) && !exists(s)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// IsBare reports whether dir is a bare repository, by git's own rule: it has HEAD, objects and refs.
func IsBare(dir string) bool {
	return exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "objects")) && exists(filepath.Join(dir, "refs"))
}

// CheckURL returns an error unless repo can be the URL or path of a git repository. Its text repeats no credentials.
func CheckURL(repo string) error {
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
		return fmt.Errorf("%s: not a URL: %w", Redact(repo), err)
	}
	if !slices.Contains([]string{"file", "http", "https", "ssh"}, strings.ToLower(u.Scheme)) {
		return fmt.Errorf("%s: %q is not a way to reach a git repository: use https, http, ssh or file", Redact(repo), u.Scheme)
	}
	return nil
}

// Mirrors maps prefixes of URLs to their replacements.
type Mirrors map[string]string

// Of returns url with its longest prefix in m replaced. A prefix has to end at the end of a path element. Without such a
// prefix, Of returns url as it is.
func (m Mirrors) Of(url string) string {
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

// Redact returns s without the credentials of a URL: tokens stand in for user names as well as for passwords, and in
// queries.
func Redact(s string) string {
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

// BranchPlace returns the place of a folder in a branch of the repository at a path of this machine, as
// REPOSITORY#BRANCH:FOLDER.
func BranchPlace(repo, branch, folder string) string {
	if strings.Contains(repo, "#") { // which would end the repository's name
		if abs, err := filepath.Abs(repo); err == nil {
			repo = (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()
		}
	}
	if folder == "." {
		folder = ""
	}
	return strings.TrimSuffix(repo+"#"+branch+":"+folder, ":")
}

// CleanPath turns a path field such as "./workloads", "workload/" or "" into a path for fs.Sub.
func CleanPath(p string) (string, error) {
	clean := path.Clean(strings.TrimLeft(p, "/"))
	if !filepath.IsLocal(clean) {
		return "", fmt.Errorf("path %q leads out of the repository", p)
	}
	return clean, nil
}
