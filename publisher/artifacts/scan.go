package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// need is something outside the bundle that an assignment's files name, and how to name it exactly.
type need struct {
	sources.Source
	// place is the place of the reference, for messages.
	place string
	// file is the index of the file, edit the change to it; nil if nothing is to be written.
	file int
	edit *edit
	// unpinnable is the reason why it cannot be pinned, whatever it resolves to; empty if it can.
	unpinnable string
}

// scanner collects what the files of one assignment need.
type scanner struct {
	needs []need
	// charts are the HelmRepository objects, by name.
	charts map[string]chartRepository
	// sources are the objects of Flux that have a revision, as KIND/NAME; unlisted is true once something follows another source.
	sources  map[string]bool
	unlisted bool
	file     int
	path     string
	// seen are the parts with an anchor of the object at hand that were looked at for images: it may be used many times, and in circles.
	seen map[part]bool
	// missed names the fields for images of custom resources that hold something else.
	missed []string
}

// part is a node of an object, outside of its spec or inside.
type part struct {
	node   *yaml.Node
	inSpec bool
}

type chartRepository struct {
	url       string
	plainHTTP bool
}

// needsOf lists what an assignment needs, in the order of its files. The error is about files that cannot
// be read as YAML; what the others need is listed all the same.
func needsOf(a *scheduler.Assignment) ([]need, error) {
	s, err := scan(a)
	return s.needs, err
}

// scan is needsOf with all that was found.
func scan(a *scheduler.Assignment) (*scanner, error) { return scanWith(a, parseObjects) }

// scanWith is scan with a parser of files.
func scanWith(a *scheduler.Assignment, parse func(data []byte) ([]*yaml.Node, error)) (*scanner, error) {
	s := &scanner{charts: map[string]chartRepository{}, sources: map[string]bool{}}
	var errs []error
	var objects []placedObject
	for i, f := range a.Files {
		if !mayNeed(f) {
			continue
		}
		found, err := parse(f.Data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, err))
		}
		for _, o := range found {
			objects = append(objects, placedObject{o, i, f.Path})
		}
	}
	for _, o := range objects {
		group, kind := o.groupKind()
		if group == fluxSources {
			s.sources[kind+"/"+text(o.node, "metadata", "name")] = true
		}
		if group == fluxSources && kind == "HelmRepository" {
			plain := text(o.node, "spec", "insecure") == "true"
			s.charts[text(o.node, "metadata", "name")] = chartRepository{text(o.node, "spec", "url"), plain}
		}
	}
	for _, o := range objects {
		s.file, s.path = o.file, o.path
		s.object(o)
	}
	s.manifests(a)
	return s, errors.Join(errs...)
}

// mayNeed reports whether a file could name anything: most need not be parsed.
func mayNeed(f scheduler.File) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(f.Path)) && mayName(f.Data)
}

func mayName(data []byte) bool {
	// A word may be written with escapes, and the file in UTF-16.
	return bytes.ContainsAny(data, "\\\x00") || slices.ContainsFunc([]string{"image", "fluxcd.io", argo, "Zarf"}, func(word string) bool {
		return bytes.Contains(data, []byte(word))
	})
}

type placedObject struct {
	node *yaml.Node
	file int
	path string
}

func (o placedObject) groupKind() (group, kind string) {
	group, _, found := strings.Cut(text(o.node, "apiVersion"), "/")
	if !found {
		group = "" // Kubernetes' own
	}
	return group, text(o.node, "kind")
}

// parseObjects returns the mappings that a file's documents are, the items of lists instead of the lists.
func parseObjects(data []byte) (objects []*yaml.Node, err error) {
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := documents.Decode(&n); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return objects, err
		}
		for _, root := range n.Content {
			objects = appendObjects(objects, root)
		}
	}
}

func appendObjects(objects []*yaml.Node, root *yaml.Node) []*yaml.Node {
	items := field(root, "items")
	switch {
	case root.Kind == yaml.MappingNode && items != nil && items.Kind == yaml.SequenceNode && strings.HasSuffix(text(root, "kind"), "List"):
		return append(objects, items.Content...)
	case root.Kind == yaml.MappingNode:
		return append(objects, root)
	}
	return objects
}

// parseValues is parseObjects without places, and with sorted keys, for files of which only the values count.
func parseValues(data []byte) (objects []*yaml.Node, err error) {
	documents, plain := manifests.Plain(data)
	if !plain {
		return parseObjects(data)
	}
	for _, d := range documents {
		objects = appendObjects(objects, nodeOf(d))
	}
	return objects, nil
}

