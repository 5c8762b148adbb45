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
	"io/fs"
	"maps"
	"net"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
)

const (
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
	// Meters count what is fetched for each registration. Nil means new ones with the default budgets.
	Meters *meter.Set
	// At returns a source that a registration names in the state in which it is to be read: with a Revision, and with the Version
	// of a range. It is not asked about a source with a Revision. Nil reads what each source names now.
	At func(registration string, s Source) Source
}

// Resolver finds out what sources name, for one publication. What a source names is asked once, so that all who use a Resolver
// see the same commit or digest. What one registration has no answer to, for want of time or budget, is asked again for
// others. It may be used by several goroutines; the caller closes it.
type Resolver struct {
	timeout time.Duration
	mirrors gitrepo.Mirrors
	oci     oci.Options
	access  *egress.Access
	meters  *meter.Set
	at      func(registration string, s Source) Source

	mu      sync.Mutex
	readers []*gitrepo.Reader
	// silent are the registrations that got no connection to an origin. slow counts, for a registration with a space and a
	// repository or origin, the answers that were not complete in time.
	silent map[string]map[string]bool
	slow   map[string]int
	known  map[Source]*entry
	temp   *diskfile.Scratch // of unpacked artifacts; nil until there are any
	roots  []*os.Root
}

// entry is what is known of one source. Its mutex is held while the source is asked.
type entry struct {
	mu     sync.Mutex
	found  *Resolution
	failed map[string]*Resolution // by registration: what says nothing about the source for others

	fetched bool
	content Content
	err     error
}

// NewResolver returns a Resolver that has asked nobody yet.
func NewResolver(opts Options) *Resolver {
	r := &Resolver{
		timeout: cmp.Or(max(opts.Timeout, 0), 2*time.Minute), mirrors: opts.Mirrors, oci: opts.OCI, access: opts.Access, meters: opts.Meters, at: opts.At,
		silent: map[string]map[string]bool{}, slow: map[string]int{}, known: map[Source]*entry{},
	}
	if r.access == nil {
		r.access = egress.New()
	}
	if r.meters == nil {
		r.meters = meter.NewSet(meter.Budget{})
	}
	return r
}

// For returns a context for sources that a registration names; the empty name is the platform's own.
func For(ctx context.Context, registration string) context.Context {
	return context.WithValue(ctx, registrationKey{}, registration)
}

type registrationKey struct{}

func registrationOf(ctx context.Context) string {
	name, _ := ctx.Value(registrationKey{}).(string)
	return name
}

// Bounds on what is asked at the same time.
const (
	// MaxAtOnce bounds how many sources are asked at the same time if one registration names all of them.
	MaxAtOnce = 8
	// maxRegistrations bounds the registrations for which sources are asked at the same time, and leastAtOnce is how many of each
	// are: those that do not answer keep only others of their registration waiting.
	maxRegistrations = 16
	leastAtOnce      = 2
	// imagesTime bounds the time for all images of a registration together.
	imagesTime = 5 * time.Minute
)

// Found is what sources were resolved to, by the registration that names them.
type Found map[string]map[Source]*Resolution

