// Package sources resolves branches, tags and version ranges in git repositories, registries and chart repositories.
//
// A [Source] is one such place with a branch, tag, range or revision. Begin with [NewResolver] and ask [Resolver.All] for
// the commits and digests of many sources at once. A Resolver asks each source once, so that all readers of one publication
// get the same commit or digest. Only mirrors lead to repositories on this machine.
package sources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/loopback"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

const (
	// MaxAtOnce bounds how many sources are asked at the same time: a few servers answer for all of them.
	MaxAtOnce = 8
	// maxPlatforms bounds the manifests of one index that are read for their size.
	maxPlatforms = 64
	// maxArtifactManifest bounds a manifest or index; registries refuse larger ones.
	maxArtifactManifest = 4 << 20
)

// Resolution is what a source names now.
type Resolution struct {
	// Revision is a commit or a digest, Version the tag or chart version that a range came to.
	Revision, Version string
	// Size is that of all manifests, configs and layers of an artifact, in bytes; zero if it is not known.
	Size int64
	// Annotated is the version that an OCI manifest gives itself.
	Annotated string
	Err       error
	// Files are those of a git commit; nil for all else. They are for one goroutine at a time; see Read.
	Files fs.FS

	archives []string // the URLs of a chart in a chart repository
	reading  sync.Mutex
}

// Read calls do with the files of a git commit. No two calls for one Resolution run at the same time.
func (r *Resolution) Read(do func(fs.FS) error) error {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.Files == nil {
		return errors.New("it holds no files")
	}
	return do(r.Files)
}

// Options configures the access to sources. The zero value is ready for use.
type Options struct {
	// Timeout bounds the time for one source. Zero means two minutes.
	Timeout time.Duration
	// Mirrors maps prefixes of git URLs to folders with the repositories on this machine.
	Mirrors map[string]string
	// OCI configures the access to the registries of sources, but for its HTTPClient.
	OCI oci.Options
	// Access reaches all servers. Nil means one with nothing of its own.
	Access *egress.Access
}

// Resolver finds out what sources name, for one publication. Each is asked once, so that all who use a Resolver see the
// same commit or digest. It may be used by several goroutines; the caller closes it.
type Resolver struct {
	timeout time.Duration
	mirrors gitrepo.Mirrors
	oci     oci.Options
	access  *egress.Access

	mu      sync.Mutex
	readers []*gitrepo.Reader
	silent  map[string]bool // hosts that have let the time for one source pass
	known   map[Source]func() *Resolution
	fetched map[Source]func() (Content, error)
	temp    string // of unpacked artifacts; empty until there are any
	roots   []*os.Root
}

// NewResolver returns a Resolver that has asked nobody yet.
func NewResolver(opts Options) *Resolver {
	r := &Resolver{
		timeout: cmp.Or(max(opts.Timeout, 0), 2*time.Minute), mirrors: opts.Mirrors, oci: opts.OCI, access: opts.Access,
		silent: map[string]bool{}, known: map[Source]func() *Resolution{}, fetched: map[Source]func() (Content, error){},
	}
	if r.access == nil {
		r.access = egress.New()
	}
	return r
}

