package lint

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// objectAdapters are the reconcilers whose files hold Kubernetes objects and nothing else.
var objectAdapters = []string{"argo", "flux", "kubernetes"}

// inspection holds the findings in the files of a cluster type, in the order of its assignments and files.
type inspection []sighting

// sighting is a finding in a file of the i-th assignment or, if that has conditions of health, an object in it.
type sighting struct {
	assignment int
	path       string
	sight
}

// inspect checks the files of a cluster type as the cluster would. It is safe for several goroutines. The result follows from
// the files alone, not from where the platform's objects are.
func (l *linter) inspect(ct *scheduler.ClusterTypeResult) inspection {
	kept := memo.Open(l.cache, "inspected "+l.model.EnvironmentName()+"/"+ct.Name)
	files, whole := idsOf(ct)
	if data, ok := kept.Find(whole); ok {
		if seen, ok := decodeInspection(data); ok {
			return seen
		}
	}
	seen := inspectFiles(ct, files, kept)
	kept.Of(whole, func() []byte { return encodeInspection(seen) })
	kept.Close()
	return seen
}

// idsOf identifies the files of each assignment that are inspected, and all of what inspectFiles reads.
func idsOf(ct *scheduler.ClusterTypeResult) (files [][]memo.ID, whole memo.ID) {
	files = make([][]memo.ID, len(ct.Assignments))
	var all []byte
	for i, a := range ct.Assignments {
		how := "documents"
		if slices.Contains(objectAdapters, a.Adapter) {
			how = "objects"
		}
		all = memo.AppendTexts(all, a.Name, strings.Join(a.Health, "\n"))
		for _, f := range a.Files {
			id := memo.ID{}
			if inspects(f) {
				sum := sha256.Sum256(f.Data)
				id = sha256.Sum256(append(memo.AppendTexts(nil, how, f.Path), sum[:]...))
			}
			files[i], all = append(files[i], id), append(all, id[:]...)
		}
	}
	return files, sha256.Sum256(all)
}

// embeddedPrefix begins the paths of embedded manifests.
const embeddedPrefix = "manifests/"

func isEmbedded(a scheduler.Assignment, f scheduler.File) bool {
	return a.Delivery == scheduler.Embedded && strings.HasPrefix(f.Path, embeddedPrefix)
}

func inspects(f scheduler.File) bool { return strings.HasSuffix(f.Path, ".yaml") }

// inspectFiles looks at each file, and for objects that an assignment, or another of the type, holds already. Namespaces may be
// shared: the agent applies with one field manager for each assignment.
func inspectFiles(ct *scheduler.ClusterTypeResult, files [][]memo.ID, kept *memo.Memo) inspection {
	var all inspection
	owners, own := map[kubeID]string{}, map[kubeID]string{} // the assignment, and the document of this one, by its objects
	for i, a := range ct.Assignments {
		clear(own)
		for j, f := range a.Files {
			if !inspects(f) {
				continue
			}
			data := kept.Of(files[i][j], func() []byte {
				return encodeSights(inspectFile(f.Path, f.Data, slices.Contains(objectAdapters, a.Adapter)))
			})
			seen, ok := decodeSights(data)
			if !ok { // of a damaged entry
				seen = inspectFile(f.Path, f.Data, slices.Contains(objectAdapters, a.Adapter))
			}
			for _, s := range seen {
				if s.Code != "" {
					all = append(all, sighting{i, f.Path, s})
					continue
				}
				id := s.id()
				if first, ok := own[id]; ok {
					all = append(all, sighting{i, f.Path, s.shared(finding.CodeObjectTwice, "", "%s is in %s already", id, first)})
				} else if other, ok := owners[id]; ok && (id.group != "" || id.kind != "Namespace") && !isEmbedded(a, f) { // which embedding warns of
					const hint = "put .DeploymentTargetName or .Namespace into its name"
					all = append(all, sighting{i, f.Path, s.shared(finding.CodeObjectShared, hint, "%s is also in %s", id, other)})
				}
				if own[id] = s.Place; len(a.Health) > 0 {
					all = append(all, sighting{i, f.Path, s})
				}
			}
		}
		for id, place := range own {
			if !strings.HasPrefix(place, embeddedPrefix) {
				owners[id] = a.Name
			}
		}
	}
	return all
}

// rendered adds what inspect has seen in the files of all assignments.
func (l *linter) rendered(inspected map[string]inspection) {
	for _, ct := range l.result.ClusterTypes {
		seen := inspected[ct.Name]
		for i, a := range ct.Assignments {
			r := &renderedFiles{linter: l, ct: l.objects.ClusterTypes[ct.Name], assignment: a}
			for ; len(seen) > 0 && seen[0].assignment == i; seen = seen[1:] {
				r.file(seen[0])
			}
			r.health()
		}
	}
}

// kubeID is the identity of an object in a cluster.
type kubeID struct{ group, kind, namespace, name string }

func (id kubeID) String() string {
	if id.namespace == "" {
		return id.kind + " " + id.name
	}
	return id.kind + " " + id.namespace + "/" + id.name
}

// renderedFiles adds the findings in the files of one assignment.
type renderedFiles struct {
	*linter
	ct         *kinds.ClusterType
	assignment scheduler.Assignment
	own        []kubeID        // the objects, if there are conditions of health
	template   *kinds.Template // that wrote the file; nil if it is built in
}

// file adds the findings in a file.
func (r *renderedFiles) file(s sighting) {
	if s.Code == "" {
		r.own = append(r.own, s.id())
		return
	}
	r.template = r.objects.Templates[r.ct.TemplateOf(s.path)]
	at := r.templateAt()
	switch {
	case s.At == atWorkload:
		if slices.Contains(r.assignment.SiteValues, s.About) || !r.usesSiteValues() {
			return
		}
		at = r.workloadAt()
	case s.At == atConfig:
		at = r.origin(s.About)
	case s.At == atAPIVersion && r.template != nil:
		at = r.template.Find(s.About, s.Kind)
	}
	f := finding.New(s.Code, at, s.Hint, "%s", s.Message)
	f.Message = s.Place + ": " + f.Message
	r.addFor(s.Place+s.Same, r.ct.Metadata.Name+"/"+r.assignment.Name, f)
}

// templateAt returns the position of the template that wrote the file or, if that is built in, of the cluster type.
func (r *renderedFiles) templateAt() finding.Position {
	if r.template != nil {
		return r.template.At
	}
	return r.ct.At
}

// origin returns the position at which a value of the configuration was last set, or else the template's.
func (r *renderedFiles) origin(key string) finding.Position {
	for _, source := range slices.Backward(r.assignment.Config) {
		if cm := r.objects.ConfigMaps[source.Name]; cm != nil {
			if v, ok := cm.Data[key]; ok {
				return cm.Position(v.Line)
			}
		}
	}
	return r.templateAt()
}
