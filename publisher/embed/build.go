package embed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// built is the content that equal requests have. Its exported fields are kept in the cache.
type built struct {
	// Files are below manifests and charts, sorted by path; Places are the images in them without digest.
	Files  []scheduler.File
	Places []artifacts.ImagePlace
	// Missed names the images that cannot get a digest, and says why.
	Missed []string
	// Descriptors are the DeploymentDescriptors below Dir.
	Dir         string
	Descriptors []artifacts.Descriptor
	// Version is that of the workload, if the files say it and no descriptor says another. Folder takes its place: git's digest of the
	// folder, and not the commit, which changes with every other folder of the repository.
	Version, Folder string
	// Release means that a HelmRelease renders the source.
	Release bool
	// Objects are those of Files, and Secrets name those that hold data.
	Objects []objectID
	Secrets []string
	// Notes are about the chart; see chart.Result.
	Notes []finding.Finding
	// Remotes are the git repositories with bases.
	Remotes []string
	// Chart and ChartVersion name the chart that was rendered; empty if none was.
	Chart, ChartVersion string
	// Own lists the files of the request's source, if there are others.
	Own []string
	// More lists the sources of files that come from elsewhere than the request's.
	More []scheduler.ContentSource

	revision string // of the source
	version  string // that a range came to
	id       string // of what was read; see tree.idOf
	reads    []string
	bytes    int   // of Files
	decoded  int64 // the same by manifests.Size
}

// tree is the content of a source.
type tree struct {
	fs.FS
	chart    []byte // an archive; then there are no files
	revision string // a commit or digest; empty if it is not known
	came     string // the version that a range came to
	version  string // that the source says of itself
	// object identifies the content of a file or folder, or that there is none; it is empty if that is not known.
	object func(path string) string
	// isArtifact is true for what is no folder of files, but known by a digest.
	isArtifact bool
}

// idOf identifies what was read of a source: git's id of dir or, if there is more, the digest of the sorted lines "PATH ID" of all. It is
// empty if the content of a path is not known.
func (t *tree) idOf(dir string, reads []string) string {
	var lines []string
	for _, path := range slices.Sorted(slices.Values(reads)) {
		if path != dir && isBelow(path, dir) {
			continue
		}
		switch id := t.object(path); id {
		case "":
			return ""
		case noObject: // a file of patterns, which may come one day
		default:
			lines = append(lines, path+" "+id+"\n")
		}
	}
	if lines = slices.Compact(lines); len(lines) == 1 {
		return strings.TrimSpace(strings.TrimPrefix(lines[0], dir+" "))
	}
	return digest.FromString(strings.Join(lines, "")).String()
}

// noObject stands for the id of what is not there.
const noObject = "none"