// All resolves sources, several at a time. The error is ctx's.
func (r *Resolver) All(ctx context.Context, sources []Source) (map[Source]*Resolution, error) {
	found := make([]*Resolution, len(sources))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(MaxAtOnce)
	for i, s := range sources {
		group.Go(func() error {
			found[i] = r.Of(ctx, s)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	byName := map[Source]*Resolution{}
	for i, s := range sources {
		byName[s] = found[i]
	}
	return byName, nil
}

// Of resolves one source, or returns its earlier resolution.
func (r *Resolver) Of(ctx context.Context, s Source) *Resolution {
	s = s.canonical()
	r.mu.Lock()
	resolve, ok := r.known[s]
	if !ok {
		resolve = sync.OnceValue(func() *Resolution { return r.resolve(ctx, s) })
		r.known[s] = resolve
	}
	r.mu.Unlock()
	return resolve()
}

// canonical returns the source by which s is remembered: two ways to write one state of a repository must not be asked for
// at two times, between which it may change.
func (s Source) canonical() Source {
	if s.Kind != bundle.ArtifactGit {
		return s
	}
	same := Source{Kind: s.Kind, URL: strings.TrimSuffix(strings.TrimSuffix(s.URL, "/"), ".git"), Revision: s.Revision}
	switch {
	case s.Revision != "":
		same.Branch = s.gitName() // by which some servers have to be asked for the commit
	case s.Semver != "":
		same.Semver = s.Semver
	default:
		same.Branch = strings.TrimPrefix(s.gitName(), "refs/heads/")
	}
	return same
}

// Close removes the temporary files, after which no files can be read.
func (r *Resolver) Close() error {
	var errs []error
	for _, g := range r.readers {
		errs = append(errs, g.Close())
	}
	for _, root := range r.roots {
		errs = append(errs, root.Close())
	}
	if r.temp != "" {
		errs = append(errs, os.RemoveAll(r.temp))
	}
	return errors.Join(errs...)
}

func (r *Resolver) resolve(ctx context.Context, s Source) *Resolution {
	if r.isSilent(s.host()) {
		return &Resolution{Err: fmt.Errorf("%s has not answered before", s.host())}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no complete answer within %s", r.timeout))
	defer cancel()
	found := new(Resolution)
	switch {
	case s.Kind == bundle.ArtifactGit:
		found.Err = r.git(ctx, s, found)
	case s.Chart != "":
		found.Err = r.chart(ctx, s, found)
	default:
		found.Err = r.registry(ctx, s, found)
	}
	if found.Err != nil && ctx.Err() != nil {
		found.Err = context.Cause(ctx)
		r.mu.Lock()
		r.silent[s.host()] = true
		r.mu.Unlock()
	}
	return found
}

// isSilent reports whether to ask host would only be to wait once more: a platform may name many of its sources.
func (r *Resolver) isSilent(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent[host]
}

// git fetches the commit that s names, since a workload's version is in there.
func (r *Resolver) git(ctx context.Context, s Source, found *Resolution) error {
	if gitrepo.IsLocal(s.URL) && r.mirrors.Of(s.URL) == s.URL {
		return errors.New("not the URL of a remote repository") // an app team's text opens no local one
	}
	if err := gitrepo.CheckURL(s.URL); err != nil {
		return err
	}
	g := gitrepo.NewReader(2*r.timeout, r.mirrors, r.access) // ctx ends before
	r.mu.Lock()
	r.readers = append(r.readers, g)
	r.mu.Unlock()
	ref := gitrepo.Ref{URL: s.URL, Branch: s.gitName(), Commit: s.Revision}
	if s.Semver != "" && s.Revision == "" {
		tags, err := g.Tags(ctx, s.URL)
		if err != nil {
			return err
		}
		if found.Version, err = newestOf(tags, s.Semver); err != nil {
			return err
		}
		ref.Branch = "refs/tags/" + found.Version
	}
	tree, err := g.Tree(ctx, ref)
	found.Revision, found.Files = tree.Commit, tree.FS
	return err
}

// gitName is the reference that s means, empty for the default branch.
func (s Source) gitName() string {
	switch {
	case s.RefName != "":
		return s.RefName
	case s.Tag != "":
		return "refs/tags/" + s.Tag
	}
	return s.Branch
}

// registry looks up what s names in a registry, and how large it is with all that belongs to it.
func (r *Resolver) registry(ctx context.Context, s Source, found *Resolution) error {
	repo, err := r.repository(s)
	if err != nil {
		return err
	}
	version := s.Tag
	switch {
	case s.Revision != "":
		version = s.Revision
	case s.Semver != "":
		tags, err := repo.Tags(ctx)
		if err != nil {
			return err
		}
		if version, err = newestOf(tags, s.Semver); err != nil {
			return err
		}
		found.Version = version
	case version == "":
		version = oci.DefaultTag
	}
	desc, err := repo.Resolve(ctx, version)
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("there is no %s", version)
	}
	if err != nil {
		return err
	}
	found.Revision = desc.Digest.String()
	found.Annotated, found.Size, err = measure(ctx, repo, desc)
	return err
}

// repository opens the repository of s in its registry.
func (r *Resolver) repository(s Source) (oci.Target, error) {
	host, name, _ := strings.Cut(s.URL, "/")
	options := r.oci
	options.PlainHTTP = options.PlainHTTP || s.PlainHTTP
	if (options.PlainHTTP || loopback.Is(host)) && !r.access.Owns(s.URL) {
		options.Credential = func(context.Context, string) (auth.Credential, error) { return auth.EmptyCredential, nil }
	}
	var err error
	options.HTTPClient, err = oci.NewHTTPClient(oci.Network{Each: func(http.RoundTripper) http.RoundTripper { return r.access.Transport() }})
	if err != nil {
		return nil, err
	}
	target, err := oci.Location{Host: host}.Repository(name, options)
	return explained{target}, err
}

// explained is a repository whose errors hold no byte of an answer.
type explained struct{ oci.Target }

func (e explained) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := e.Target.Resolve(ctx, reference)
	return desc, explain(err)
}

func (e explained) Tags(ctx context.Context) ([]string, error) {
	tags, err := e.Target.Tags(ctx)
	return tags, explain(err)
}

func (e explained) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := e.Target.Fetch(ctx, target)
	return body, explain(err)
}

// explain is [egress.Explain] for the answers of registries.
func explain(err error) error {
	var answer *errcode.ErrorResponse
	var withheld *oci.WithheldError
	switch {
	case errors.As(err, &withheld):
		return withheld
	case errors.As(err, &answer):
		return &answered{answer.StatusCode, err}
	}
	return egress.Explain(err)
}

// answered is an answer of a registry that is an error.
type answered struct {
	status int
	err    error
}

func (e *answered) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the registry answers %d %s", e.status, http.StatusText(e.status)))
}
func (e *answered) Unwrap() error { return e.err }

