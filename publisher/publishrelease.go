package publisher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
)

// maxRaces is how often a release is made anew because another publisher was faster.
const maxRaces = 5

// carryOut pushes what pl asks for, or finds that it is there.
func (p *publication) carryOut(ctx context.Context, pl *plan) error {
	for race := 1; pl.result.Result != OutcomeFailed; race++ {
		err := p.attempt(ctx, pl)
		if !errors.Is(err, errRace) {
			return err
		}
		if race == maxRaces {
			return fmt.Errorf("%s: %w", pl.clusterType.Name, err)
		}
		again, err := p.plan(ctx, pl.clusterType)
		if err != nil {
			return err
		}
		if err := p.check(ctx, []*plan{again}); err != nil { // it may hold something else now
			return err
		}
		*pl = *again
	}
	return nil
}

func (p *publication) attempt(ctx context.Context, pl *plan) error {
	moving := p.movingTags(pl.standing)
	last := pl.standing.verified
	if last != nil {
		same, err := p.isCurrent(ctx, pl, last)
		if err != nil {
			return err
		}
		if same {
			moved, err := settle(ctx, pl.repo, last.Descriptor, last.Release.Tag(), moving, pl.standing.tags)
			pl.result.Result = OutcomeUnchanged
			if moved {
				pl.result.Result = OutcomePublished
			}
			return err
		}
	}
	release, err := p.newRelease(pl)
	if err != nil {
		return err
	}
	a, err := p.newBundle(ctx, pl, release)
	if err != nil {
		return err
	}
	if err := p.push(ctx, pl.repo, a); err != nil {
		return err
	}
	if _, err := settle(ctx, pl.repo, a.manifest.Descriptor, release.Tag(), moving, pl.standing.tags); err != nil {
		return err
	}
	pl.result.Result, pl.result.Sequence, pl.result.Digest = OutcomePublished, release.Sequence, a.manifest.Descriptor.Digest
	return nil
}

// movingTags returns the tags to move: those of the rings that are named, else those of every ring
// that is known, and latest.
func (p *publication) movingTags(s standing) []string {
	var tags []string
	for _, r := range p.opts.Rings {
		tags = append(tags, bundle.MovingTag(r))
	}
	if len(tags) > 0 {
		return tags
	}
	for tag := range s.moving {
		if tag != bundle.LatestTag {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return append(tags, bundle.LatestTag)
}

// isCurrent says whether the last release still says what a new one would. Its tree and its own tag must be
// there too: a registry may have lost the one, and another publisher have taken the other.
func (p *publication) isCurrent(ctx context.Context, pl *plan, last *bundle.Verified) (bool, error) {
	r := last.Release
	left, lifetime := r.ExpiresAt.Sub(p.issuedAt), r.ExpiresAt.Sub(r.IssuedAt)
	if r.Content != pl.content.Content || r.Artifacts != pl.artifacts || !slices.Equal(r.Rings, p.opts.Rings) || left <= lifetime/3 || pl.standing.taken {
		return false, nil
	}
	return pl.repo.Exists(ctx, last.Tree)
}

func (p *publication) newRelease(pl *plan) (bundle.Release, error) {
	r := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: p.done.Platform, Environment: p.done.Environment, ClusterType: pl.clusterType.Name,
		Rings: p.opts.Rings, IssuedAt: p.issuedAt, ExpiresAt: p.issuedAt.Add(pl.validFor),
		BaseCommit: p.done.BaseCommit, EnvironmentCommit: p.done.EnvironmentCommit, Content: pl.content.Content, Artifacts: pl.artifacts,
	}
	var last int64
	if v := pl.standing.verified; v != nil {
		last, r.Epoch = v.Release.Sequence, v.Release.Epoch
	}
	var err error
	if r.Sequence, err = pl.standing.next(r.Epoch, last, p.issuedAt); err != nil {
		err = fmt.Errorf("%s: %w", pl.clusterType.Name, err)
	}
	return r, err
}

// artifact is a manifest with all that belongs to it.
type artifact struct {
	blobs    []bundle.Blob
	manifest bundle.Blob
	signed   *bundle.Signed
}

// newBundle makes the artifact of a release. Where the last one has the same tree, it keeps that layer,
// since a compressor's bytes may differ from one Go release to the next.
func (p *publication) newBundle(ctx context.Context, pl *plan, r bundle.Release) (artifact, error) {
	doc, err := r.Marshal()
	if err != nil {
		return artifact{}, err
	}
	config := bundle.NewBlob(bundle.MediaTypeRelease, doc)
	tree := bundle.NewBlob(bundle.MediaTypeTree, pl.content.Gzip)
	a := artifact{blobs: []bundle.Blob{tree, config}}
	if last := pl.standing.verified; last != nil && last.Release.Content == r.Content {
		kept, err := pl.repo.Exists(ctx, last.Tree)
		if err != nil {
			return artifact{}, err
		}
		if kept {
			tree.Descriptor, a.blobs = last.Tree, a.blobs[1:]
		}
	}
	m := ocispec.Manifest{
		ArtifactType: bundle.MediaTypeBundle, Config: config.Descriptor, Layers: []ocispec.Descriptor{tree.Descriptor},
		Annotations: p.annotations(r.Environment+"/"+r.ClusterType, r.Tag()),
	}
	m.Config.Data = doc
	if n := len(pl.held); n > 0 {
		m.Annotations[annotationHeld] = strconv.Itoa(n)
	}
	err = p.finish(&a, m, r.Stream().Repository())
	return a, err
}

// annotations are what registries and other tools show.
func (p *publication) annotations(title, version string) map[string]string {
	created := p.opts.Created
	if created.IsZero() {
		created = p.issuedAt
	}
	all := map[string]string{
		ocispec.AnnotationCreated: created.UTC().Format(time.RFC3339),
		ocispec.AnnotationTitle:   title,
		ocispec.AnnotationVersion: version,
	}
	if rev := cmp.Or(p.done.BaseCommit, p.done.EnvironmentCommit); rev != "" {
		all[ocispec.AnnotationRevision] = rev
	}
	if p.opts.Source != "" {
		all[ocispec.AnnotationSource] = p.opts.Source
	}
	return all
}

// finish adds the manifest and its signature.
func (p *publication) finish(a *artifact, m ocispec.Manifest, repository string) error {
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > bundle.MaxManifestBytes {
		return fmt.Errorf("manifest of %s: %w", repository, bundle.ErrTooLarge)
	}
	a.manifest = bundle.NewBlob(m.MediaType, data)
	a.signed, err = bundle.SignManifest(a.manifest.Descriptor.Digest, p.to.Name(repository), p.key)
	return err
}