// build returns the content of a request, which it builds once.
func (r *reader) build(ctx context.Context, q request) (made *built, err error) {
	err = r.withTree(ctx, q, func(t *tree) error {
		how, err := methodOf(t, q)
		if err != nil {
			return err
		}
		key := q.key(how)
		r.mu.Lock()
		once, ok := r.built[key]
		if !ok {
			once = sync.OnceValues(func() (*built, error) { return r.cached(ctx, t, q, how, key) })
			r.built[key] = once
		}
		r.mu.Unlock()
		if made, err = once(); err != nil {
			return err
		}
		for _, repository := range made.Remotes { // what a cache has may have been allowed before
			if err := r.allowed(q, repository); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !q.isOwn() {
		err = fmt.Errorf("%s: %s: %w", q.origin.Place, q.origin.Reference(), err)
	} else if err != nil {
		err = fmt.Errorf("manifests.path of the workload: %w", err)
	}
	return made, err
}

// withTree calls do with the content of a request's source.
func (r *reader) withTree(ctx context.Context, q request, do func(*tree) error) error {
	if q.isOwn() {
		if r.Own == nil {
			return errors.New("the folder beside the workload cannot be read here")
		}
		return r.Own(ctx, q.registration, func(files fs.FS) error { return do(ofFiles(files, "")) })
	}
	found := r.Resolver.Of(ctx, q.origin.Source)
	if found.Err != nil {
		return found.Err
	}
	if q.origin.Kind == bundle.ArtifactGit {
		return do(q.asTaken(ofFiles(sharedFS{found}, found.Revision)))
	}
	c, err := r.Resolver.Content(ctx, q.origin.Source)
	if err != nil {
		return err
	}
	t := &tree{isArtifact: true, chart: c.Chart, revision: found.Revision, came: found.Version, version: artifacts.VersionOf(found.Annotated), object: func(path string) string { return found.Revision + " " + path }}
	if c.Files != nil {
		t.FS = gitrepo.Guard(c.Files)
	}
	return do(q.asTaken(t))
}

// asTaken returns a tree with the files that the assignment's engine takes of it.
func (q request) asTaken(t *tree) *tree {
	if q.adapter == "flux" && t.FS != nil {
		t.FS = asFlux(t.FS, q.ignore)
	}
	return t
}

func ofFiles(files fs.FS, revision string) *tree {
	return &tree{FS: gitrepo.Guard(files), revision: revision, object: func(path string) string {
		info, err := fs.Stat(files, path)
		if errors.Is(err, fs.ErrNotExist) {
			return noObject
		}
		if err != nil {
			return ""
		}
		return gitrepo.ObjectOf(info)
	}}
}

// key identifies what equal requests have in common, without the revision of the source.
func (q request) key(how method) string {
	parts := []any{q.origin.Source, q.registration, q.workspace, q.dir, how, q.adapter == "flux", q.ignore}
	if how == chartMethod {
		parts = append(parts, q.chart)
	}
	if q.argo != nil {
		parts = append(parts, q.argo.Helm, q.argo.Kustomize, q.argo.Directory)
	}
	text, err := json.Marshal(parts)
	if err != nil { // a key of a mapping that is no text, which the renderer refuses
		text = fmt.Append(nil, parts...)
	}
	sum := sha256.Sum256(text)
	return "embedded-4-" + hex.EncodeToString(sum[:])
}

// entry is what the cache keeps: content, and the objects that it was built from.
type entry struct {
	Paths, Objects []string
	Built          built
}

// cached returns the content that an earlier run built of the same files, else builds it.
func (r *reader) cached(ctx context.Context, t *tree, q request, how method, key string) (*built, error) {
	made := r.known(t, key)
	if made == nil {
		var err error
		if made, err = r.make(ctx, t, q, how); err != nil {
			return nil, err
		}
		var images []sources.Source
		made.Places, images, made.Missed = artifacts.ImagePlaces(made.Files)
		made.Version = cmp.Or(made.Version, artifacts.VersionIn(made.Files, images))
		made.inspect()
		r.keep(t, key, made)
	}
	made.revision, made.version = t.revision, t.came
	if !t.isArtifact {
		made.id = t.idOf(q.dir, made.reads)
	}
	return made, nil
}

// known returns what the cache has for key, if the files that it was built from are the same.
func (r *reader) known(t *tree, key string) *built {
	if r.Cache == nil {
		return nil
	}
	var e entry
	data := r.Cache.Get(key)
	if data == nil || gob.NewDecoder(bytes.NewReader(data)).Decode(&e) != nil || len(e.Paths) == 0 || len(e.Paths) != len(e.Objects) {
		return nil
	}
	for i, path := range e.Paths {
		if t.object(path) != e.Objects[i] {
			return nil
		}
	}
	e.Built.reads = e.Paths
	return &e.Built
}

// keep puts content into the cache, unless it is not known whether its files will be the same.
func (r *reader) keep(t *tree, key string, made *built) {
	if r.Cache == nil {
		return
	}
	e := entry{Paths: made.reads, Built: *made}
	for _, path := range made.reads {
		object := t.object(path)
		if object == "" {
			return
		}
		e.Objects = append(e.Objects, object)
	}
	var data bytes.Buffer
	if gob.NewEncoder(&data).Encode(e) == nil {
		r.Cache.Put(key, data.Bytes())
	}
}