// measure adds up a manifest with its config and layers, or an index with its manifests. A blob that
// several platforms share counts once.
func measure(ctx context.Context, repo bundle.Source, desc ocispec.Descriptor) (version string, size int64, err error) {
	blobs := map[digest.Digest]int64{}
	queue := []ocispec.Descriptor{desc}
	for i := 0; i < len(queue); i++ {
		if i > maxPlatforms {
			return "", 0, fmt.Errorf("the index names more than %d manifests", maxPlatforms)
		}
		blobs[queue[i].Digest] = queue[i].Size
		data, err := bundle.ReadBlob(ctx, repo, queue[i], maxArtifactManifest)
		if err != nil {
			return "", 0, err
		}
		var m struct {
			Manifests   []ocispec.Descriptor `json:"manifests"`
			Config      ocispec.Descriptor   `json:"config"`
			Layers      []ocispec.Descriptor `json:"layers"`
			Annotations map[string]string    `json:"annotations"`
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return "", 0, fmt.Errorf("manifest %s cannot be read", queue[i].Digest)
		}
		if i == 0 {
			version = m.Annotations[ocispec.AnnotationVersion]
			queue = append(queue, m.Manifests...)
		}
		for _, blob := range append(m.Layers, m.Config) {
			if blob.Digest != "" && blob.Size > 0 {
				blobs[blob.Digest] = blob.Size
			}
		}
	}
	for _, n := range blobs {
		size += n
	}
	return version, size, nil
}

// newestOf picks the tag with the highest version that meets a range.
func newestOf(tags []string, versions string) (string, error) {
	if slices.Contains(tags, versions) {
		return versions, nil
	}
	wanted, err := semver.NewConstraint(versions)
	if err != nil {
		return "", fmt.Errorf("%q is not a range of versions", versions)
	}
	tag, best := "", (*semver.Version)(nil)
	slices.Sort(tags) // of versions that differ in build metadata only, the last one counts
	for _, t := range tags {
		v, err := semver.NewVersion(strings.ReplaceAll(t, "_", "+")) // a tag in a registry cannot hold a +
		if err == nil && wanted.Check(v) && (best == nil || !v.LessThan(best)) {
			tag, best = t, v
		}
	}
	if best == nil {
		return "", fmt.Errorf("no version meets %q", versions)
	}
	return tag, nil
}
