// Package embed puts what the targets of assignments name into their files: manifests, and the charts of HelmReleases.
//
// [Read] reads and builds the content of every assignment with embedded delivery, and [Embedded.AddTo] adds it to the
// assignments' files once those are pinned. Each source is asked once, and content that several assignments share is built
// once. What earlier runs built of the same files is taken from the cache. The same sources give the same bytes. An
// assignment whose content cannot be read fails alone.
//
// In the assignment's folder, manifests/ has one YAML file for each file of the source, or manifests.yaml if kustomize built
// them, and never a kustomization.yaml, so that no engine builds anything again. charts/NAME-VERSION.tgz are the charts of its
// HelmReleases, which stay HelmReleases. The line in .wherry/assignments.ndjson has delivery "embedded", and
// .wherry/sources.ndjson names the sources, for people alone ([bundle.AssignmentSources]).
//
// Images in embedded objects get their digests, as by wherry.dev/pin. The reference to the embedded source stays as the
// template wrote it: the agent replaces it, and a commit in it would change every assignment of a repository with every
// commit. For the same reason the version of a folder that says none ([artifacts.VersionIn]) is git's digest of it. What is embedded is not an
// artifact of the bundle, since nobody fetches it; images in the charts of HelmReleases are.
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Options are what Read reads from. Resolver is required.
type Options struct {
	// Resolver finds out what sources have. Pinning has to use the same one.
	Resolver *sources.Resolver
	// Sandbox are the settings of the child processes that render charts and build kustomizations.
	Sandbox sandbox.Options
	// Cache, if not nil, has what earlier runs built.
	Cache scheduler.Cache
	// KeepTags leaves images as they are, and asks no registry for them.
	KeepTags bool
	// Own calls do with the folder that the workloads of a registration were read from; an empty name is the platform
	// itself. Its files are for one goroutine. If Own is nil, folders beside a Workload cannot be embedded.
	Own func(ctx context.Context, registration string, do func(fs.FS) error) error
	// Value returns a value of an assignment's platform configuration as YAML, and false if it has no such key. If Value is
	// nil, no assignment has any.
	Value func(ctx context.Context, clusterType, target, key string) (text string, ok bool, err error)
	// Allowed returns an error if an assignment of a registration and a workspace may not embed what lies in a repository, as
	// [sources.Source.Place] names it. If Allowed is nil, all may embed everything.
	Allowed func(registration, workspace, repository string) error
	// At returns the place of a deployment target, by its full name and registration. If At is nil, failures have no place.
	At func(target, registration string) finding.Position
}

// Embedded is the content of assignments.
type Embedded struct {
	of map[name]*content
}

// name identifies an assignment in a result.
type name struct{ clusterType, assignment string }

// content is what one assignment gets.
type content struct {
	request
	*built
	files  []scheduler.File
	images []scheduler.Pinned
	// rendered are the assignment's own files.
	rendered []scheduler.File
	// charts are those of HelmReleases, with their files, and chartImages the images in them, which inside has resolved.
	charts       []scheduler.ContentSource
	chartFiles   []scheduler.File
	chartImages  []sources.Source
	taken        []scheduler.Pinned // the artifacts that charts were taken from
	chartVersion string             // of their only chart
	inside       []scheduler.Pinned
	warnings     []finding.Finding
}

// reader is one run of Read.
type reader struct {
	Options
	sandbox *sandbox.Sandbox
	mu      sync.Mutex
	built   map[string]func() (*built, error) // by request
}

// Any reports whether an assignment of result has embedded delivery.
func Any(result *scheduler.Result) bool {
	return slices.ContainsFunc(result.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool {
		return slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded)
	})
}