func nodeOf(value any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: 1, Column: 1}
	switch v := value.(type) {
	case map[string]any:
		n.Kind, n.Content = yaml.MappingNode, make([]*yaml.Node, 0, 2*len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, nodeOf(key), nodeOf(v[key]))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, item := range v {
			n.Content = append(n.Content, nodeOf(item))
		}
	case string:
		n.Tag, n.Value = "!!str", v
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case int64:
		n.Tag, n.Value = "!!int", strconv.FormatInt(v, 10)
	default:
		n.Tag = "!!null"
	}
	return n
}

const (
	fluxSources = "source.toolkit.fluxcd.io"
	fluxKustom  = "kustomize.toolkit.fluxcd.io"
	fluxHelm    = "helm.toolkit.fluxcd.io"
	fluxImages  = "image.toolkit.fluxcd.io"
	argo        = "argoproj.io"
)

func (s *scanner) object(o placedObject) {
	spec := field(o.node, "spec")
	s.follow(o, spec)
	switch group, kind := o.groupKind(); {
	case group == fluxSources && kind == "GitRepository":
		s.gitRepository(o, spec)
	case group == fluxSources && kind == "OCIRepository":
		s.ociRepository(o, spec)
	case group == fluxSources && kind == "HelmChart":
		s.helmChart(o, spec)
	case group == fluxSources && kind == "Bucket":
		s.add(o, spec, need{unpinnable: "a Bucket has no revision to name"})
	case group == fluxHelm && kind == "HelmRelease":
		if chart := field(spec, "chart", "spec"); chart != nil {
			s.helmChart(o, chart)
		}
	case group == argo && kind == "Application":
		s.application(o, spec)
	case group == argo && kind == "ApplicationSet":
		s.add(o, spec, need{unpinnable: "the sources of an ApplicationSet are not known before it runs"})
	case kind == "ZarfPackageConfig":
		s.zarfPackage(o)
	case group == "wherry.dev" && kind == "ZarfPackage":
		s.prebuiltPackage(o, rawField(spec, "package"))
	case group == fluxSources, group == fluxImages, group == "" && (kind == "ConfigMap" || kind == "Secret"):
	default:
		s.seen = nil
		s.images(o, o.node, false)
	}
}

// follow notes whether o follows a source that no need names: one that is no object of the assignment, or that has no address.
func (s *scanner) follow(o placedObject, spec *yaml.Node) {
	var refs []*yaml.Node
	switch group, kind := o.groupKind(); {
	case group == fluxSources && kind == "Bucket", group == argo && kind == "ApplicationSet":
		s.unlisted = true
	case group == fluxKustom && kind == "Kustomization", group == fluxSources && kind == "HelmChart":
		refs = append(refs, field(spec, "sourceRef"))
	case group == fluxHelm && kind == "HelmRelease":
		refs = append(refs, field(spec, "chartRef"), field(spec, "chart", "spec", "sourceRef"))
	}
	for _, ref := range refs {
		kind, name := text(ref, "kind"), text(ref, "name")
		if name != "" && kind != "HelmRepository" && !s.sources[kind+"/"+name] { // a need names charts of a HelmRepository
			s.unlisted = true
		}
	}
}

// add notes a need of o, named at node.
func (s *scanner) add(o placedObject, node *yaml.Node, n need) {
	n.file, n.place = s.file, s.place(o, node)
	s.needs = append(s.needs, n)
}

// place returns the place of a node of an object, for messages.
func (s *scanner) place(o placedObject, node *yaml.Node) string {
	line := o.node.Line
	if node != nil {
		line = node.Line
	}
	_, kind := o.groupKind()
	return fmt.Sprintf("%s:%d: %s %q", s.path, line, kind, text(o.node, "metadata", "name"))
}

