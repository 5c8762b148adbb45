package diff

import (
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/scheduler"
)

// SourceCause is the kind of a Cause that is the source of an embedded file.
const SourceCause = "source"

// SourceDifference is a source of embedded files that changed, or came, or went.
type SourceDifference struct {
	// Name is the repository, or the registration for a folder beside a Workload; Path the folder in it.
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	Chart string `json:"chart,omitempty"`
	// Old and New are the commits or digests, for a chart with its version. Empty means that there was, or is, none, or that
	// it is not known.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// sourcesOf returns where the embedded files of an assignment came from.
func (t *Tree) sourcesOf(assignment string) []bundle.ContentSource {
	for _, s := range t.Sources {
		if s.Assignment == assignment {
			return s.Sources
		}
	}
	return nil
}

// SourceName returns how people call a source: the repository with the folder or the chart.
func SourceName(s bundle.ContentSource) string {
	name := path.Join(s.Name, s.Path)
	if s.Chart != "" && path.Base(name) != s.Chart {
		name += " (chart " + s.Chart + ")"
	}
	return name
}

// shortRevision is how many digits of a commit or digest people need.
const shortRevision = 12

// RevisionOf returns the version and the revision of a source, the digits of which are cut.
func RevisionOf(s bundle.ContentSource) string {
	revision := strings.TrimPrefix(s.Revision, "sha256:")
	revision = revision[:min(len(revision), shortRevision)]
	return strings.TrimSpace(s.Version + " " + revision)
}

// sourceOf returns the source of an embedded file among an assignment's; false if there is none.
func sourceOf(sources []bundle.ContentSource, file string) (bundle.ContentSource, bool) {
	i := slices.IndexFunc(sources, func(s bundle.ContentSource) bool { return slices.Contains(s.Files, file) })
	if i < 0 {
		i = slices.IndexFunc(sources, func(s bundle.ContentSource) bool { return len(s.Files) == 0 })
	}
	if i < 0 {
		return bundle.ContentSource{}, false
	}
	return sources[i], true
}

// sources compares where the embedded files of an assignment came from.
func (d *AssignmentDifference) sources(was, now []bundle.ContentSource) {
	for _, s := range now {
		i := slices.IndexFunc(was, func(old bundle.ContentSource) bool { return SourceName(old) == SourceName(s) })
		difference := SourceDifference{Name: s.Name, Path: s.Path, Chart: s.Chart, New: RevisionOf(s)}
		if i >= 0 {
			difference.Old = RevisionOf(was[i])
		}
		if difference.Old != difference.New {
			d.Sources = append(d.Sources, difference)
		}
	}
	for _, s := range was {
		if !slices.ContainsFunc(now, func(other bundle.ContentSource) bool { return SourceName(other) == SourceName(s) }) {
			d.Sources = append(d.Sources, SourceDifference{Name: s.Name, Path: s.Path, Chart: s.Chart, Old: RevisionOf(s)})
		}
	}
}

// embeddedCause returns the source of an embedded file as the cause of its change, with the revisions before and now.
func embeddedCause(was, now []bundle.ContentSource, file string) []Cause {
	source, ok := sourceOf(now, file)
	if !ok {
		if source, ok = sourceOf(was, file); !ok {
			return nil
		}
	}
	name := SourceName(source)
	before, _ := sourceOf(was, file)
	old, current := "", RevisionOf(source)
	if SourceName(before) == name {
		old = RevisionOf(before)
	}
	switch {
	case old != "" && old != current:
		name += " " + old + " → " + current
	case current != "":
		name += " " + current
	}
	return []Cause{{SourceCause, scheduler.Named{Name: name}}}
}

// isEmbedded reports whether a file of an assignment is embedded.
func isEmbedded(file string) bool {
	return strings.HasPrefix(file, bundle.ManifestsDir+"/") || strings.HasPrefix(file, bundle.ChartsDir+"/")
}

func sourcesNow(a scheduler.Assignment) []bundle.ContentSource { return pack.SourcesOf(a) }
