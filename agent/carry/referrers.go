package carry

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// referrer is a signature, an attestation or an SBOM of an artifact, which belongs to it once the artifact was brought. Nothing of it is
// verified here: that is for the admission check of the site.
type referrer struct {
	// Tag is cosign's tag for it; empty for one that names its subject itself.
	Tag      string             `json:"tag,omitempty"`
	Manifest ocispec.Descriptor `json:"manifest"`
}

// loadReferrers reads the known referrers once.
func (c *Carrier) loadReferrers() error {
	if c.referrers != nil {
		return nil
	}
	err := c.db.View(func(tx *bbolt.Tx) error {
		r, err := load(tx)
		c.referrers = r.Referrers
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if c.referrers == nil {
		c.referrers = map[digest.Digest][]referrer{}
	}
	return nil
}

// referrersOf returns the known referrers of the artifacts in lists.
func (c *Carrier) referrersOf(lists []List) map[digest.Digest][]referrer {
	kept := map[digest.Digest][]referrer{}
	for _, l := range lists {
		for _, w := range l.Artifacts {
			if known := c.referrers[w.Digest]; len(known) > 0 {
				kept[w.Digest] = known
			}
		}
	}
	return kept
}

// withReferrers adds the known referrers of an artifact to what it consists of.
func (c *Carrier) withReferrers(root digest.Digest, g graph.Graph) graph.Graph {
	if len(c.referrers[root]) == 0 {
		return g
	}
	g.Blobs = slices.Clone(g.Blobs)
	for _, r := range c.referrers[root] {
		parts, err := c.walk(r.Manifest, nil)
		if err != nil {
			parts = graph.Graph{Manifests: []ocispec.Descriptor{r.Manifest}}
		}
		g.Blobs = append(g.Blobs, parts.All()...)
	}
	return g
}

// namedReferrers lists the referrers of an artifact for the store's index.
func (c *Carrier) namedReferrers(w Wanted, whole bool) (all []content.Named) {
	for _, r := range c.referrers[w.Digest] {
		n := content.Named{Manifest: ocispec.Descriptor{Digest: r.Manifest.Digest}}
		if whole {
			n = content.Named{Repository: w.Repository, Tag: r.Tag, Manifest: r.Manifest}
		}
		all = append(all, n)
	}
	return all
}

// bringReferrers looks for the referrers of an artifact, and stores the manifests of those that it finds. From then on they
// belong to the artifact. The error is that of a place that does not answer, or of this machine.
func (b *bringing) bringReferrers(ctx context.Context, sources []Source, w Wanted, g graph.Graph) error {
	if b.opts.WithoutReferrers {
		return nil
	}
	read := map[digest.Digest][]byte{}
	found, leftOut, err := graph.WalkReferrers(g, func(subject ocispec.Descriptor) (list []oci.Referrer, err error) {
		err = b.each(ctx, sources, func(s Source) (err error) {
			list, err = oci.Referrers(ctx, s.Target, subject)
			return err
		})
		return list, err
	}, func(d ocispec.Descriptor) (data []byte, err error) {
		if data, err = b.stored(ctx, d); err == nil {
			return data, nil
		}
		err = b.each(ctx, sources, func(s Source) (err error) {
			data, _, err = fetch(ctx, s, d)
			return err
		})
		read[d.Digest] = data
		return data, err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil || reasonOf(err) == ReasonArtifactUnreachable || onDisk(err):
		return err
	default:
		leftOut = append(leftOut, err.Error())
	}
	for _, text := range leftOut {
		b.opts.Log.Warn("a referrer of an artifact is left out", "artifact", w.name(), "err", bundle.Clip(text))
	}
	b.documents.Lock()
	defer b.documents.Unlock()
	var list []referrer
	for _, r := range found {
		for _, d := range r.Manifests {
			if err := b.blobs.Push(ctx, d, bytes.NewReader(read[d.Digest])); read[d.Digest] != nil && err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
				return state.Local("store: %w", err)
			}
			b.db.At("carry: a manifest of a referrer has arrived")
		}
		list = append(list, referrer{r.Tag, r.Manifests[0]})
	}
	return b.setReferrers(w.Digest, list)
}

// setReferrers has an artifact have these referrers.
func (b *bringing) setReferrers(root digest.Digest, list []referrer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(asKeys(b.referrers[root]), asKeys(list)) {
		return nil
	}
	b.referrers[root] = list
	return b.db.Update(func(tx *bbolt.Tx) error {
		r, err := load(tx)
		if err != nil {
			return err
		}
		if r.Referrers == nil {
			r.Referrers = map[digest.Digest][]referrer{}
		}
		if r.Referrers[root] = list; len(list) == 0 {
			delete(r.Referrers, root)
		}
		return state.Save(tx, state.Meta, keyRecord, r)
	})
}

// asKeys returns what tells referrers apart.
func asKeys(list []referrer) (keys []key) {
	for _, r := range list {
		keys = append(keys, key{r.Tag, r.Manifest.Digest})
	}
	return keys
}

// referrerBlobs brings the blobs of the referrers of an artifact, and forgets those that cannot be had: an artifact does not wait for them.
func (b *bringing) referrerBlobs(ctx context.Context, sources []Source, w Wanted) error {
	b.mu.Lock()
	list := slices.Clone(b.referrers[w.Digest])
	b.mu.Unlock()
	kept := list[:0]
	for _, r := range list {
		g, err := b.walk(r.Manifest, nil)
		for _, d := range g.Blobs {
			if err == nil {
				err = b.blob(ctx, sources, d)
			}
		}
		switch {
		case err == nil:
			kept = append(kept, r)
		case ctx.Err() != nil || reasonOf(err) == ReasonArtifactUnreachable || reasonOf(err) == ReasonNoRoom || onDisk(err):
			return err
		default:
			b.opts.Log.Warn("a referrer of an artifact is left out", "artifact", w.name(), "referrer", r.Manifest.Digest, "err", err)
		}
	}
	return b.setReferrers(w.Digest, kept)
}