// images finds what pods run, at whatever depth: in fields named image, of containers and, where the value
// can be nothing else, of custom resources.
func (s *scanner) images(o placedObject, n *yaml.Node, inSpec bool) {
	if n = resolved(n); n == nil || s.seen[part{n, inSpec}] {
		return
	}
	if n.Anchor != "" {
		if s.seen == nil {
			s.seen = map[part]bool{}
		}
		s.seen[part{n, inSpec}] = true
	}
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			s.images(o, item, inSpec)
		}
	}
	content := pairs(n)
	for i := 0; i+1 < len(content); i += 2 {
		key, value := scalarText(content[i]), content[i+1]
		switch {
		case slices.Contains([]string{"containers", "initContainers", "ephemeralContainers"}, key) && resolved(value).Kind == yaml.SequenceNode:
			for _, container := range resolved(value).Content {
				if image := rawField(container, "image"); image != nil {
					s.image(o, image)
				}
			}
		case key == "image" && field(value, "reference") != nil: // a volume of a pod
			s.image(o, rawField(value, "reference"))
		case key == "image" && inSpec && scalarText(value) != "":
			s.imageOfResource(o, value)
		case key == "values" || key == "valuesObject": // of a chart, whose templates alone define their meaning
		default:
			s.images(o, value, inSpec || key == "spec")
		}
	}
}

// imageOfResource is the value of a field named image of a custom resource.
func (s *scanner) imageOfResource(o placedObject, value *yaml.Node) {
	name := scalarText(value)
	if _, err := sources.ParseImage(name); err == nil && strings.ContainsAny(name, "/:@") {
		s.image(o, value)
		return
	}
	s.missed = append(s.missed, fmt.Sprintf("%s: image %q cannot be told from another text; write it with its registry, as in docker.io/library/nginx:1.29", s.place(o, value), name))
}

func (s *scanner) image(o placedObject, value *yaml.Node) {
	name := scalarText(value)
	if name == "" {
		return
	}
	src, err := sources.ParseImage(name)
	n := need{Source: src}
	if err != nil {
		n.URL, n.unpinnable = "", err.Error()
	}
	if n.Revision == "" {
		n.edit = replaceValue(value, name+"@", "")
	}
	s.add(o, value, n)
}

// manifests adds what the target's own manifests name and the files do not.
func (s *scanner) manifests(a *scheduler.Assignment) {
	m := a.Manifests
	inFiles := func(repo string) bool {
		return a.Adapter != scheduler.DirectoryAdapter && slices.ContainsFunc(s.needs, func(n need) bool { return sameRepository(n.URL, repo) })
	}
	add := func(key string, n need, err error) {
		n.place = fmt.Sprintf("manifests.%s of the workload", key)
		if n.edit, n.file = nil, -1; err != nil {
			n.unpinnable = err.Error()
		}
		s.needs = append(s.needs, n)
	}
	for _, key := range scheduler.ManifestsKeys {
		repo := m[key]
		oci, isOCI := strings.CutPrefix(repo, sources.Scheme)
		switch {
		case repo == "" || inFiles(repo) || isOCI && inFiles(oci):
		case m["chart"] != "":
			add(key, chartNeed(repo, m["chart"], m["version"]), nil)
		case isOCI:
			src, err := sources.ParseOCI(kindOf(a), repo)
			src.Tag, src.Revision = cmp.Or(src.Tag, m["tag"]), cmp.Or(src.Revision, m["digest"])
			add(key, need{Source: src}, err)
		case gitrepo.IsURL(repo):
			src := sources.Source{Kind: bundle.ArtifactGit, URL: repo, Branch: m["branch"], Tag: m["tag"], Revision: m["commit"]}
			if src.Revision == "" && commitDigits.MatchString(src.Branch) { // git takes a commit in place of a branch's name
				src.Branch, src.Revision = "", src.Branch
			}
			add(key, need{Source: src}, nil)
		}
	}
	for _, key := range []string{"package", "image"} {
		value := m[key]
		switch {
		case value == "":
		case strings.HasPrefix(value, sources.Scheme):
			src, err := sources.ParseOCI(map[string]bundle.ArtifactType{"package": bundle.ArtifactZarf, "image": bundle.ArtifactImage}[key], value)
			if !inFiles(src.URL) {
				add(key, need{Source: src}, err)
			}
		case key == "image":
			if src, err := sources.ParseImage(value); !inFiles(src.URL) {
				add(key, need{Source: src}, err)
			}
		}
	}
}

// kindOf is the type of what an assignment gets from a registry.
func kindOf(a *scheduler.Assignment) bundle.ArtifactType {
	if a.Adapter == "zarf" {
		return bundle.ArtifactZarf
	}
	return bundle.ArtifactOCI
}

func sameRepository(a, b string) bool {
	plain := func(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "/"), ".git") }
	return plain(a) == plain(b)
}
