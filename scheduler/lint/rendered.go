package lint

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/bundle/yamlvalues"
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
	environment := l.model.EnvironmentName()
	kept := memo.Open(l.cache, "inspected "+environment+"/"+ct.Name)
	defer kept.Close()
	return inspectFiles(ct, filesOf(ct, environment), kept)
}

// inspected is a file that is inspected, and how.
type inspected struct {
	scheduler.File
	treatment
}

// id identifies what inspectFile reads.
func (f inspected) id() memo.ID {
	sum := sha256.Sum256(f.Data)
	return sha256.Sum256(append(memo.AppendTexts(nil, f.how(), f.Path), sum[:]...))
}

// how is a text for the treatment.
func (f inspected) how() string {
	if f.treatment == (treatment{objects: true, apply: true}) {
		return "objects"
	}
	text := fmt.Sprint(f.objects, f.apply, f.substitutes, f.patched)
	if f.values != nil && mayRefer(f.Data) {
		id := f.values.id()
		text += string(id[:])
	}
	return text
}

// filesOf lists the files of each assignment that are inspected.
func filesOf(ct *scheduler.ClusterTypeResult, environment string) [][]inspected {
	files := make([][]inspected, len(ct.Assignments))
	for i := range ct.Assignments {
		a := &ct.Assignments[i]
		how := treatment{objects: slices.Contains(objectAdapters, a.Adapter), apply: true, values: fillingsOf(ct, a, environment)}
		embedded := how
		embedded.objects = true
		switch a.Adapter {
		case "flux":
			embedded.substitutes, embedded.patched = true, slices.ContainsFunc(a.Files, func(f scheduler.File) bool {
				return !isEmbedded(a, f) && bytes.Contains(f.Data, []byte("patches"))
			})
		case "argo":
			embedded.apply = false
		}
		files[i] = make([]inspected, 0, len(a.Files))
		for _, f := range a.Files {
			switch {
			case isEmbedded(a, f) && manifests.IsFile(f.Path):
				files[i] = append(files[i], inspected{f, embedded})
			case how.objects && manifests.IsFile(f.Path), inspects(f):
				files[i] = append(files[i], inspected{f, how})
			}
		}
	}
	return files
}

// embeddedPrefix begins the paths of embedded manifests.
const embeddedPrefix = bundle.ManifestsDir + "/"

func isEmbedded(a *scheduler.Assignment, f scheduler.File) bool {
	return a.Delivery == scheduler.Embedded && strings.HasPrefix(f.Path, embeddedPrefix)
}

// isConfig reports whether a file is the platform configuration, which is an object whatever the other templates make.
func isConfig(f scheduler.File) bool { return strings.HasPrefix(f.Path, kinds.PlatformConfig+".") }

func inspects(f scheduler.File) bool { return strings.HasSuffix(f.Path, ".yaml") }

