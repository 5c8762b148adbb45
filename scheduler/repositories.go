package scheduler

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// CheckRegistration returns an error, with the reason WorkspaceNotAllowed, if the Platform does not allow the registration
// to name its repository. Call it with all bases loaded and before anything is fetched; [Model.Load] refuses the source too.
//
// A workspace with repositories may name these and what lies below them. As soon as one workspace has repositories, each
// registration must name a workspace that the Platform lists, since any other would be a way around the list.
func (m *Model) CheckRegistration(r WorkloadRegistration) error {
	w, listed := m.workspaces[r.Workspace]
	switch {
	case !listed && m.bindsRepositories():
		hint := finding.DidYouMean(r.Workspace, sortedKeys(m.workspaces))
		if hint == "" {
			hint = "list its workspace in spec.workspaces of the Platform"
		}
		message := fmt.Sprintf("workspace %q, which the Platform does not list", r.Workspace)
		if r.Workspace == "" {
			message = "no workspace"
		}
		return notAllowed(r, hint, "registration %q has %s: the Platform binds workspaces to repositories", r.Name, message)
	case !listed || !w.bound:
		return nil
	}
	hint := fmt.Sprintf("correct spec.workload.repo, or add the repository to repositories of workspace %q in the Platform", r.Workspace)
	place, err := parseGitPlace(r.Workload.Repo)
	if err != nil {
		return notAllowed(r, hint, "registration %q: workspace %q may not use its repository: %v", r.Name, r.Workspace, err)
	}
	if !slices.ContainsFunc(w.repositories, func(p gitPlace) bool { return p.holds(place) }) {
		return notAllowed(r, hint, "registration %q: workspace %q may not use repository %s", r.Name, r.Workspace, place)
	}
	return nil
}

// CheckSource returns an error if an assignment of a registration and a workspace may not use what lies in a git repository, a
// chart repository or, as oci://HOST/PATH, a registry: the publisher reads it with its own rights. The platform's own
// assignments, which have no registration, may use everything.
func (m *Model) CheckSource(registration, workspace, repository string) error {
	w := m.workspaces[workspace]
	if registration == "" || !w.bound {
		return nil
	}
	place, err := parseGitPlace(repository)
	if err != nil {
		return fmt.Errorf("workspace %q may not use its repository: %w", workspace, err)
	}
	if !slices.ContainsFunc(w.repositories, func(p gitPlace) bool { return p.holds(place) }) {
		return fmt.Errorf("workspace %q may not use repository %s: add it to repositories of the workspace in the Platform", workspace, place)
	}
	return nil
}

// NamedPlaces returns the repositories and registries that the Platform names, which nobody else can have written.
func (m *Model) NamedPlaces() []string {
	p := m.objects.Platform
	if p == nil {
		return nil
	}
	places := []string{p.Spec.Registry.Value}
	for _, w := range p.Spec.Workspaces {
		places = append(places, w.Repositories...)
	}
	return places
}

// AllowedPrivate returns spec.sources.allowPrivate of the Platform, and the place of the object.
func (m *Model) AllowedPrivate() ([]string, finding.Position) {
	if m.objects.Platform == nil {
		return nil, finding.Position{}
	}
	return m.objects.Platform.Spec.Sources.AllowPrivate, m.objects.Platform.At
}

func notAllowed(r WorkloadRegistration, hint, format string, args ...any) error {
	return because(WorkspaceNotAllowed, finding.Errorf(finding.CodeWorkspaceNotAllowed, r.Position, hint, format, args...))
}

// bindsRepositories reports whether any workspace has repositories.
func (m *Model) bindsRepositories() bool {
	for _, w := range m.workspaces {
		if w.bound {
			return true
		}
	}
	return false
}

// placesOf reads the repositories of a workspace. The Platform is refused if one of them has a mistake, see checkTenant.
func placesOf(repositories []string) []gitPlace {
	var places []gitPlace
	for _, r := range repositories {
		if p, err := parseGitPlace(r); err == nil {
			places = append(places, p)
		}
	}
	return places
}

