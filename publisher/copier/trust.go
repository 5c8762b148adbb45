package copier

import (
	"bytes"
	"context"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
)

// readTrust reads a trust document, and who of its own root keys has signed it. Whether those are to be
// believed is for the chain to say.
func (o *original) readTrust(ctx context.Context) error {
	if o.repo.name != bundle.TrustRepository {
		return refusal(bundle.BadContent, "it is a trust document")
	}
	envelope, err := bundle.ReadBlob(ctx, o.repo, o.manifest.Config, bundle.MaxTrustBytes)
	if err != nil {
		return err
	}
	d, signers, err := bundle.OpenTrust(envelope)
	if err != nil {
		return err
	}
	o.statement = statement{
		kind: "trust", platform: d.Platform, own: bundle.TrustTag(d.Version), trust: &d, envelope: envelope, signers: signers,
		order: bundle.Order{Epoch: d.Epoch, Sequence: d.Version, IssuedAt: d.IssuedAt, Digest: o.desc.Digest},
	}
	return nil
}

// planTrust reads the trust documents, from version 1 until there is none, and follows them from the one
// that is believed, if there is one.
func (c *copier) planTrust(ctx context.Context) error {
	repo, err := c.from.repository(bundle.TrustRepository)
	if err != nil {
		return err
	}
	documents, err := c.from.published().Documents()
	if err != nil {
		return err
	}
	versions, err := documents.Versions(ctx)
	if err != nil {
		return err
	}
	for i, desc := range versions {
		tag := bundle.TrustTag(int64(i) + 1)
		o, err := c.judge(ctx, repo, desc.Digest)
		if err != nil {
			return err
		}
		if o.own != tag {
			return refusal(bundle.TrustDocumentRejected, "%s:%s holds version %d", repo.fullName(), tag, o.order.Sequence)
		}
		if err := c.follow(o); err != nil {
			return fmt.Errorf("%s:%s: %w", repo.fullName(), tag, err)
		}
		c.documents = append(c.documents, o)
	}
	if err := c.warnOfGap(ctx, repo); err != nil {
		return err
	}
	if len(c.chain) > 0 {
		trust := c.chain.Current().Trust()
		c.trust = &trust
	}
	return nil
}

// warnOfGap warns if a version is missing before a later one. Agents do not get beyond such a gap.
func (c *copier) warnOfGap(ctx context.Context, repo placedRepository) error {
	all, err := repo.Tags(ctx)
	for _, tag := range all {
		var version int64
		if n, _ := fmt.Sscanf(tag, "v%d", &version); n == 1 && version > int64(len(c.documents)) && tag == bundle.TrustTag(version) {
			c.warn("%s has %s, but not %s: agents get no further", repo.fullName(), tag, bundle.TrustTag(int64(len(c.documents))+1))
			break
		}
	}
	return err
}

// follow adds a document to the chain that begins with the one that is believed.
func (c *copier) follow(o *original) error {
	if len(c.chain) == 0 {
		return nil
	}
	if o.order.Sequence == 1 {
		if !sameTrustDocument(*o.trust, c.chain[0].Document) {
			return refusal(bundle.TrustDocumentRejected, "it is another version 1 than the one that is believed here")
		}
		return nil
	}
	chain, err := c.chain.Append(o.envelope)
	if err == nil {
		c.chain = chain
	}
	return err
}

// sameTrustDocument reports whether a and b have the same content, whatever their signatures.
func sameTrustDocument(a, b bundle.TrustDocument) bool {
	one, err := a.Marshal()
	other, err2 := b.Marshal()
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// compareTrust judges the destination's document with the version of o. If their contents differ, a person has to choose.
func compareTrust(standing, o *original) (standingVerdict, error) {
	switch {
	case !sameTrustDocument(*standing.trust, *o.trust):
		return 0, refusal(bundle.TrustDocumentRejected, "%s:%s is another document than %s:%s: find out whose it is before you --force it",
			standing.repo.fullName(), o.own, o.repo.fullName(), o.own)
	case len(standing.signers) >= len(o.signers):
		return standsAsWell, nil
	}
	return isReplaced, nil
}
