package publisher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// carryOut pushes what pl asks for, or finds that it is there.
func (p *publication) carryOut(ctx context.Context, pl *plan) error {
	for race := 1; pl.result.Result != releases.OutcomeFailed; race++ {
		err := p.attempt(ctx, pl)
		if !errors.Is(err, releases.ErrRace) {
			return err
		}
		if race == releases.MaxRaces {
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
	if len(pl.lanes) > 0 {
		return p.attemptRings(ctx, pl)
	}
	moving := movingTags(p.opts.Rings, pl.standing)
	if last := pl.standing.verified; last != nil {
		same, renewed, err := p.isCurrent(ctx, pl, last)
		if err != nil {
			return err
		}
		if same {
			moved, err := releases.Settle(ctx, pl.repo, last.Descriptor, last.Release.Tag(), moving, pl.standing.Tags)
			pl.result.Result = releases.OutcomeUnchanged
			if moved {
				pl.result.Result = releases.OutcomePublished
			}
			return err
		}
		pl.result.Renewed = renewed
	}
	if v := pl.standing.pending; v != nil && p.isPending(pl, v) {
		have, _, err := p.cosign(ctx, pl.repo, v.Release.Stream().Repository(), v.Descriptor.Digest)
		if err != nil {
			return err
		}
		return p.release(ctx, pl, v.Descriptor, v.Release, moving, have)
	}
	release, err := p.newRelease(pl)
	if err != nil {
		return err
	}
	a, err := p.newBundle(ctx, pl, release, nil)
	if err != nil {
		return err
	}
	if err := push(ctx, pl.repo, a); err != nil {
		return err
	}
	return p.release(ctx, pl, a.manifest.Descriptor, release, moving, len(p.keys))
}

// release makes a release visible that is there in full: to agents if as many keys have signed it as have
// to, else to those who are to sign it.
func (p *publication) release(ctx context.Context, pl *plan, desc ocispec.Descriptor, r bundle.Release, moving []string, have int) error {
	pl.result.Sequence, pl.result.Digest, pl.result.Number = r.Sequence, desc.Digest, r.Number
	var err error
	pl.result.Result, pl.result.Signatures, err = p.makeVisible(ctx, pl, desc, r, moving, have)
	return err
}

func (p *publication) makeVisible(ctx context.Context, pl *plan, desc ocispec.Descriptor, r bundle.Release, moving []string, have int) (releases.Outcome, *SignatureCount, error) {
	if need := p.trust.Need(); have < need {
		return releases.OutcomePending, &SignatureCount{have, need}, wait(ctx, pl.repo, desc, releases.PendingTag(r.Epoch, r.Sequence))
	}
	_, err := releases.Settle(ctx, pl.repo, desc, r.Tag(), moving, pl.standing.Tags)
	return releases.OutcomePublished, nil, err
}

// movingTags returns the tags that a release for some rings moves where the platform names none: theirs, else those of
// every ring that has a tag, and latest. Where it names them, see tagsOf.
func movingTags(rings []string, s standing) []string {
	var tags []string
	for _, r := range rings {
		tags = append(tags, bundle.MovingTag(r))
	}
	if len(tags) > 0 {
		return tags
	}
	return append(s.RingTags(), bundle.LatestTag)
}

// isCurrent reports whether the last release still says what a new one would. Where only its age or its
// signatures ask for a new one, renewed says so. Its tree and its own tag must be there too: a registry may
// have lost the one, and another publisher have taken the other.
func (p *publication) isCurrent(ctx context.Context, pl *plan, last *bundle.Verified) (same bool, renewed string, err error) {
	if !pl.matches(last.Release, p.opts.Rings) {
		return false, "", nil
	}
	if renewed = p.renewal(pl.standing, p.opts.RenewBefore); renewed != "" {
		return false, renewed, nil
	}
	if v := pl.standing.pending; v != nil {
		if !p.isPending(pl, v) {
			renewed = "it takes the place of " + releases.PendingTag(v.Release.Epoch, v.Release.Sequence)
		}
		return false, renewed, nil
	}
	if pl.standing.taken {
		return false, "another publisher took its tag", nil
	}
	if same, err = pl.repo.Exists(ctx, last.Tree); !same {
		renewed = "its files are not there any more"
	}
	return same, renewed, err
}

// matches reports whether r has the content, artifacts and rings of pl.
func (pl *plan) matches(r bundle.Release, rings []string) bool {
	return r.Content == pl.content.Content && r.Artifacts == pl.artifacts && slices.Equal(r.Rings, rings)
}

// renewal says why the release of s is made again although nothing in it is new; empty where it is not. Before is how
// long before its end that is done; zero is a third of its validity.
func (rd *reader) renewal(s standing, before time.Duration) string {
	switch r := s.verified.Release; {
	case r.Epoch != rd.trust.Epoch:
		return fmt.Sprintf("epoch %d has begun", rd.trust.Epoch)
	case !s.current:
		return fmt.Sprintf("version %d of the trust document asks for other signatures", rd.trust.Document.Version)
	case rd.ends(r, before):
		return "it expires at " + r.ExpiresAt.Format(time.RFC3339)
	}
	return ""
}

// ends reports whether a release is so near its end that it is renewed.
func (rd *reader) ends(r bundle.Release, before time.Duration) bool {
	if before == 0 {
		before = r.ExpiresAt.Sub(r.IssuedAt) / 3
	}
	return r.ExpiresAt.Sub(rd.issuedAt) <= before
}

// isPending reports whether v, which waits for signatures, is what would be published now. Whoever publishes
// signs it unseen, so that nothing may be in it which a release of theirs would not have: neither content, nor
// the word for where that came from, nor a layer that is not known.
func (p *publication) isPending(pl *plan, v *bundle.Verified) bool {
	return p.waitsFor(v, p.plannedRelease(pl))
}

// waitsFor reports whether v, which waits for signatures, is the release r but for its place and times.
func (p *publication) waitsFor(v *bundle.Verified, r bundle.Release) bool {
	w := v.Release
	return w.Content == r.Content && w.Artifacts == r.Artifacts && slices.Equal(w.Rings, r.Rings) &&
		w.BaseCommit == r.BaseCommit && w.EnvironmentCommit == r.EnvironmentCommit &&
		w.ExpiresAt.Sub(w.IssuedAt) == r.ExpiresAt.Sub(r.IssuedAt) && !p.ends(w, p.opts.RenewBefore) && releases.CheckLayers(v.Manifest) == nil
}

// plannedRelease returns the release that pl asks for, without its sequence.
func (p *publication) plannedRelease(pl *plan) bundle.Release {
	r := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: p.done.Platform, Environment: p.done.Environment, ClusterType: pl.clusterType.Name,
		Rings: p.opts.Rings, Epoch: p.trust.Epoch, IssuedAt: p.issuedAt, ExpiresAt: p.issuedAt.Add(pl.validFor),
		BaseCommit: p.done.BaseCommit, EnvironmentCommit: p.done.EnvironmentCommit, Artifacts: pl.artifacts,
	}
	if pl.content != nil {
		r.Content = pl.content.Content
	}
	return r
}

func (p *publication) newRelease(pl *plan) (bundle.Release, error) {
	r := p.plannedRelease(pl)
	r.Number = bundle.NextNumber(pl.standing.verified)
	last := max(lastSequence(pl.standing.verified, r.Epoch), lastSequence(pl.standing.pending, r.Epoch))
	var err error
	if r.Sequence, err = pl.standing.Next(r.Epoch, last, p.issuedAt); err != nil {
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

// newBundle makes the artifact of a release, which is from made anew unless that is nil. Where a standing one has the
// same tree, it keeps its layers, since a compressor's bytes may differ from one Go release to the next.
func (p *publication) newBundle(ctx context.Context, pl *plan, r bundle.Release, from *bundle.Verified) (artifact, error) {
	doc, err := r.Marshal()
	if err != nil {
		return artifact{}, err
	}
	config := bundle.NewBlob(bundle.MediaTypeRelease, doc)
	layers, blobs, err := p.layers(ctx, pl, r)
	if err != nil {
		return artifact{}, err
	}
	a := artifact{blobs: append(blobs, config)}
	m := ocispec.Manifest{
		ArtifactType: bundle.MediaTypeBundle, Config: config.Descriptor, Layers: layers,
		Annotations: p.annotations(r.Environment+"/"+r.ClusterType, r.Tag()),
	}
	m.Config.Data = doc
	if n := len(pl.held); n > 0 {
		m.Annotations[releases.AnnotationHeld] = strconv.Itoa(n)
	}
	if from != nil {
		m.Annotations = maps.Clone(from.Manifest.Annotations)
		m.Annotations[ocispec.AnnotationVersion] = r.Tag()
	}
	err = p.finish(&a, m, r.Stream().Repository())
	return a, err
}

// layers returns those of a release's manifest, and the blobs among them that are to be pushed.
func (p *publication) layers(ctx context.Context, pl *plan, r bundle.Release) (layers []ocispec.Descriptor, blobs []bundle.Blob, err error) {
	data, ok := pl.layerOf(r.Content, p.opts.Cache)
	tree := bundle.NewBlob(bundle.MediaTypeTree, data)
	last := pl.withContent(r.Content)
	if last == nil {
		deltas, err := p.deltas(ctx, pl, p.opts.Cache, p.opts.DeltaCommand)
		blobs = append([]bundle.Blob{tree}, deltas...)
		for _, b := range blobs {
			layers = append(layers, b.Descriptor)
		}
		return layers, blobs, err
	}
	for _, layer := range append([]ocispec.Descriptor{last.Tree}, releases.DeltasOf(last.Manifest)...) {
		there, err := pl.repo.Exists(ctx, layer)
		switch {
		case err != nil:
			return nil, nil, err
		case there:
			layers = append(layers, layer)
		case layer.Digest == last.Tree.Digest && !ok:
			return nil, nil, fmt.Errorf("%s: the files of release %s are gone: %w", pl.clusterType.Name, last.Release.Tag(), releases.ErrRace)
		case layer.Digest == last.Tree.Digest:
			layers, blobs = append(layers, tree.Descriptor), append(blobs, tree)
		}
	}
	return layers, blobs, nil
}

// withContent returns a release of pl that stands and has this content; nil where there is none.
func (pl *plan) withContent(c bundle.Content) *bundle.Verified {
	if last := pl.standing.verified; last != nil && last.Release.Content == c {
		return last
	}
	for _, l := range pl.lanes {
		if l.release != nil && l.release.Release.Content == c {
			return l.release
		}
	}
	return nil
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
func (s *signer) finish(a *artifact, m ocispec.Manifest, repository string) error {
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > bundle.MaxManifestBytes {
		return fmt.Errorf("manifest of %s: %w", repository, bundle.ErrTooLarge)
	}
	a.manifest = bundle.NewBlob(m.MediaType, data)
	var signers []signature.Signer
	for _, k := range s.keys {
		signers = append(signers, k)
	}
	a.signed, err = bundle.SignManifest(a.manifest.Descriptor.Digest, s.location.Name(repository), signers...)
	return err
}