// Read reads and builds what the assignments of result with embedded delivery get. The assignments stay as they are, but
// for those that fail, which become failures. The error is ctx's.
func Read(ctx context.Context, result *scheduler.Result, opts Options) (*Embedded, error) {
	r := &reader{Options: opts, sandbox: sandbox.New(opts.Sandbox), built: map[string]func() (*built, error){}}
	defer r.sandbox.Close()
	e := &Embedded{of: map[name]*content{}}
	named := map[string][]sources.Source{}
	failed := map[name]error{}
	for i := range result.ClusterTypes {
		ct := &result.ClusterTypes[i]
		for j := range ct.Assignments {
			a := &ct.Assignments[j]
			if !artifacts.IsEmbedded(*a) {
				continue
			}
			key := name{ct.Name, a.Name}
			request, err := r.request(ctx, ct, a)
			if err != nil {
				failed[key] = err
				continue
			}
			e.of[key] = &content{request: request, rendered: a.Files}
			if !request.isOwn() {
				named[a.Registration] = append(named[a.Registration], request.origin.Source)
			}
		}
	}
	if len(e.of)+len(failed) == 0 {
		return e, nil
	}
	if _, err := opts.Resolver.All(ctx, uniqueOf(named)); err != nil {
		return nil, err
	}
	if err := r.buildAll(ctx, e.of, failed); err != nil {
		return nil, err
	}
	if err := r.addReleases(ctx, e.of, failed); err != nil {
		return nil, err
	}
	if !opts.KeepTags {
		if err := r.pinImages(ctx, e.of, failed); err != nil {
			return nil, err
		}
	}
	for i := range result.ClusterTypes {
		ct := &result.ClusterTypes[i]
		e.fail(ct, func(a *scheduler.Assignment) (scheduler.FailureReason, error) {
			err := failed[name{ct.Name, a.Name}]
			if err == nil {
				return "", nil
			}
			var at finding.Position
			if opts.At != nil {
				at = opts.At(a.Name, a.Registration)
			}
			return reasonOf(err), finding.Errorf(finding.CodeNotEmbedded, at, "", "embed: %v", err) // the places in err are in the source
		})
	}
	return e, nil
}

// fail makes the assignments of a cluster type fail for which why returns an error.
func (e *Embedded) fail(ct *scheduler.ClusterTypeResult, why func(*scheduler.Assignment) (scheduler.FailureReason, error)) {
	kept := make([]scheduler.Assignment, 0, len(ct.Assignments))
	for _, a := range ct.Assignments {
		reason, err := why(&a)
		if err == nil {
			kept = append(kept, a)
			continue
		}
		delete(e.of, name{ct.Name, a.Name})
		ct.Failures = append(ct.Failures, scheduler.Failure{Name: a.Name, ClusterType: ct.Name, Reason: reason, Err: err})
	}
	if len(kept) < len(ct.Assignments) {
		ct.Assignments = kept
		slices.SortStableFunc(ct.Failures, func(a, b scheduler.Failure) int { return strings.Compare(a.Name, b.Name) })
	}
}

// reasonOf returns the reason of a failure: the content's own, or the sum of its registration.
func reasonOf(err error) scheduler.FailureReason {
	if errors.Is(err, meter.ErrExceeded) {
		return scheduler.LimitExceeded
	}
	return scheduler.EmbedFailed
}

// buildAll builds all contents, each once, and drops those that fail from all.
func (r *reader) buildAll(ctx context.Context, all map[name]*content, failed map[name]error) error {
	return r.each(ctx, all, failed, func(ctx context.Context, c *content) (err error) {
		c.built, err = r.build(ctx, c.request)
		return err
	})
}

