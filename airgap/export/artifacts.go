package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// maxHeadBytes bounds the manifests of artifacts, which are held in memory.
const maxHeadBytes = 64 << 20

// Mirror is a place that has artifacts of other registries.
type Mirror struct {
	// Host is the registry whose repositories lie directly below At. If it is empty, At has repositories of all registries as
	// HOST/REPOSITORY, as agents and site packages have them.
	Host string
	At   oci.Location
}

// ParseMirror reads HOST=LOCATION or LOCATION.
func ParseMirror(text string) (m Mirror, err error) {
	location := text
	if host, at, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(host, "/") && oci.CheckHost(host) == nil {
		m.Host, location = host, at
	}
	m.At, err = oci.Parse(location)
	return m, err
}

// need is an artifact that releases need.
type need struct {
	airgap.ContentsArtifact
	// streams are the repositories of the streams that need it, and users names their assignments for people.
	streams, users []string
}

func (n need) name() string {
	if n.Tag != "" {
		return n.Repository + ":" + n.Tag
	}
	return n.Repository + "@" + n.Digest.String()
}

// readNeeds returns the artifacts that travel, sorted by repository, tag and digest.
func readNeeds(ctx context.Context, r Request, releases []chosen, p *Plan) ([]need, error) {
	if r.Artifacts == None {
		return nil, nil
	}
	lists := make([]listed, len(releases))
	err := inParallel(ctx, len(releases), func(ctx context.Context, i int) (err error) {
		lists[i], err = readList(ctx, releases[i].repo, releases[i].bundle.parts.Layers[0], releases[i].Release, r.Artifacts)
		if err != nil {
			err = fmt.Errorf("%s: %w", releases[i].user(), err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var unpinned []string
	for i, l := range lists {
		unpinned = append(unpinned, l.unpinned(releases[i].stream.ClusterType)...)
		p.Warnings = append(p.Warnings, l.stays(releases[i].stream.ClusterType)...)
	}
	if len(unpinned) > 0 && !r.SkipUnpinned {
		return nil, &UnpinnedError{unpinned}
	}
	for _, text := range unpinned {
		p.warn("left out, since it has no digest: %s", text)
	}
	return merge(releases, lists), nil
}

// merge returns the artifacts of all lists, each once.
func merge(releases []chosen, lists []listed) []need {
	var all []need
	for i, l := range lists {
		for _, a := range l.travel {
			repository, tag := a.InRegistry()
			if oci.CheckTag(tag) != nil {
				tag = ""
			}
			all = append(all, need{
				airgap.ContentsArtifact{Type: a.Type, Repository: repository, Tag: tag, Digest: digest.Digest(a.Digest), UsedBy: []string{releases[i].user()}},
				[]string{releases[i].stream.Repository()},
				[]string{releases[i].user() + " (" + usersOf(a) + ")"},
			})
		}
	}
	compare := func(a, b need) int {
		return cmp.Or(cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Type, b.Type))
	}
	slices.SortStableFunc(all, compare)
	merged := all[:0]
	for _, n := range all {
		if k := len(merged); k > 0 && compare(merged[k-1], n) == 0 {
			last := &merged[k-1]
			last.UsedBy, last.streams = append(last.UsedBy, n.UsedBy...), append(last.streams, n.streams...)
			last.users = append(last.users, n.users...)
			continue
		}
		merged = append(merged, n)
	}
	for i := range merged {
		n := &merged[i]
		n.UsedBy = slices.Compact(slices.Sorted(slices.Values(n.UsedBy)))
		n.streams = slices.Compact(slices.Sorted(slices.Values(n.streams)))
		n.users = slices.Compact(slices.Sorted(slices.Values(n.users)))
	}
	return merged
}

// listed are the artifacts of a release.
type listed struct {
	travel, noDigest, noRegistry []bundle.Artifact
}

// readList reads the artifacts of a release from its tree.
func readList(ctx context.Context, src bundle.Source, tree ocispec.Descriptor, r bundle.Release, mode Mode) (l listed, err error) {
	if r.Artifacts.Count == 0 {
		return l, nil
	}
	files, err := bundle.TreeFiles(ctx, src, tree, bundle.ArtifactsPath, bundle.AssignmentsPath)
	if err != nil {
		return l, err
	}
	if digest.FromBytes(files[bundle.ArtifactsPath]) != r.Artifacts.Digest {
		return l, bundle.Refuse(bundle.DigestMismatch, "%s is not the one that the release names", bundle.ArtifactsPath)
	}
	artifacts, err := bundle.ParseArtifacts(files[bundle.ArtifactsPath])
	if err != nil {
		return l, err
	}
	assignments, err := bundle.ParseAssignments(files[bundle.AssignmentsPath])
	if err != nil {
		return l, err
	}
	byName := map[string]bundle.Assignment{}
	for _, a := range assignments {
		byName[a.Name] = a
	}
	for _, a := range artifacts {
		a.UsedBy = slices.DeleteFunc(slices.Clone(a.UsedBy), func(name string) bool { return !wants(byName[name], a, mode) })
		repository, _ := a.InRegistry()
		switch {
		case len(a.UsedBy) == 0:
		case repository == "":
			l.noRegistry = append(l.noRegistry, a)
		case a.Digest == "":
			l.noDigest = append(l.noDigest, a)
		default:
			l.travel = append(l.travel, a)
		}
	}
	return l, nil
}

// wants reports whether an assignment needs an artifact beside the bundle, which has what is embedded.
func wants(a bundle.Assignment, artifact bundle.Artifact, mode Mode) bool {
	if mode == Carried {
		return a.Carries(artifact)
	}
	return a.Delivery != bundle.Embedded || artifact.Type == bundle.ArtifactImage || artifact.Type == bundle.ArtifactZarf
}

const maxUsers = 5 // in messages

func textOf(clusterType string, a bundle.Artifact) string {
	return fmt.Sprintf("%s: %s %s (%s)", clusterType, a.Type, a.Reference, usersOf(a))
}

// usersOf lists the assignments that need an artifact.
func usersOf(a bundle.Artifact) string {
	users, more := a.UsedBy, ""
	if n := len(users) - maxUsers; n > 0 {
		users, more = users[:maxUsers], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(users, ", ") + more
}

func (l listed) unpinned(clusterType string) (texts []string) {
	for _, a := range l.noDigest {
		texts = append(texts, textOf(clusterType, a))
	}
	return texts
}

// stays returns a warning for each artifact that lies in no registry.
func (l listed) stays(clusterType string) (texts []string) {
	for _, a := range l.noRegistry {
		texts = append(texts, fmt.Sprintf("%s lies in no registry and does not travel: publish with wherry.dev/delivery: embedded", textOf(clusterType, a)))
	}
	return texts
}

// artifact is an artifact that travels.
type artifact struct {
	need
	graph.Graph
	manifests [][]byte // of Graph.Manifests
	referrers []referrer
}

// referrer is a referrer of an artifact.
type referrer struct {
	graph.Referrer
	manifests [][]byte
}

// finder asks for artifacts.
type finder struct {
	opts    oci.Options
	own     func(repository string) (oci.Target, error) // opens a repository of an artifact's own registry
	mirrors []Mirror

	mu   sync.Mutex
	away map[string]error // hosts that did not answer
	head int64
}

func newFinder(r Request, _ oci.Store) *finder {
	f := &finder{opts: r.Registry, own: r.Artifact, mirrors: r.Mirrors, away: map[string]error{}}
	if f.own == nil {
		f.own = func(repository string) (oci.Target, error) {
			host, name, _ := strings.Cut(repository, "/")
			return oci.Location{Host: host}.Repository(name, f.opts)
		}
	}
	if r.From.Host == "" {
		f.mirrors = append([]Mirror{{At: r.From}}, f.mirrors...)
	}
	return f
}

// source is a place that may have an artifact.
type source struct {
	name string // of its host or folder
	oci.Target
}

// sources returns the places to ask for an artifact, its own registry last.
func (f *finder) sources(repository string) (all []source, err error) {
	host, name, ok := strings.Cut(repository, "/")
	if !ok {
		return nil, fmt.Errorf("%q is not HOST/REPOSITORY", repository)
	}
	if err := errors.Join(oci.CheckHost(host), oci.CheckName(name)); err != nil {
		return nil, err
	}
	add := func(at oci.Location, name string) error {
		repo, err := at.Repository(name, f.opts)
		if err == nil {
			all = append(all, source{at.String(), repo})
		}
		return err
	}
	for _, m := range f.mirrors {
		at, name := m.At, name
		switch {
		case m.Host != "" && m.Host != host:
			continue
		case m.Host == "" && at.Host == "": // a folder names them so
			name = repository
		case m.Host == "" && at.Host != "":
			// Copies are below a name without a colon, and agents answer to the host with its port.
			if copied, err := oci.MirrorName(repository); err == nil && strings.Contains(host, ":") {
				if err := add(at, copied); err != nil {
					return nil, err
				}
			}
			at.Prefix = strings.TrimPrefix(at.Prefix+"/"+host, "/")
		}
		if err := add(at, name); err != nil {
			return nil, err
		}
	}
	own, err := f.own(repository)
	return append(all, source{oci.Location{Host: host}.String(), own}), err
}

// each calls do with one source after another until it succeeds. A place that does not answer is not asked again.
func (f *finder) each(ctx context.Context, repository string, do func(source) error) error {
	all, err := f.sources(repository)
	if err != nil {
		return err
	}
	for _, s := range all {
		f.mu.Lock()
		err = f.away[s.name]
		f.mu.Unlock()
		if err != nil {
			continue
		}
		if err = do(s); err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, oci.ErrUnreachable) && len(all) > 1 {
			f.mu.Lock()
			f.away[s.name] = err
			f.mu.Unlock()
		}
	}
	return err
}

// manifest reads a manifest of an artifact.
func (f *finder) manifest(ctx context.Context, repository string, d ocispec.Descriptor) (data []byte, err error) {
	err = f.each(ctx, repository, func(s source) error {
		at := d
		if at.Size == 0 || at.MediaType == "" {
			if at, err = s.Resolve(ctx, d.Digest.String()); err != nil {
				return err
			}
			if at.Digest != d.Digest {
				return bundle.Refuse(bundle.DigestMismatch, "%s answers with manifest %s, asked for was %s", s.name, at.Digest, d.Digest)
			}
		}
		data, err = bundle.ReadBlob(ctx, s, oci.Plain(at), graph.MaxManifestBytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head += int64(len(data)); f.head > maxHeadBytes {
		return nil, fmt.Errorf("the manifests of all artifacts have more than %d bytes: export fewer cluster types", maxHeadBytes)
	}
	return data, nil
}

// open opens a blob of an artifact.
func (f *finder) open(ctx context.Context, n need, d ocispec.Descriptor) (body io.ReadCloser, err error) {
	err = f.each(ctx, n.Repository, func(s source) (err error) {
		body, err = s.Fetch(ctx, oci.Plain(d))
		return err
	})
	if err != nil {
		return nil, &ArtifactError{n.Repository, n.name(), n.users, err}
	}
	return body, nil
}

// walk reads the manifests of artifacts.
func (f *finder) walk(ctx context.Context, needs []need, platforms graph.Platforms) ([]artifact, error) {
	all := make([]artifact, len(needs))
	err := inParallel(ctx, len(needs), func(ctx context.Context, i int) (err error) {
		all[i], err = f.walkOne(ctx, needs[i], platforms)
		return err
	})
	return all, err
}

// addReferrers finds the referrers of artifacts, with a warning for each that does not travel.
func (f *finder) addReferrers(ctx context.Context, all []artifact, p *Plan) error {
	leftOut := make([][]string, len(all))
	err := inParallel(ctx, len(all), func(ctx context.Context, i int) (err error) {
		leftOut[i], err = f.addReferrersOf(ctx, &all[i])
		return err
	})
	for i, list := range leftOut {
		for _, text := range list {
			p.warn("%s: left out: %s", all[i].name(), text)
		}
	}
	return err
}

func (f *finder) addReferrersOf(ctx context.Context, a *artifact) (leftOut []string, err error) {
	read := map[digest.Digest][]byte{}
	found, leftOut, err := graph.WalkReferrers(a.Graph, func(subject ocispec.Descriptor) (list []oci.Referrer, err error) {
		err = f.each(ctx, a.Repository, func(s source) (err error) {
			list, err = oci.Referrers(ctx, s.Target, subject)
			return err
		})
		return list, err
	}, func(d ocispec.Descriptor) ([]byte, error) {
		data, err := f.manifest(ctx, a.Repository, d)
		read[d.Digest] = data
		return data, err
	})
	if err != nil {
		return nil, &ArtifactError{a.Repository, a.name(), a.users, fmt.Errorf("its signatures and other referrers: %w", err)}
	}
	for _, r := range found {
		one := referrer{Referrer: r}
		for _, d := range r.Manifests {
			one.manifests = append(one.manifests, read[d.Digest])
		}
		a.referrers = append(a.referrers, one)
		a.ReferrerCount, a.ReferrerBytes = a.ReferrerCount+1, a.ReferrerBytes+r.Bytes()
	}
	return leftOut, nil
}

func (f *finder) walkOne(ctx context.Context, n need, platforms graph.Platforms) (artifact, error) {
	a := artifact{need: n}
	err := n.Digest.Validate()
	if err == nil && n.Digest.Algorithm() != digest.SHA256 {
		err = fmt.Errorf("%s is no SHA-256 digest", n.Digest)
	}
	if err == nil {
		a.Graph, err = graph.Walk(ocispec.Descriptor{Digest: n.Digest}, platforms, func(d ocispec.Descriptor) ([]byte, error) {
			data, err := f.manifest(ctx, n.Repository, d)
			a.manifests = append(a.manifests, data)
			return data, err
		})
	}
	if err != nil {
		return a, &ArtifactError{n.Repository, n.name(), n.users, err}
	}
	for _, d := range a.All() {
		a.Bytes += d.Size
	}
	return a, nil
}

// isGone reports whether content is not there, rather than not known.
func isGone(err error) bool { return errors.Is(err, errdef.ErrNotFound) }