// inspectFiles looks at each file, and for objects that an assignment, or another of the type, holds already. Namespaces may be
// shared: the agent applies with one field manager for each assignment.
func inspectFiles(ct *scheduler.ClusterTypeResult, files [][]inspected, kept *memo.Memo) inspection {
	var all inspection
	owners, own := map[kubeID]string{}, map[kubeID]string{} // the assignment, and the document of this one, by its objects
	for i, a := range ct.Assignments {
		clear(own)
		from, objects := len(all), false
		for _, f := range files[i] {
			var seen []sight
			inspected := false
			data := kept.Of(f.id(), func() []byte {
				seen, inspected = inspectFile(f.Path, f.Data, f.treatment), true
				return encodeSights(seen)
			})
			if !inspected {
				if seen, inspected = decodeSights(data); !inspected { // a damaged entry
					seen = inspectFile(f.Path, f.Data, f.treatment)
				}
			}
			for _, s := range seen {
				objects = objects || !isConfig(f.File) && (s.Code == "" || s.Code == finding.CodeNoKubeObject && s.About != "")
				if s.Code != "" {
					all = append(all, sighting{i, f.Path, s})
					continue
				}
				id := s.id()
				if first, ok := own[id]; ok {
					all = append(all, sighting{i, f.Path, s.shared(finding.CodeObjectTwice, "", "%s is in %s already", id, first)})
				} else if other, ok := owners[id]; ok && (id.group != "" || id.kind != "Namespace") && !isEmbedded(&a, f.File) { // which embedding warns of
					const hint = "put .DeploymentTargetName or .Namespace into its name"
					all = append(all, sighting{i, f.Path, s.shared(finding.CodeObjectShared, hint, "%s is also in %s", id, other)})
				}
				if own[id] = s.Place; len(a.Health) > 0 {
					all = append(all, sighting{i, f.Path, s})
				}
			}
		}
		if path := tooMany(&a, files[i]); path != "" {
			all = append(all, sighting{i, path, sight{Place: path, Code: finding.CodeTooManyForAgent, Message: finding.Sentence(
				"with this file the manifests come to more than the %d bytes that agents take, with each YAML alias counted as what it stands for and each value as some more", manifests.DefaultBudget)}})
		}
		for j := from; j < len(all) && !objects; j++ {
			if all[j].Code == finding.CodeNoKubeObject || all[j].About == isYAML {
				all[j].About = notKubernetes
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

// mostForByte is the largest size that yamlvalues.Size counts for a byte of a text without aliases.
const mostForByte = 1 + 4*32

// tooMany returns the first file with which the manifests of an assignment exceed what agents decode; empty if they do not.
func tooMany(a *scheduler.Assignment, files []inspected) string {
	length, aliases := 0, false
	for _, f := range files {
		length += len(f.Data)
		aliases = aliases || bytes.IndexByte(f.Data, '*') >= 0 && bytes.IndexByte(f.Data, '&') >= 0
	}
	if bundle.CopiesFiles(a.Adapter) || length*mostForByte <= manifests.DefaultBudget && !aliases {
		return ""
	}
	left := int64(manifests.DefaultBudget)
	for _, f := range files {
		n, _ := yamlvalues.Size(f.Data, left) // what cannot be parsed is another finding
		if left -= n; left < 0 {
			return f.Path
		}
	}
	return ""
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
	} else if f, ok := r.finding(s); ok && (s.Unparsed != "" || !r.model.Ignores(s.Code)) {
		r.addFor(s.Place+s.Same, r.ct.Metadata.Name+"/"+r.assignment.Name, f)
	}
}

// finding returns the finding about a sight; ok is false if there is none.
func (r *renderedFiles) finding(s sighting) (f finding.Finding, ok bool) {
	r.template = r.objects.Templates[r.ct.TemplateOf(s.path)]
	at := r.templateAt()
	switch {
	case s.At == "" && isEmbedded(&r.assignment, scheduler.File{Path: s.path}):
		at = r.targetAt()
	case s.At == atWorkload:
		if slices.Contains(r.assignment.SiteValues, s.About) || !r.usesSiteValues() {
			return f, false
		}
		at = r.workloadAt()
	case s.At == atConfig:
		at = r.origin(s.About)
	case s.At == atAPIVersion && r.template != nil:
		at = r.template.Find(s.About, s.Kind)
	}
	f = finding.New(s.Code, at, s.Hint, "%s", s.Message)
	f.Message = s.Place + ": " + f.Message
	return f, true
}

// templateAt returns the position of the template that wrote the file or, if that is built in, of the cluster type.
func (r *renderedFiles) templateAt() finding.Position {
	if r.template != nil {
		return r.template.At
	}
	return r.ct.At
}

// targetAt returns the position of the assignment's deployment target, which names embedded files.
func (r *renderedFiles) targetAt() finding.Position {
	for _, t := range r.targets {
		if t.Name == r.assignment.Name && t.Workload.Registration == r.assignment.Registration {
			return t.At
		}
	}
	return r.templateAt()
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
