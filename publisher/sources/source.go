package sources

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Source is the origin of one artifact. It is comparable: equal sources are resolved once.
type Source struct {
	Kind bundle.ArtifactType
	// URL is that of a git repository or a chart repository. For a registry it is HOST/REPOSITORY.
	URL string
	// Chart is the name of a chart in a chart repository; empty for other sources.
	Chart string
	// One of these selects the state; without any it is the default. A Revision is a commit or a digest; a Tag beside it
	// is only for people. Semver is a range of versions, RefName a full git reference.
	Branch, Tag, Semver, RefName, Revision string
	// Version is what the range came to that Semver names, if that is settled already; see Options.At.
	Version string
	// PlainHTTP is true for a registry without TLS.
	PlainHTTP bool
}

// Reference returns the name of s in the list of artifacts.
func (s Source) Reference() string {
	version := cmp.Or(s.Tag, s.Semver, s.Branch, s.RefName)
	switch {
	case s.Kind == bundle.ArtifactGit && version == "":
		version = s.Revision
		fallthrough
	case s.Kind == bundle.ArtifactGit:
		return strings.TrimSuffix(gitrepo.Redact(s.URL)+"#"+version, "#")
	case s.Chart != "":
		return strings.TrimSuffix(strings.TrimSuffix(gitrepo.Redact(s.URL), "/")+"/"+s.Chart+":"+version, ":")
	}
	name := s.URL
	if s.Kind != bundle.ArtifactImage {
		name = Scheme + name
	}
	switch {
	case version != "":
		return name + ":" + version
	case s.Revision != "":
		return name + "@" + s.Revision
	}
	return name + ":" + oci.DefaultTag
}

// Place returns s as the repositories of a workspace name it: the URL of a git or chart repository, or oci:// with the
// repository of a registry. It is empty for images, which clusters pull with rights of their own.
func (s Source) Place() string {
	switch {
	case s.Kind == bundle.ArtifactImage:
		return ""
	case s.Kind == bundle.ArtifactGit, s.Chart != "":
		return s.URL
	}
	return Scheme + s.URL
}

// Name returns the name of s for people.
func (s Source) Name() string {
	if s.Chart != "" {
		return s.Chart
	}
	name := gitrepo.Redact(s.URL)
	if u, err := url.Parse(name); err == nil && u.Host != "" {
		name = u.Host + u.Path
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, "/"), ".git")
}

// host is the server that s is asked from.
func (s Source) host() string {
	endpoint, err := transport.NewEndpoint(s.URL)
	if err != nil || endpoint.Protocol == "file" { // HOST/REPOSITORY
		host, _, _ := strings.Cut(s.URL, "/")
		return host
	}
	return endpoint.Host
}

// origin is the scheme, host and port that s is asked from, as far as s names them.
func (s Source) origin() string {
	if s.Kind != bundle.ArtifactGit && s.Chart == "" { // HOST/REPOSITORY
		if s.PlainHTTP {
			return "http://" + s.host()
		}
		return "https://" + s.host()
	}
	endpoint, err := transport.NewEndpoint(s.URL)
	if err != nil {
		return s.URL
	}
	return fmt.Sprintf("%s://%s:%d", endpoint.Protocol, endpoint.Host, endpoint.Port)
}

// Artifact is the line of the list for s.
func (s Source) Artifact() bundle.Artifact {
	a := bundle.Artifact{Type: s.Kind, Name: s.Name(), Reference: s.Reference(), Digest: DigestOf(s.Kind, s.Revision)}
	a.Unresolved = a.Digest == ""
	return a
}

// DigestOf writes a revision as lists of artifacts do.
func DigestOf(kind bundle.ArtifactType, revision string) string {
	if kind == bundle.ArtifactGit && revision != "" {
		return "sha1:" + revision
	}
	return revision
}

// ParseImage reads the reference of an image as container engines do: nginx is docker.io/library/nginx.
func ParseImage(s string) (Source, error) {
	src := Source{Kind: bundle.ArtifactImage}
	rest, err := src.cutVersion(s)
	if err != nil {
		return src, fmt.Errorf("image %q: %w", s, err)
	}
	host, name, found := strings.Cut(rest, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, name = dockerHub, rest
	}
	if host == "index.docker.io" {
		host = dockerHub
	}
	if host == dockerHub && !strings.Contains(name, "/") {
		name = "library/" + name
	}
	if err := src.in(host, name); err != nil {
		return src, fmt.Errorf("image %q: %w", s, err)
	}
	return src, nil
}

// dockerHub is the registry of images that name none.
const dockerHub = "docker.io"

// ParseOCI reads oci://HOST/REPOSITORY with :TAG, @DIGEST, both or neither.
func ParseOCI(kind bundle.ArtifactType, s string) (Source, error) {
	src := Source{Kind: kind}
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok {
		return src, fmt.Errorf("%q does not begin with %s", gitrepo.Redact(s), Scheme)
	}
	rest, err := src.cutVersion(strings.TrimSuffix(rest, "/"))
	if err == nil {
		host, name, _ := strings.Cut(rest, "/")
		err = src.in(host, name)
	}
	if err != nil {
		return src, fmt.Errorf("%s: %w", gitrepo.Redact(s), err)
	}
	return src, nil
}

// Scheme begins the reference of an artifact in a registry that is no image.
const Scheme = "oci://"

// cutVersion takes :TAG and @DIGEST off the end of s.
func (s *Source) cutVersion(text string) (rest string, err error) {
	rest, revision, pinned := strings.Cut(text, "@")
	if pinned {
		if err := digest.Digest(revision).Validate(); err != nil {
			return "", err
		}
		s.Revision = revision
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, s.Tag = rest[:i], rest[i+1:]
		return rest, oci.CheckTag(s.Tag)
	}
	return rest, nil
}

// in sets the repository.
func (s *Source) in(host, name string) error {
	if err := oci.CheckHost(host); err != nil {
		return err
	}
	if err := oci.CheckName(name); err != nil {
		return err
	}
	s.URL = host + "/" + name
	return nil
}
