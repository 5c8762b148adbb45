package artifacts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// Pin resolves the branches, tags and ranges in the assignments of cluster types with the annotation
// wherry.dev/pin: commit, and writes the results into the rendered files: commits into Flux's
// and Argo CD's sources, digests into OCI sources and images, versions of charts. All other bytes stay.
// Each source is asked once. An assignment with a reference that cannot be resolved becomes a failure.
// Assignments of other cluster types stay as they are, and cause no requests, unless they have embedded delivery: those are
// pinned too, but for the source that is embedded, which no engine asks any more. Pin also sets
// the version and application of each assignment's workload that is not embedded.
//
// Allowed returns an error if an assignment of a registration and a workspace may not use what lies in a repository, as
// [sources.Source.Place] names it; then nobody is asked for it. It may be nil. The error is ctx's.
func Pin(ctx context.Context, result *scheduler.Result, resolver *sources.Resolver, allowed func(registration, workspace, repository string) error) error {
	p := &pinning{contents: map[sourceFolder]folderContent{}, allowed: allowed}
	seen, named := map[string]map[sources.Source]bool{}, map[string][]sources.Source{}
	for _, ct := range pinnedTypes(result) {
		for i := range ct.Assignments {
			if !isPinned(*ct, ct.Assignments[i]) {
				continue
			}
			needs, _ := needsToPin(&ct.Assignments[i]) // an error is reported when the assignment is rewritten
			for _, n := range needs {
				registration := ct.Assignments[i].Registration
				if n.unpinnable != "" || seen[registration][n.Source] || p.refused(&ct.Assignments[i], n) != nil {
					continue
				}
				if seen[registration] == nil {
					seen[registration] = map[sources.Source]bool{}
				}
				seen[registration][n.Source] = true
				named[registration] = append(named[registration], n.Source)
			}
		}
	}
	var err error
	if p.all, err = resolver.All(ctx, named); err != nil {
		return err
	}
	for _, ct := range pinnedTypes(result) {
		p.clusterType(ct)
	}
	return ctx.Err()
}

func pinnedTypes(result *scheduler.Result) []*scheduler.ClusterTypeResult {
	var types []*scheduler.ClusterTypeResult
	for i := range result.ClusterTypes {
		if IsPinned(result.ClusterTypes[i]) || slices.ContainsFunc(result.ClusterTypes[i].Assignments, IsEmbedded) {
			types = append(types, &result.ClusterTypes[i])
		}
	}
	return types
}

// IsPinned reports whether a cluster type asks for pinning.
func IsPinned(ct scheduler.ClusterTypeResult) bool {
	return ct.Annotations[scheduler.PinAnnotation] == scheduler.PinCommit
}

// IsEmbedded reports whether a has embedded delivery.
func IsEmbedded(a scheduler.Assignment) bool { return a.Delivery == scheduler.Embedded }

func isPinned(ct scheduler.ClusterTypeResult, a scheduler.Assignment) bool {
	return IsPinned(ct) || IsEmbedded(a)
}

// needsToPin is needsOf without the source that is embedded.
func needsToPin(a *scheduler.Assignment) ([]need, error) {
	s, err := scan(a)
	return toPin(a, s.needs), err
}

func toPin(a *scheduler.Assignment, needs []need) []need {
	if !IsEmbedded(*a) {
		return needs
	}
	if main, ok := mainNeed(a); ok {
		needs = slices.DeleteFunc(needs, func(n need) bool { return n.isOf(main) && (n.file < 0 || !IsEmbeddedPath(a.Files[n.file].Path)) })
	}
	return needs
}

// pinning is one run of Pin.
type pinning struct {
	all      sources.Found
	found    map[sources.Source]*sources.Resolution // those of the assignment's registration
	contents map[sourceFolder]folderContent         // of those that were read
	allowed  func(registration, workspace, repository string) error
}

// refused returns an error if a may not use the source of n.
func (p *pinning) refused(a *scheduler.Assignment, n need) error {
	if place := n.Place(); p.allowed != nil && place != "" {
		return p.allowed(a.Registration, a.Workspace, place)
	}
	return nil
}

func (p *pinning) clusterType(ct *scheduler.ClusterTypeResult) {
	var kept []scheduler.Assignment
	for _, a := range ct.Assignments {
		if !isPinned(*ct, a) {
			kept = append(kept, a)
			continue
		}
		p.found = p.all[a.Registration]
		if err := p.assignment(&a); err != nil {
			reason := scheduler.PinFailed
			if errors.Is(err, meter.ErrExceeded) {
				reason = scheduler.LimitExceeded
			}
			ct.Failures = append(ct.Failures, scheduler.Failure{Name: a.Name, ClusterType: ct.Name, Reason: reason, Err: fmt.Errorf("pin: %w", err)})
			continue
		}
		kept = append(kept, a)
	}
	ct.Assignments = kept
	slices.SortStableFunc(ct.Failures, func(a, b scheduler.Failure) int { return strings.Compare(a.Name, b.Name) })
}

