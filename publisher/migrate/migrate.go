// Package migrate makes a platform from what other systems use to bring workloads to clusters: Rancher Fleet, Ascent, and
// Argo CD's ApplicationSets.
//
// Begin with [Import]. It evaluates the other system's rules for each cluster that is in the input, and writes cluster
// types, policies and workloads by which the scheduler assigns the same workloads to the same clusters. Everything without
// a counterpart is in the [Report], with its file and line.
//
// Import reads files only. It fetches nothing, and of foreign templates it evaluates a subset without loops. The same
// input gives the same bytes.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Systems are the systems that can be imported.
var Systems = []string{"fleet", "ascent", "argocd-applicationset"}

// DefaultEnvironment is the environment of clusters of which the input names none.
const DefaultEnvironment = "prod"

// ErrNothing is returned for an input without anything to import.
var ErrNothing = errors.New("nothing to import")

// Options are the options of [Import]. The zero value is ready for use.
type Options struct {
	// Environment is the environment of clusters for which the input names none. The default is DefaultEnvironment.
	Environment string
	// Checkouts are local copies of git repositories, by URL. The input's own folder stands for the rest.
	Checkouts map[string]fs.FS
}

// Result is an imported platform.
type Result struct {
	// Files are the platform's files, sorted by path; none if all that is there has no counterpart.
	Files  []File
	Report Report
}

// File is a file of the platform.
type File struct {
	Path string
	Data []byte
}

// Import reads the objects of a system from root. It returns an error wrapping ErrNothing if there are none, and an
// [InputError] for input that cannot be read.
func Import(ctx context.Context, system string, root fs.FS, o Options) (*Result, error) {
	o.Environment = cmp.Or(o.Environment, DefaultEnvironment)
	importer := map[string]func(*reader, Options) (*estate, error){"fleet": fromFleet, "ascent": fromAscent, "argocd-applicationset": fromArgo}[system]
	if importer == nil {
		return nil, fmt.Errorf("unknown system %q (known: %s)", system, strings.Join(Systems, ", "))
	}
	r := &reader{ctx: ctx, root: root, checkouts: o.Checkouts}
	if err := r.readAll(); err != nil {
		return nil, err
	}
	e, err := importer(r, o)
	if err != nil {
		return nil, err
	}
	e.report.System = system
	return e.platform()
}

// Level is how much a finding of a report matters.
type Level string

// The levels, worst first.
const (
	// Missing is something that is not imported, since it has no counterpart or cannot be evaluated.
	Missing Level = "missing"
	// Later is something that will have a counterpart, or that a person has to set.
	Later Level = "later"
	// Changed is something that was imported in another form.
	Changed Level = "changed"
)

// Finding is one line of a report.
type Finding struct {
	Level Level  `json:"level"`
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
	// Object is the object that it is about, such as "GitRepo fleet-default/shop".
	Object string `json:"object"`
	// What names the field or the part of the object. Why has the reason and the next step.
	What string `json:"what"`
	Why  string `json:"why"`
}

// Report lists the imported objects, and the parts without a counterpart.
type Report struct {
	System       string `json:"system"`
	Environments int    `json:"environments"`
	Clusters     int    `json:"clusters"`
	ClusterTypes int    `json:"clusterTypes"`
	Workloads    int    `json:"workloads"`
	Targets      int    `json:"targets"`
	Policies     int    `json:"policies"`
	// Assignments counts pairs of a cluster and a deployment target.
	Assignments int `json:"assignments"`
	// Findings are sorted by level, the worst first, then by file and line.
	Findings []Finding `json:"findings"`
	// Types lists the cluster types with their clusters.
	Types []Type `json:"types"`
}

// Type is a cluster type of a report.
type Type struct {
	Environment string   `json:"environment"`
	Name        string   `json:"name"`
	Clusters    []string `json:"clusters"`
	Targets     []string `json:"targets"`
}

// Missing counts the findings of that level.
func (r *Report) Missing() int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == Missing {
			n++
		}
	}
	return n
}

// maxFindings bounds a report: an input of a million mistakes is not read by anybody.
const maxFindings = 10_000

func (r *Report) add(level Level, at place, object, what, why string) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, Finding{Level: level, File: at.file, Line: at.line, Object: object, What: what, Why: why})
	}
}

func (r *Report) sort() {
	order := []Level{Missing, Later, Changed}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)), strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line), strings.Compare(a.Object, b.Object), strings.Compare(a.What, b.What),
		)
	})
	r.Findings = slices.Compact(r.Findings)
}
