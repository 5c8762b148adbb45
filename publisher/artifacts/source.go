package artifacts

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

// artifactSource is where one artifact comes from. It is comparable: equal ones are asked for once.
type artifactSource struct {
	kind bundle.ArtifactType
	// url is that of a git repository or a chart repository; of what lies in a registry, HOST/REPOSITORY.
	url   string
	chart string // of a chart repository
	// One of these says which state is meant; without any it is the default. A revision is a commit or a
	// digest, beside which a tag is only for people.
	branch, tag, semver, refName, revision string
	// plainHTTP is true for a registry that is spoken to without TLS.
	plainHTTP bool
}

// reference is how the list of artifacts names s.
func (s artifactSource) reference() string {
	version := cmp.Or(s.tag, s.semver, s.branch, s.refName)
	switch {
	case s.kind == bundle.ArtifactGit && version == "":
		version = s.revision
		fallthrough
	case s.kind == bundle.ArtifactGit:
		return strings.TrimSuffix(gitrepo.Redact(s.url)+"#"+version, "#")
	case s.chart != "":
		return strings.TrimSuffix(strings.TrimSuffix(gitrepo.Redact(s.url), "/")+"/"+s.chart+":"+version, ":")
	}
	name := s.url
	if s.kind != bundle.ArtifactImage {
		name = ociScheme + name
	}
	switch {
	case version != "":
		return name + ":" + version
	case s.revision != "":
		return name + "@" + s.revision
	}
	return name + ":" + oci.DefaultTag
}

// name is what s is called for people.
func (s artifactSource) name() string {
	if s.chart != "" {
		return s.chart
	}
	name := gitrepo.Redact(s.url)
	if u, err := url.Parse(name); err == nil && u.Host != "" {
		name = u.Host + u.Path
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, "/"), ".git")
}

// host is the server that s is asked from.
func (s artifactSource) host() string {
	endpoint, err := transport.NewEndpoint(s.url)
	if err != nil || endpoint.Protocol == "file" { // HOST/REPOSITORY
		host, _, _ := strings.Cut(s.url, "/")
		return host
	}
	return endpoint.Host
}

// artifact is the line of the list for s.
func (s artifactSource) artifact() bundle.Artifact {
	a := bundle.Artifact{Type: s.kind, Name: s.name(), Reference: s.reference(), Digest: digestOf(s.kind, s.revision)}
	a.Unresolved = a.Digest == ""
	return a
}

// digestOf writes a revision as lists of artifacts do.
func digestOf(kind bundle.ArtifactType, revision string) string {
	if kind == bundle.ArtifactGit && revision != "" {
		return "sha1:" + revision
	}
	return revision
}

// parseImage reads the reference of an image as container engines do: nginx is docker.io/library/nginx.
func parseImage(s string) (artifactSource, error) {
	src := artifactSource{kind: bundle.ArtifactImage}
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

// parseOCI reads oci://HOST/REPOSITORY with :TAG, @DIGEST, both or neither.
func parseOCI(kind bundle.ArtifactType, s string) (artifactSource, error) {
	src := artifactSource{kind: kind}
	rest, ok := strings.CutPrefix(s, ociScheme)
	if !ok {
		return src, fmt.Errorf("%q does not begin with %s", gitrepo.Redact(s), ociScheme)
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

const ociScheme = "oci://"

// cutVersion takes :TAG and @DIGEST off the end of s.
func (s *artifactSource) cutVersion(text string) (rest string, err error) {
	rest, revision, pinned := strings.Cut(text, "@")
	if pinned {
		if err := digest.Digest(revision).Validate(); err != nil {
			return "", err
		}
		s.revision = revision
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, s.tag = rest[:i], rest[i+1:]
		return rest, oci.CheckTag(s.tag)
	}
	return rest, nil
}

// in sets the repository.
func (s *artifactSource) in(host, name string) error {
	if err := oci.CheckHost(host); err != nil {
		return err
	}
	if err := oci.CheckName(name); err != nil {
		return err
	}
	s.url = host + "/" + name
	return nil
}