// assignment rewrites a's files, and reads them again afterwards: their references must be the resolved ones.
func (p *pinning) assignment(a *scheduler.Assignment) error {
	needs, err := needsToPin(a)
	if err != nil {
		return err
	}
	if err := p.complete(a, needs); err != nil {
		return err
	}
	files := slices.Clone(a.Files)
	var errs []error
	for i := range files {
		var writes []write
		for _, n := range needs {
			if n.file != i || n.edit == nil {
				continue
			}
			w := write{n.edit, n.exact(p.found[n.Source])}
			if !w.replace || resolved(w.at).Value != w.before+w.value { // it may be exact already, as a chart's version
				writes = append(writes, w)
			}
		}
		if files[i].Data, err = applyWrites(files[i].Data, writes); err != nil {
			errs = append(errs, fmt.Errorf("%s: a source %w", files[i].Path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	a.Files = files
	return p.check(a, needs)
}

// complete returns an error for the needs that cannot be resolved, or cannot be written.
func (p *pinning) complete(a *scheduler.Assignment, needs []need) error {
	var errs []error
	for _, n := range needs {
		problem := n.unwritable(a, nil)
		switch found := p.found[n.Source]; {
		case problem != "":
			errs = append(errs, errors.New(problem))
		case p.refused(a, n) != nil:
			errs = append(errs, fmt.Errorf("%s: %w", n.place, p.refused(a, n)))
		case found.Err != nil:
			errs = append(errs, fmt.Errorf("%s: resolve %s: %w", n.place, n.Reference(), found.Err))
		case n.edit != nil && n.exact(found) == "": // an engine would take the newest one
			errs = append(errs, fmt.Errorf("%s: resolve %s: the version of %s is not known", n.place, n.Reference(), found.Revision))
		}
	}
	return errors.Join(errs...)
}

// unwritable says why a need of a cannot be pinned, whatever it resolves to; empty if it can. With texts, which
// keeps a's files by their index, the place to write to is looked at, too.
func (n need) unwritable(a *scheduler.Assignment, texts map[int]*yamltext.File) string {
	switch {
	case n.unpinnable != "":
		return n.place + ": " + n.unpinnable
	case n.file < 0 && n.Kind == bundle.ArtifactGit && mentions(a, n.URL) && (n.Revision == "" || !mentions(a, n.Revision)):
		return fmt.Sprintf("%s: the rendered files name %s where no commit can be written", n.place, gitrepo.Redact(n.URL))
	case n.file >= 0 && n.edit == nil && n.Revision == "":
		return n.notInPlace()
	case n.file < 0 || n.edit == nil || texts == nil:
		return ""
	}
	if texts[n.file] == nil {
		texts[n.file] = yamltext.Open(a.Files[n.file].Data)
	}
	if _, err := spliceOf(texts[n.file], write{n.edit, ""}); err != nil {
		return n.notInPlace()
	}
	return ""
}

// notInPlace is the text about a reference that cannot be replaced.
func (n need) notInPlace() string {
	return fmt.Sprintf("%s: the reference to %s %v", n.place, n.Reference(), errNotInPlace)
}

// exact returns the value to write for a need.
func (n need) exact(found *sources.Resolution) string {
	if n.Kind == bundle.ArtifactChart {
		return strings.ReplaceAll(cmp.Or(found.Version, n.Tag), "_", "+")
	}
	return found.Revision
}

// check compares the references in the rewritten files with the resolved ones, and records them.
func (p *pinning) check(a *scheduler.Assignment, before []need) error {
	after, err := needsToPin(a)
	if err == nil && len(after) != len(before) {
		err = errNotInPlace
	}
	if err != nil {
		return fmt.Errorf("its sources: %w", err)
	}
	for i, n := range after {
		found := p.found[before[i].Source]
		if n.Kind != bundle.ArtifactChart && n.file >= 0 && n.Revision != found.Revision {
			return fmt.Errorf("%s: the reference %w", n.place, errNotInPlace)
		}
		a.Pinned = append(a.Pinned, scheduler.Pinned{
			Type: string(n.Kind), Name: n.Name(), Reference: n.Reference(), Digest: sources.DigestOf(n.Kind, found.Revision), Size: found.Size,
		})
		if from := before[i]; from.Semver != "" && from.Kind != bundle.ArtifactGit && found.Version != from.Semver {
			a.Taken = append(a.Taken, scheduler.Pinned{Type: string(from.Kind), Name: from.Name(), Reference: from.Reference(), Digest: found.Revision, Version: found.Version})
		}
	}
	if IsEmbedded(*a) {
		return nil
	}
	return p.describe(a, before)
}

// mentions reports whether a's files hold url.
func mentions(a *scheduler.Assignment, url string) bool {
	return slices.ContainsFunc(a.Files, func(f scheduler.File) bool { return bytes.Contains(f.Data, []byte(url)) })
}
