package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

const (
	// maxAtOnce bounds how many sources are asked at the same time: a few servers answer for all of them.
	maxAtOnce = 8
	// maxPlatforms bounds the manifests of one index that are read for their size.
	maxPlatforms = 64
	// maxArtifactManifest bounds a manifest or index; registries refuse larger ones.
	maxArtifactManifest = 4 << 20
)

// resolution is what a source names now.
type resolution struct {
	// revision is a commit or a digest, version the tag or chart version that a range came to.
	revision, version string
	size              int64
	// annotated is the version that an OCI manifest gives itself.
	annotated string
	// tree is that of a git commit. It is read by one goroutine at a time.
	tree gitrepo.Tree
	err  error
}

// resolver finds out what sources name. Each is asked once.
type resolver struct {
	timeout time.Duration
	mirrors gitrepo.Mirrors
	oci     oci.Options

	mu      sync.Mutex
	readers []*gitrepo.Reader
	silent  map[string]bool // hosts that have let the time for one source pass
}

// all resolves sources, several at a time. The error is ctx's.
func (r *resolver) all(ctx context.Context, sources []artifactSource) (map[artifactSource]*resolution, error) {
	found := make([]*resolution, len(sources))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAtOnce)
	for i, s := range sources {
		group.Go(func() error {
			found[i] = r.resolve(ctx, s)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	byName := map[artifactSource]*resolution{}
	for i, s := range sources {
		byName[s] = found[i]
	}
	return byName, nil
}

func (r *resolver) close() {
	for _, g := range r.readers {
		_ = g.Close() // removes temporary files only
	}
}

func (r *resolver) resolve(ctx context.Context, s artifactSource) *resolution {
	if r.isSilent(s.host()) {
		return &resolution{err: fmt.Errorf("%s has not answered before", s.host())}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no complete answer within %s", r.timeout))
	defer cancel()
	found := new(resolution)
	switch {
	case s.kind == bundle.ArtifactGit:
		found.err = r.git(ctx, s, found)
	case s.chart != "":
		found.err = r.chart(ctx, s, found)
	default:
		found.err = r.registry(ctx, s, found)
	}
	if found.err != nil && ctx.Err() != nil {
		found.err = context.Cause(ctx)
		r.mu.Lock()
		r.silent[s.host()] = true
		r.mu.Unlock()
	}
	return found
}

// isSilent reports whether to ask host would only be to wait once more: a platform may name many of its sources.
func (r *resolver) isSilent(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent[host]
}

// git fetches the commit that s names, since a workload's version is in there.
func (r *resolver) git(ctx context.Context, s artifactSource, found *resolution) error {
	if gitrepo.IsLocal(s.url) && r.mirrors.Of(s.url) == s.url {
		return errors.New("not the URL of a remote repository") // an app team's text opens no local one
	}
	if err := gitrepo.CheckURL(s.url); err != nil {
		return err
	}
	g := gitrepo.NewReader(2*r.timeout, r.mirrors) // ctx ends before
	r.mu.Lock()
	r.readers = append(r.readers, g)
	r.mu.Unlock()
	ref := gitrepo.Ref{URL: s.url, Branch: s.gitName(), Commit: s.revision}
	if s.semver != "" && s.revision == "" {
		tags, err := g.Tags(ctx, s.url)
		if err != nil {
			return err
		}
		if found.version, err = newestOf(tags, s.semver); err != nil {
			return err
		}
		ref.Branch = "refs/tags/" + found.version
	}
	tree, err := g.Tree(ctx, ref)
	found.revision, found.tree = tree.Commit, tree
	return err
}

// gitName is the reference that s means, empty for the default branch.
func (s artifactSource) gitName() string {
	switch {
	case s.refName != "":
		return s.refName
	case s.tag != "":
		return "refs/tags/" + s.tag
	}
	return s.branch
}

// registry looks up what s names in a registry, and how large it is with all that belongs to it.
func (r *resolver) registry(ctx context.Context, s artifactSource, found *resolution) error {
	host, name, _ := strings.Cut(s.url, "/")
	options := r.oci
	options.PlainHTTP = options.PlainHTTP || s.plainHTTP
	repo, err := oci.Location{Host: host}.Repository(name, options)
	if err != nil {
		return err
	}
	version := s.tag
	switch {
	case s.revision != "":
		version = s.revision
	case s.semver != "":
		tags, err := repo.Tags(ctx)
		if err != nil {
			return err
		}
		if version, err = newestOf(tags, s.semver); err != nil {
			return err
		}
		found.version = version
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
	found.revision = desc.Digest.String()
	found.annotated, found.size, err = measure(ctx, repo, desc)
	return err
}

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
			return "", 0, fmt.Errorf("manifest %s: %w", queue[i].Digest, err)
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
