package publisher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// maker makes the artifacts of releases and records, and signs them.
type maker struct {
	signer releases.Signer
	// origin are the annotations that say when and of which commit something was made.
	origin map[string]string
	// reader, cache and deltaCommand are for deltas; see pack.Deltas.
	reader       *state.Reader
	cache        scheduler.Cache
	deltaCommand []string
	deltaSlots   slots // see pusher
}

func (ps *pusher) maker() maker {
	created := ps.created
	if created.IsZero() {
		created = ps.IssuedAt
	}
	origin := map[string]string{ocispec.AnnotationCreated: created.UTC().Format(time.RFC3339)}
	if rev := cmp.Or(ps.commits.base, ps.commits.environment); rev != "" {
		origin[ocispec.AnnotationRevision] = rev
	}
	if ps.source != "" {
		origin[ocispec.AnnotationSource] = ps.source
	}
	if ps.message != "" {
		origin[bundle.AnnotationMessage] = ps.message
	}
	return maker{ps.signer, origin, ps.Reader, ps.cache, ps.deltaCommand, ps.deltaSlots}
}

// annotations are what registries and other tools show.
func (m maker) annotations(title, version string) map[string]string {
	all := maps.Clone(m.origin)
	all[ocispec.AnnotationTitle], all[ocispec.AnnotationVersion] = title, version
	return all
}

// bundle makes the artifact of a release, which is from made anew unless that is nil. Where a standing one has the
// same tree, it keeps its layers, since a compressor's bytes may differ from one Go release to the next.
func (m maker) bundle(ctx context.Context, pl *plan, r bundle.Release, from *bundle.Verified) (releases.Artifact, error) {
	layers, blobs, err := m.layers(ctx, pl, r.Content, from)
	if err != nil {
		return releases.Artifact{}, err
	}
	manifest, config, err := m.manifest(pl, r, from, layers)
	if err != nil {
		return releases.Artifact{}, err
	}
	return m.signer.Sign(r.Stream().Repository(), manifest, blobs, config)
}

// manifest returns the manifest of a release, and the blob of its config.
func (m maker) manifest(pl *plan, r bundle.Release, from *bundle.Verified, layers []ocispec.Descriptor) (ocispec.Manifest, bundle.Blob, error) {
	doc, err := r.Marshal()
	if err != nil {
		return ocispec.Manifest{}, bundle.Blob{}, err
	}
	config := bundle.NewBlob(bundle.MediaTypeRelease, doc)
	manifest := ocispec.Manifest{
		ArtifactType: bundle.MediaTypeBundle, Config: config.Descriptor, Layers: layers,
		Annotations: m.annotations(r.Environment+"/"+r.ClusterType, r.Tag()),
	}
	manifest.Config.Data = doc
	if last := pl.withContent(r.Content); last != nil && manifest.Annotations[bundle.AnnotationMessage] == "" {
		if text := bundle.MessageOf(last.Manifest); text != "" { // it describes the content, which is the same
			manifest.Annotations[bundle.AnnotationMessage] = text
		}
	}
	n := 0
	for _, h := range pl.held {
		if h.Line.HeldFrom != nil {
			n++
		}
	}
	if n > 0 {
		manifest.Annotations[releases.AnnotationHeld] = strconv.Itoa(n)
	}
	if from != nil && !isPacked(from) {
		manifest.Annotations = maps.Clone(from.Manifest.Annotations)
		manifest.Annotations[ocispec.AnnotationVersion] = r.Tag()
	}
	return manifest, config, nil
}

// layers returns those of the manifest of a release with content c, and the blobs among them that are to be pushed. From is
// a release that has the content; nil if none but those that stand may have it.
func (m maker) layers(ctx context.Context, pl *plan, c bundle.Content, from *bundle.Verified) (layers []ocispec.Descriptor, blobs []bundle.Blob, err error) {
	data, ok := pl.layerOf(c, m.cache)
	tree := bundle.NewBlob(bundle.MediaTypeTree, data)
	last := pl.withContent(c)
	if last == nil {
		last = from
	}
	if last == nil || isPacked(last) {
		leave := m.deltaSlots.enter()
		made, err := pack.Deltas(ctx, m.reader, pl.Type, cmp.Or(pl.packed[c.DiffID], pl.tree), m.cache, m.deltaCommand)
		leave()
		blobs = append([]bundle.Blob{tree}, made...)
		for _, b := range blobs {
			layers = append(layers, b.Descriptor)
		}
		return layers, blobs, err
	}
	for _, layer := range append([]ocispec.Descriptor{last.Tree}, published.DeltasOf(last.Manifest)...) {
		there, err := slices.Contains(pl.seen, layer.Digest), error(nil)
		if !there {
			there, err = pl.Repo.Exists(ctx, layer)
		}
		switch {
		case err != nil:
			return nil, nil, err
		case there:
			layers = append(layers, layer)
		case layer.Digest == last.Tree.Digest && !ok:
			return nil, nil, fmt.Errorf("%s: the files of release %s are gone: %w", pl.Name, last.Release.Tag(), releases.ErrRace)
		case layer.Digest == last.Tree.Digest:
			layers, blobs = append(layers, tree.Descriptor), append(blobs, tree)
		}
	}
	return layers, blobs, nil
}

// layerOf returns the compressed tree of a content that this program has at hand.
func (c content) layerOf(want bundle.Content, cache scheduler.Cache) ([]byte, bool) {
	if tree := cmp.Or(c.packed[want.DiffID], c.tree); tree != nil && tree.Content == want {
		return tree.Gzip, true
	}
	return pack.Before(cache, want)
}

// isPacked reports whether a release that rings are to have is in no registry yet; see plan.contents.
func isPacked(v *bundle.Verified) bool { return v.Descriptor.Digest == "" }

// withContent returns a release that stands and has this content; nil where there is none.
func (f found) withContent(c bundle.Content) *bundle.Verified {
	if last := f.Verified; last != nil && last.Release.Content == c {
		return last
	}
	for _, l := range f.Rings {
		if l.Release != nil && l.Release.Release.Content == c {
			return l.Release
		}
	}
	return nil
}

// record makes the artifact of an environment's record, with its ledger.
func (m maker) record(r bundle.EnvironmentRecord, l *ledger.Ledger) (releases.Artifact, error) {
	doc, err := r.Marshal()
	if err != nil {
		return releases.Artifact{}, err
	}
	packed, err := l.Marshal()
	if err != nil {
		return releases.Artifact{}, err
	}
	config := bundle.NewBlob(bundle.MediaTypeEnvironment, doc)
	layer := bundle.NewBlob(bundle.MediaTypeLedger, packed)
	manifest := ocispec.Manifest{
		ArtifactType: bundle.MediaTypeEnvironment, Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
		Annotations: m.annotations(r.Environment, r.Tag()),
	}
	return m.signer.Sign(bundle.EnvironmentRepository(r.Environment), manifest, []bundle.Blob{layer}, config)
}