// each calls do for all contents, for as many at a time as there are processors, and drops those that fail from all. The child of
// a registration ends when others are next. The error is ctx's.
func (r *reader) each(ctx context.Context, all map[name]*content, failed map[name]error, do func(context.Context, *content) error) error {
	q := newQueue(all)
	var group errgroup.Group
	var mu sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for key, ok := q.next(); ok && ctx.Err() == nil; key, ok = q.next() {
				c := all[key]
				if err := do(sources.For(ctx, c.registration), c); err != nil {
					mu.Lock()
					failed[key] = err
					mu.Unlock()
				}
				if q.done(c.registration, r.Sandbox.Meters.Of(c.registration).Used().CPU) {
					r.sandbox.Release(c.registration)
				}
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	for key := range failed {
		delete(all, key)
	}
	return err
}

// pinImages resolves the images of all contents and writes their digests. Contents whose images are beyond the budget of their
// registration fail, and so do those with an image of a digest that is settled, and that the registry does not give: its tag may be anything
// now. What else a registry does not have keeps its tag.
func (r *reader) pinImages(ctx context.Context, contents map[name]*content, failed map[name]error) error {
	images := map[string][]sources.Source{}
	of := map[*built][]*content{}
	for _, c := range contents {
		if of[c.built] == nil {
			for _, p := range c.Places {
				images[c.registration] = append(images[c.registration], p.Source)
			}
		}
		of[c.built], images[c.registration] = append(of[c.built], c), append(images[c.registration], c.chartImages...)
	}
	all, err := r.Resolver.Images(ctx, uniqueOf(images))
	if err != nil {
		return err
	}
	for key, c := range contents {
		check := func(s sources.Source, exceeded bool) {
			known := all[c.registration][s]
			if known != nil && known.Err != nil && (exceeded && errors.Is(known.Err, meter.ErrExceeded) || r.Resolver.IsSettled(c.registration, s)) {
				failed[key] = fmt.Errorf("image %s: %w", s.Reference(), known.Err)
			}
		}
		for _, s := range c.chartImages {
			check(s, false)
		}
		for _, p := range c.Places {
			check(p.Source, true)
		}
	}
	for made, contents := range of {
		found := all[contents[0].registration] // a request is of one registration
		files, pinned := artifacts.WriteDigests(made.Files, made.Places, found)
		for _, c := range contents {
			c.files, c.images = files, pinned
			c.inside = insideOf(unique(c.chartImages), found)
		}
	}
	return nil
}

// insideOf lists the images of charts, with the digest that each has now if the registry could be read.
func insideOf(images []sources.Source, found map[sources.Source]*sources.Resolution) []scheduler.Pinned {
	var list []scheduler.Pinned
	for _, s := range images {
		a := s.Artifact()
		p := scheduler.Pinned{Type: string(a.Type), Name: a.Name, Reference: a.Reference, Digest: a.Digest}
		if known := found[s]; known != nil && known.Err == nil {
			p.Digest, p.Size = known.Revision, known.Size
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b scheduler.Pinned) int { return strings.Compare(a.Reference+a.Digest, b.Reference+b.Digest) })
	return list
}

// uniqueOf returns each list with each source once.
func uniqueOf(lists map[string][]sources.Source) map[string][]sources.Source {
	for name, list := range lists {
		lists[name] = unique(list)
	}
	return lists
}

// unique returns list with each source once.
func unique(list []sources.Source) []sources.Source {
	seen := map[sources.Source]bool{}
	return slices.DeleteFunc(list, func(s sources.Source) bool {
		known := seen[s]
		seen[s] = true
		return known
	})
}

// place returns the folder that the content was built from, without the repository if it is the workload's own source.
func (c *content) place() scheduler.Place {
	switch {
	case c.isOwn():
		return scheduler.Place{Path: c.dir, ID: c.id}
	case c.origin.Kind == bundle.ArtifactGit:
		ref := cmp.Or(c.origin.RefName, c.origin.Tag, c.origin.Semver, c.origin.Branch)
		return scheduler.Place{Repo: gitrepo.Redact(c.origin.URL), Ref: ref, Commit: c.revision, Path: c.dir, ID: c.id}
	}
	return scheduler.Place{}
}

// AddTo adds the contents to the assignments that result still has, and sets their versions, artifacts and sources.
func (e *Embedded) AddTo(result *scheduler.Result) {
	for i := range result.ClusterTypes {
		ct := &result.ClusterTypes[i]
		for j := range ct.Assignments {
			a := &ct.Assignments[j]
			if c := e.of[name{ct.Name, a.Name}]; c != nil {
				c.addTo(a)
			}
		}
	}
}

func (c *content) addTo(a *scheduler.Assignment) {
	files := c.files
	if files == nil {
		files = c.Files
	}
	a.Files = slices.SortedFunc(slices.Values(slices.Concat(a.Files, files, c.chartFiles)), func(a, b scheduler.File) int { return strings.Compare(a.Path, b.Path) })
	a.Pinned, a.Inside = append(a.Pinned, c.images...), c.inside
	a.Sources, a.Origin, a.Taken = c.sources(), c.place(), c.taken
	if !c.isOwn() && c.origin.Kind != bundle.ArtifactGit {
		a.Taken = append(slices.Clone(c.taken), scheduler.Pinned{Type: string(c.origin.Kind), Name: c.origin.Name(), Reference: c.origin.Reference(), Digest: c.revision, Version: c.version})
	}
	d := artifacts.DescriptorFor(a, c.Dir, c.Descriptors)
	version := cmp.Or(c.Version, c.chartVersion)
	if c.Release {
		version = cmp.Or(c.chartVersion, c.Version)
	}
	a.Version, a.Application = cmp.Or(d.Version, version, c.Folder), d.Application
}
