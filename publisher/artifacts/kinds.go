package artifacts

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
)

// gitRepository follows Flux: a commit counts more than a name, this more than a range, a tag, a branch.
func (s *scanner) gitRepository(o placedObject, spec *yaml.Node) {
	ref := field(spec, "ref")
	n := need{Source: sources.Source{Kind: bundle.ArtifactGit, URL: text(spec, "url"), Revision: text(ref, "commit")}}
	if n.RefName = text(ref, "name"); n.RefName == "" {
		if n.Semver = text(ref, "semver"); n.Semver == "" {
			if n.Tag = text(ref, "tag"); n.Tag == "" {
				if n.Branch = text(ref, "branch"); n.Revision == "" {
					n.Branch = cmp.Or(n.Branch, "master") // which is Flux's default
				}
			}
		}
	}
	if n.Revision == "" {
		n.edit = insertRef(spec, ref, "commit")
	}
	s.add(o, cmp.Or(ref, spec), n)
}

func (s *scanner) ociRepository(o placedObject, spec *yaml.Node) {
	ref := field(spec, "ref")
	n := need{}
	src, err := sources.ParseOCI(bundle.ArtifactOCI, text(spec, "url"))
	if err != nil {
		n.unpinnable = err.Error()
	}
	src.Tag, src.Revision = text(ref, "tag"), text(ref, "digest")
	if src.Semver = text(ref, "semver"); src.Semver != "" {
		src.Tag = ""
		if text(ref, "semverFilter") != "" {
			n.unpinnable = "a semverFilter is not understood here: name a tag"
		}
	}
	src.PlainHTTP = text(spec, "insecure") == "true"
	if n.Source = src; src.Revision == "" {
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
	n.PlainHTTP = repository.plainHTTP
	if !known {
		n.URL, n.unpinnable = "HelmRepository/"+source, fmt.Sprintf("the HelmRepository %q is not among the rendered objects", source)
	}
	n.edit = replaceOrInsert(spec, "version", "chart")
	s.add(o, spec, n)
}

// chartNeed is a chart in a registry, or in a chart repository.
func chartNeed(repository, chart, version string) need {
	n := need{Source: sources.Source{Kind: bundle.ArtifactChart, URL: repository, Chart: chart, Semver: cmp.Or(version, "*")}}
	if strings.HasPrefix(repository, sources.Scheme) {
		src, err := sources.ParseOCI(bundle.ArtifactChart, strings.TrimSuffix(repository, "/")+"/"+chart)
		if err != nil {
			n.unpinnable = err.Error()
		}
		src.Semver = n.Semver
		n.Source = src
	}
	return n
}

func (s *scanner) application(o placedObject, spec *yaml.Node) {
	named := []*yaml.Node{field(spec, "source")}
	if several := field(spec, "sources"); several != nil {
		named = several.Content
	}
	for _, source := range named {
		repo := text(source, "repoURL")
		if repo == "" {
			continue
		}
		version := text(source, "targetRevision")
		n := need{}
		switch chart := text(source, "chart"); {
		case chart != "" && !gitrepo.HasScheme(repo): // Argo CD's way to write a registry
			n = chartNeed(sources.Scheme+repo, chart, version)
		case chart != "":
			n = chartNeed(repo, chart, version)
		case strings.HasPrefix(repo, sources.Scheme):
			n = ociNeed(repo, version)
		default:
			n.Source = argoGit(repo, version)
		}
		if n.Revision == "" {
			n.edit = replaceOrInsert(source, "targetRevision", "repoURL")
		}
		s.add(o, source, n)
	}
}

func ociNeed(repo, version string) (n need) {
	src, err := sources.ParseOCI(bundle.ArtifactOCI, repo)
	if err != nil {
		n.unpinnable = err.Error()
	}
	switch n.Source = src; {
	case strings.HasPrefix(version, "sha256:"):
		n.Revision = version
	case isRange(version):
		n.Semver = version
	default:
		n.Tag = version
	}
	return n
}

// argoGit reads a targetRevision: a commit, a range of tags, or the name of a branch or tag.
func argoGit(repo, version string) sources.Source {
	src := sources.Source{Kind: bundle.ArtifactGit, URL: repo}
	switch {
	case commitDigits.MatchString(version):
		src.Revision = version
	case isRange(version):
		src.Semver = version
	case version != "HEAD":
		src.Branch = version
	}
	return src
}

var commitDigits = lazyregexp.New(`^[0-9a-f]{40}$`)

// isRange reports whether a version is one that several could meet.
func isRange(version string) bool {
	return strings.ContainsAny(version, "*<>=~^|, ") || strings.HasSuffix(version, ".x")
}

// prebuiltPackage names the package of a registry that an assignment consists of.
func (s *scanner) prebuiltPackage(o placedObject, ref *yaml.Node) {
	name := scalarText(ref)
	if name == "" {
		return
	}
	src, err := sources.ParseOCI(bundle.ArtifactZarf, name)
	n := need{Source: src}
	switch {
	case err != nil:
		n.unpinnable = err.Error()
	case n.Revision == "":
		n.edit = replaceValue(ref, name+"@", "")
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
				if strings.HasPrefix(repo, sources.Scheme) { // there the URL names the chart too
					n = ociNeed(repo, text(chart, "version"))
					n.Kind = bundle.ArtifactChart
				}
				n.edit = replaceOrInsert(chart, "version", "name")
				s.add(o, chart, n)
			}
		}
		for _, repo := range items(component, "repos") {
			where, version, _ := strings.Cut(scalarText(repo), "@")
			n := need{Source: argoGit(where, version)}
			if n.Revision == "" {
				n.edit = replaceValue(repo, where+"@", "")
			}
			s.add(o, repo, n)
		}
		if imported := text(component, "import", "url"); imported != "" {
			src, err := sources.ParseOCI(bundle.ArtifactZarf, imported)
			n := need{Source: src}
			if err != nil {
				n.unpinnable = err.Error()
			}
			s.add(o, component, n)
		}
	}
}