// gitPlace is a git repository, or what lies above repositories, in a form in which equal places have equal values. Its
// text is never printed: a URL may hold credentials.
type gitPlace struct {
	// way is "" for https and ssh, which are one place: forges serve a repository by both, and both know the server they
	// talk to. Other schemes are themselves.
	way  string
	host string   // in lower case, with a port that is not the scheme's own
	path []string // its elements, the last one without .git
}

var (
	urlScheme = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	// hostPath is ssh's short form, such as git@github.com:org/repo.
	hostPath = lazyregexp.New(`^(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9._-]{2,}):(.*)$`)
	// plainHost keeps out what servers and git could read differently.
	plainHost = lazyregexp.New(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$|^[0-9a-f:.]+$`)
)

var (
	errNoGitURL   = errors.New("expected the URL of a git repository, a chart repository or a registry")
	errGitPath    = errors.New(`its path has "..", "//", a percent sign, a backslash or a wildcard`)
	errGitQuery   = errors.New("it has a query or a fragment")
	defaultPorts  = map[string]string{"https": "443", "oci": "443", "http": "80", "ssh": "22"}
	schemes       = []string{"file", "http", "https", "oci", "ssh"}
	unclearInPath = "*?[]\\%#"
)

// parseGitPlace reads a URL, or host:path as ssh has it. It refuses what different programs could read as different
// places, such as a path with dots.
func parseGitPlace(s string) (gitPlace, error) {
	if !urlScheme.MatchString(s) {
		short := hostPath.FindStringSubmatch(s)
		if short == nil {
			return gitPlace{}, errNoGitURL
		}
		return newGitPlace("ssh", short[1], "", strings.TrimPrefix(short[2], "/"))
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // its text repeats the URL
		return gitPlace{}, errNoGitURL
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#"):
		return gitPlace{}, errGitQuery
	case strings.Contains(strings.ToLower(u.EscapedPath()), "%2f"):
		return gitPlace{}, errGitPath
	}
	return newGitPlace(strings.ToLower(u.Scheme), u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"))
}

func newGitPlace(scheme, host, port, path string) (gitPlace, error) {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	p := gitPlace{way: scheme, host: host}
	switch {
	case !slices.Contains(schemes, scheme):
		return p, errNoGitURL
	case scheme == "https", scheme == "ssh":
		p.way = ""
	}
	if scheme == "file" && host != "" || scheme != "file" && !plainHost.MatchString(host) {
		return p, errNoGitURL
	}
	if port != "" && port != defaultPorts[scheme] {
		p.host = net.JoinHostPort(host, port)
	}
	if path = strings.TrimSuffix(path, "/"); path == "" {
		return p, nil
	}
	p.path = strings.Split(path, "/")
	if slices.ContainsFunc(p.path, unclearElement) {
		return p, errGitPath
	}
	last := len(p.path) - 1
	if p.path[last] = strings.TrimSuffix(p.path[last], ".git"); p.path[last] == "" {
		return p, errGitPath
	}
	return p, nil
}

// unclearElement reports whether an element of a path may mean another path.
func unclearElement(e string) bool {
	control := strings.ContainsFunc(e, func(r rune) bool { return r < ' ' || r == 0x7f })
	return e == "" || e == "." || e == ".." || control || strings.ContainsAny(e, unclearInPath)
}

// String returns the place without a user, who may be a token. Https and ssh are left out.
func (p gitPlace) String() string {
	text := strings.Join(append([]string{p.host}, p.path...), "/")
	if p.way != "" {
		text = p.way + "://" + text
	}
	return text
}

// holds reports whether q is p or lies below it, by whole elements of the path.
func (p gitPlace) holds(q gitPlace) bool {
	return p.way == q.way && p.host == q.host && len(p.path) <= len(q.path) && slices.Equal(p.path, q.path[:len(p.path)])
}
