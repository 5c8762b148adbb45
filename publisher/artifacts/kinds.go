package artifacts

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// gitRepository follows Flux: a commit counts more than a name, this more than a range, a tag, a branch.
func (s *scanner) gitRepository(o placedObject, spec *yaml.Node) {
	ref := field(spec, "ref")
	n := need{artifactSource: artifactSource{kind: bundle.ArtifactGit, url: text(spec, "url"), revision: text(ref, "commit")}}
	if n.refName = text(ref, "name"); n.refName == "" {
		if n.semver = text(ref, "semver"); n.semver == "" {
			if n.tag = text(ref, "tag"); n.tag == "" {
				n.branch = cmp.Or(text(ref, "branch"), "master") // which is Flux's default
			}
		}
	}
	if n.revision == "" {
		n.edit = insertRef(spec, ref, "commit")
	}
	s.add(o, cmp.Or(ref, spec), n)
}

func (s *scanner) ociRepository(o placedObject, spec *yaml.Node) {
	ref := field(spec, "ref")
	n := need{}
	src, err := parseOCI(bundle.ArtifactOCI, text(spec, "url"))
	if err != nil {
		n.unpinnable = err.Error()
	}
	src.tag, src.revision = text(ref, "tag"), text(ref, "digest")
	if src.semver = text(ref, "semver"); src.semver != "" {
		src.tag = ""
		if text(ref, "semverFilter") != "" {
			n.unpinnable = "a semverFilter is not understood here: name a tag"
		}
	}
	src.plainHTTP = text(spec, "insecure") == "true"
	if n.artifactSource = src; src.revision == "" {
		n.edit = insertRef(spec, ref, "digest")
	}
	s.add(o, cmp.Or(ref, spec), n)
}

// helmChart is the spec of a HelmChart, or the part of a HelmRelease that is one.
func (s *scanner) helmChart(o placedObject, spec *yaml.Node) {
	source := text(spec, "sourceRef", "name")
	if text(spec, "sourceRef", "kind") != "HelmRepository" {
		return // the source is an object of its own
	}
	chart := text(spec, "chart")
	repository, known := s.charts[source]
	n := chartNeed(repository.url, chart, text(spec, "version"))
	n.plainHTTP = repository.plainHTTP
	if !known {
		n.url, n.unpinnable = "HelmRepository/"+source, fmt.Sprintf("the HelmRepository %q is not among the rendered objects", source)
	}
	n.edit = replaceOrInsert(spec, "version", "chart")
	s.add(o, spec, n)
}

// chartNeed is a chart in a registry, or in a chart repository.
func chartNeed(repository, chart, version string) need {
	n := need{artifactSource: artifactSource{kind: bundle.ArtifactChart, url: repository, chart: chart, semver: cmp.Or(version, "*")}}
	if strings.HasPrefix(repository, ociScheme) {
		src, err := parseOCI(bundle.ArtifactChart, strings.TrimSuffix(repository, "/")+"/"+chart)
		if err != nil {
			n.unpinnable = err.Error()
		}
		src.semver = n.semver
		n.artifactSource = src
	}
	return n
}

func (s *scanner) application(o placedObject, spec *yaml.Node) {
	sources := []*yaml.Node{field(spec, "source")}
	if several := field(spec, "sources"); several != nil {
		sources = several.Content
	}
	for _, source := range sources {
		repo := text(source, "repoURL")
		if repo == "" {
			continue
		}
		version := text(source, "targetRevision")
		n := need{}
		switch chart := text(source, "chart"); {
		case chart != "" && !gitrepo.HasScheme(repo): // Argo CD's way to write a registry
			n = chartNeed(ociScheme+repo, chart, version)
		case chart != "":
			n = chartNeed(repo, chart, version)
		case strings.HasPrefix(repo, ociScheme):
			n = ociNeed(repo, version)
		default:
			n.artifactSource = argoGit(repo, version)
		}
		if n.revision == "" {
			n.edit = replaceOrInsert(source, "targetRevision", "repoURL")
		}
		s.add(o, source, n)
	}
}

func ociNeed(repo, version string) (n need) {
	src, err := parseOCI(bundle.ArtifactOCI, repo)
	if err != nil {
		n.unpinnable = err.Error()
	}
	switch n.artifactSource = src; {
	case strings.HasPrefix(version, "sha256:"):
		n.revision = version
	case isRange(version):
		n.semver = version
	default:
		n.tag = version
	}
	return n
}

// argoGit reads a targetRevision: a commit, a range of tags, or the name of a branch or tag.
func argoGit(repo, version string) artifactSource {
	src := artifactSource{kind: bundle.ArtifactGit, url: repo}
	switch {
	case commitDigits.MatchString(version):
		src.revision = version
	case isRange(version):
		src.semver = version
	case version != "HEAD":
		src.branch = version
	}
	return src
}

var commitDigits = regexp.MustCompile(`^[0-9a-f]{40}$`)

// isRange reports whether a version is one that several could meet.
func isRange(version string) bool {
	return strings.ContainsAny(version, "*<>=~^|, ") || strings.HasSuffix(version, ".x")
}

// prebuiltPackage names the package of a registry that an assignment consists of.
func (s *scanner) prebuiltPackage(o placedObject, ref *yaml.Node) {
	if ref == nil || ref.Kind != yaml.ScalarNode {
		return
	}
	src, err := parseOCI(bundle.ArtifactZarf, ref.Value)
	n := need{artifactSource: src}
	switch {
	case err != nil:
		n.unpinnable = err.Error()
	case n.revision == "":
		n.edit = replaceValue(ref, ref.Value+"@", "")
	}
	s.add(o, ref, n)
}

// zarfPackage lists what a package is made of.
func (s *scanner) zarfPackage(o placedObject) {
	for _, component := range items(o.node, "components") {
		for _, image := range items(component, "images") {
			s.image(o, image)
		}
		for _, chart := range items(component, "charts") {
			if repo := text(chart, "url"); repo != "" {
				n := chartNeed(repo, text(chart, "name"), text(chart, "version"))
				if strings.HasPrefix(repo, ociScheme) { // there the URL names the chart too
					n = ociNeed(repo, text(chart, "version"))
					n.kind = bundle.ArtifactChart
				}
				n.edit = replaceOrInsert(chart, "version", "name")
				s.add(o, chart, n)
			}
		}
		for _, repo := range items(component, "repos") {
			where, version, _ := strings.Cut(repo.Value, "@")
			n := need{artifactSource: argoGit(where, version)}
			if n.revision == "" {
				n.edit = replaceValue(repo, where+"@", "")
			}
			s.add(o, repo, n)
		}
		if imported := text(component, "import", "url"); imported != "" {
			src, err := parseOCI(bundle.ArtifactZarf, imported)
			n := need{artifactSource: src}
			if err != nil {
				n.unpinnable = err.Error()
			}
			s.add(o, component, n)
		}
	}
}