// All resolves sources by the registrations that name them, several at a time and of each registration some. The error is
// ctx's.
func (r *Resolver) All(ctx context.Context, named map[string][]Source) (Found, error) {
	return r.all(ctx, named, func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// Images is All for images, with one deadline for those of a registration together. The platform's own have none.
func (r *Resolver) Images(ctx context.Context, named map[string][]Source) (Found, error) {
	return r.all(ctx, named, func(ctx context.Context) (context.Context, context.CancelFunc) {
		if registrationOf(ctx) == "" {
			return ctx, func() {}
		}
		return context.WithTimeoutCause(ctx, imagesTime,
			fmt.Errorf("%w: the images of registration %q take more than %s together", meter.ErrExceeded, registrationOf(ctx), imagesTime))
	})
}

func (r *Resolver) all(ctx context.Context, named map[string][]Source, bound func(context.Context) (context.Context, context.CancelFunc)) (Found, error) {
	found := Found{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxRegistrations)
	for _, registration := range slices.SortedFunc(maps.Keys(named), func(a, b string) int { // who has used much is last
		return cmp.Or(cmp.Compare(r.meters.Of(a).Used().Time, r.meters.Of(b).Used().Time), strings.Compare(a, b))
	}) {
		group.Go(func() error {
			one := r.allOf(ctx, registration, named[registration], max(leastAtOnce, MaxAtOnce/len(named)), bound)
			mu.Lock()
			defer mu.Unlock()
			found[registration] = one
			return ctx.Err()
		})
	}
	return found, group.Wait()
}

func (r *Resolver) allOf(ctx context.Context, registration string, list []Source, atOnce int, bound func(context.Context) (context.Context, context.CancelFunc)) map[Source]*Resolution {
	ctx, cancel := bound(For(ctx, registration))
	defer cancel()
	found := make([]*Resolution, len(list))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, s := range list {
		group.Go(func() error {
			found[i] = r.Of(ctx, s)
			return nil
		})
	}
	_ = group.Wait()
	byName := map[Source]*Resolution{}
	for i, s := range list {
		byName[s] = found[i]
	}
	return byName
}

// Of resolves one source for the registration of a context, or returns its earlier resolution.
func (r *Resolver) Of(ctx context.Context, s Source) *Resolution {
	at := r.settled(ctx, s)
	found := r.of(ctx, at)
	if at != s && s.Kind == bundle.ArtifactGit && gitrepo.IsGone(found.Err) { // a force-push has removed the commit
		return r.of(ctx, s)
	}
	return found
}

// of is Of for a source that is settled.
func (r *Resolver) of(ctx context.Context, s Source) *Resolution {
	s = s.canonical()
	registration, e := registrationOf(ctx), r.entry(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.found != nil {
		return e.found
	}
	if known := e.failed[registration]; known != nil {
		return known
	}
	found := r.resolve(ctx, registration, s)
	if errors.Is(found.Err, errOwn) {
		if e.failed == nil {
			e.failed = map[string]*Resolution{}
		}
		e.failed[registration] = found
	} else {
		e.found = found
	}
	return found
}

// IsSettled reports whether Options.At says what a source is that a registration names.
func (r *Resolver) IsSettled(registration string, s Source) bool {
	return r.settled(For(context.Background(), registration), s) != s
}

// settled returns s in the state in which it is read for the registration of a context.
func (r *Resolver) settled(ctx context.Context, s Source) Source {
	if r.at == nil || s.Revision != "" {
		return s
	}
	return r.at(registrationOf(ctx), s)
}

func (r *Resolver) entry(s Source) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[s] == nil {
		r.known[s] = &entry{}
	}
	return r.known[s]
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
		same.Branch, same.Version = s.gitName(), s.Version // by which some servers have to be asked for the commit
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
	if r.temp != nil {
		errs = append(errs, r.temp.Close())
	}
	return errors.Join(errs...)
}

// errOwn is wrapped by errors that say nothing about a source for other registrations.
var errOwn = errors.New("for this registration")

// ownError is such an error; its text is the cause's.
type ownError struct{ error }

func (e *ownError) Unwrap() []error { return []error{e.error, errOwn} }

// secondTime is the time in which an origin has to be reached to which another registration got no connection.
const secondTime = 5 * time.Second

func (r *Resolver) resolve(ctx context.Context, registration string, s Source) *Resolution {
	own := func(err error) *Resolution { return &Resolution{Err: &ownError{err}} }
	origin := s.origin()
	ofRepository, ofOrigin := registration+" "+s.URL, registration+" "+origin
	r.mu.Lock()
	silent, others := r.silent[origin][registration], len(r.silent[origin]) > 0
	slow := r.slow[ofRepository] > 0 || r.slow[ofOrigin] >= MaxAtOnce
	r.mu.Unlock()
	switch {
	case silent:
		return own(fmt.Errorf("%s has not answered before", s.host()))
	case slow:
		return own(fmt.Errorf("%s has not answered in time before", s.host()))
	}
	m := r.meters.Of(registration)
	if err := m.Source(); err != nil {
		return own(err)
	}
	ctx, end := m.Start(ctx)
	defer end()
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no complete answer within %s", r.timeout))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var connected atomic.Bool
	connected.Store(!strings.HasPrefix(origin, "http")) // what speaks another protocol does not tell
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	if others {
		second := min(secondTime, r.timeout)
		timer := time.AfterFunc(second, func() {
			if !connected.Load() {
				giveUp(fmt.Errorf("no connection within %s, after another registration got none", second))
			}
		})
		defer timer.Stop()
	}
	found := new(Resolution)
	switch {
	case s.Kind == bundle.ArtifactGit:
		found.Err = r.git(ctx, s, found)
	case s.Chart != "":
		found.Err = r.chart(ctx, s, found)
	default:
		found.Err = r.registry(ctx, s, found)
	}
	if found.Err == nil {
		return found
	}
	var network net.Error
	ended := ctx.Err() != nil
	if ended {
		found.Err = context.Cause(ctx)
	}
	late := ended && outer.Err() == nil // by the time for one source
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !connected.Load() && (late || errors.As(found.Err, &network) && network.Timeout()):
		if r.silent[origin] == nil {
			r.silent[origin] = map[string]bool{}
		}
		r.silent[origin][registration] = true
		return own(found.Err)
	case late:
		r.slow[ofRepository]++
		r.slow[ofOrigin]++
		return own(found.Err)
	case ended, errors.Is(found.Err, meter.ErrExceeded):
		return own(found.Err)
	}
	return found
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
	found.Version = s.Version
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
	case s.Version != "":
		return "refs/tags/" + s.Version
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
		version, found.Version = s.Revision, cmp.Or(s.Version, s.exactVersion())
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
	if found.Version == "" && s.Semver != "" { // it may be a tag that is no version in full
		if tagged, err := repo.Resolve(ctx, s.Semver); err == nil && tagged.Digest == desc.Digest {
			found.Version = s.Semver
		}
	}
	found.Annotated, found.Size, err = measure(ctx, repo, desc)
	return err
}

// exactVersion returns the version that Semver names, if no other one can meet it.
func (s Source) exactVersion() string {
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(s.Semver, "v")); err != nil {
		return ""
	}
	return strings.ReplaceAll(s.Semver, "+", "_") // the tag
}

// repository opens the repository of s in its registry.
func (r *Resolver) repository(s Source) (oci.Target, error) {
	options := r.oci
	options.PlainHTTP = options.PlainHTTP || s.PlainHTTP
	return r.access.Repository(s.URL, options)
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
