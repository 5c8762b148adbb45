package artifacts

import (
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// Followed reports whether one of a's rendered files has an object by which Flux or Argo CD takes the content from the source that is
// embedded. An engine that reads the files from git then applies the content twice. The content of a folder beside the Workload
// comes from the repository own, which may be empty.
func Followed(a *scheduler.Assignment, own string) bool {
	origin, err := OriginOf(a)
	if err != nil || !IsEmbedded(*a) {
		return false
	}
	if origin.URL == "" {
		origin.Source = sources.Source{Kind: bundle.ArtifactGit, URL: own}
	}
	var objects []placedObject
	for _, f := range RenderedFiles(a) {
		if mayNeed(f) {
			found, _ := parseObjects(f.Data) // what cannot be read is followed by nobody
			for _, node := range found {
				objects = append(objects, placedObject{node: node})
			}
		}
	}
	f := follower{origin: origin, sources: map[string]bool{}, charts: map[string]string{}}
	for _, o := range objects {
		f.source(o)
	}
	for _, o := range objects {
		if f.follows(o) {
			return true
		}
	}
	return false
}

// follower knows which source objects of Flux, as KIND/NAME, name the origin.
type follower struct {
	origin  Origin
	sources map[string]bool
	charts  map[string]string // URLs of HelmRepository objects
}

func (f *follower) source(o placedObject) {
	group, kind := o.groupKind()
	if group != fluxSources {
		return
	}
	name, spec := text(o.node, "metadata", "name"), field(o.node, "spec")
	f.sources[kind+"/"+name] = f.origin.Names(text(spec, "url"), "")
	if kind == "HelmRepository" {
		f.charts[name] = text(spec, "url")
	}
}

func (f *follower) follows(o placedObject) bool {
	spec := field(o.node, "spec")
	switch group, kind := o.groupKind(); {
	case group == fluxKustom && kind == "Kustomization":
		return f.names(field(spec, "sourceRef"), "")
	case group == fluxSources && kind == "HelmChart":
		return f.names(field(spec, "sourceRef"), text(spec, "chart"))
	case group == fluxHelm && kind == "HelmRelease":
		chart := field(spec, "chart", "spec")
		return f.names(field(spec, "chartRef"), "") || f.names(field(chart, "sourceRef"), text(chart, "chart"))
	case group == argo && kind == "Application":
		return f.application(spec)
	case group == argo && kind == "ApplicationSet":
		return f.application(field(spec, "template", "spec"))
	}
	return false
}

// names reports whether a reference leads to the origin.
func (f *follower) names(ref *yaml.Node, chart string) bool {
	kind, name := text(ref, "kind"), text(ref, "name")
	if kind == "HelmRepository" {
		return f.origin.Names(f.charts[name], chart)
	}
	return f.sources[kind+"/"+name]
}

func (f *follower) application(spec *yaml.Node) bool {
	named := append([]*yaml.Node{field(spec, "source")}, items(spec, "sources")...)
	for _, source := range named {
		if f.origin.Names(text(source, "repoURL"), text(source, "chart")) {
			return true
		}
	}
	return false
}
