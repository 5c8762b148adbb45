package copier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// original is a manifest that is to be copied, with what belongs to it.
type original struct {
	// repo is where it was read. The destination's has the same name.
	repo      placedRepository
	desc      ocispec.Descriptor // with the manifest's bytes as data
	manifest  ocispec.Manifest
	signature *signature // nil for a trust document, whose signatures are in it
	statement
	// moving lists the tags, beside its own, that name it.
	moving []string

	// seen has what those tags name at the destination, and move lists the ones to set there.
	seen map[string]digest.Digest
	move []string
	// stands is true if the destination has an equivalent one.
	stands bool
	done   Item
}

// statement is what a release document, an environment record or a trust document says.
type statement struct {
	kind, platform string
	// own is the manifest's own tag.
	own   string
	order bundle.Order
	// clusterTypes are those of an environment record.
	clusterTypes map[string]digest.Digest
	// trust is a trust document, and signers are those of its own root keys that have signed its envelope.
	trust    *bundle.TrustDocument
	envelope []byte
	signers  []string
}

// readRepository reads the releases that moving tags name, and the one of the record, in their order.
func (c *copier) readRepository(ctx context.Context, name string, recorded digest.Digest) ([]*original, error) {
	repo, err := c.from.repository(name)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	named, err := published.ReadTags(ctx, repo)
	if err != nil {
		return nil, err
	}
	all := map[digest.Digest]*original{recorded: nil}
	for _, d := range named.Moving {
		all[d] = nil
	}
	delete(all, "")
	var releases []*original
	for d := range all {
		o, err := c.readOriginal(ctx, repo, d, named)
		if d == recorded && errors.Is(err, errdef.ErrNotFound) {
			c.warn("%s lacks %s, which the environment's record names", c.from.at.Name(name), d)
			continue
		}
		if err != nil {
			return nil, err
		}
		releases = append(releases, o)
	}
	slices.SortFunc(releases, func(a, b *original) int { return a.order.Compare(b.order) })
	return releases, nil
}

// readOriginal reads and judges a bundle or record of a repository that has the tags named.
func (c *copier) readOriginal(ctx context.Context, repo placedRepository, d digest.Digest, named published.Tags) (*original, error) {
	o, err := c.judge(ctx, repo, d)
	if err != nil {
		return nil, err
	}
	for _, tag := range slices.Sorted(maps.Keys(named.Moving)) {
		if named.Moving[tag] == d && tag != bundle.LatestTag {
			o.moving = append(o.moving, tag)
		}
	}
	if named.Moving[bundle.LatestTag] == d {
		o.moving = append(o.moving, bundle.LatestTag)
	}
	return o, refusePending(ctx, o, named)
}

// refusePending refuses a release that still lacks signatures: its own tag would say that it is complete.
func refusePending(ctx context.Context, o *original, named published.Tags) error {
	pending := "pending-" + strings.TrimPrefix(o.own, "s")
	if !slices.Contains(named.All, pending) || slices.Contains(named.All, o.own) {
		return nil
	}
	now, err := releases.Current(ctx, o.repo, pending)
	if err == nil && now == o.desc.Digest {
		err = refusal(bundle.BelowThreshold, "%s:%s still lacks signatures", o.repo.fullName(), pending)
	}
	return err
}

// judge reads a manifest, its document and its signatures. The error is a *bundle.Refusal where it is not
// what its repository is for, or not signed by whom it should be.
func (c *copier) judge(ctx context.Context, repo placedRepository, d digest.Digest) (*original, error) {
	o := &original{repo: repo}
	err := o.read(ctx, d)
	if err == nil {
		err = c.checkSigned(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", repo.fullName(), d, err)
	}
	return o, nil
}

func (o *original) read(ctx context.Context, d digest.Digest) error {
	var err error
	if o.desc, err = o.repo.ResolveManifest(ctx, d.String()); err != nil {
		return err
	}
	if o.desc.Data, err = bundle.ReadBlob(ctx, o.repo, o.desc, bundle.MaxManifestBytes); err != nil {
		return err
	}
	if err := json.Unmarshal(o.desc.Data, &o.manifest); err != nil {
		return refusal(bundle.BadContent, "manifest: %v", err)
	}
	switch o.manifest.ArtifactType {
	case bundle.MediaTypeBundle:
		err = o.readRelease(ctx)
	case bundle.MediaTypeEnvironment:
		err = o.readRecord(ctx)
	case bundle.MediaTypeTrust:
		return o.readTrust(ctx)
	default:
		return refusal(bundle.BadContent, "it is a %q, which wherry does not know", o.manifest.ArtifactType)
	}
	if err != nil {
		return err
	}
	o.signature, err = readSignatures(ctx, o.repo, bundle.SignatureTag(d))
	return err
}

func (o *original) readRelease(ctx context.Context) error {
	v, err := bundle.Read(ctx, o.repo, o.desc)
	if err != nil {
		return err
	}
	r := v.Release
	if own := r.Stream().Repository(); own != o.repo.name {
		return refusal(bundle.WrongClusterType, "its release document is for %s", own)
	}
	o.statement = statement{kind: kindBundle, platform: r.Platform, own: r.Tag(), order: published.OrderOf(v)}
	return nil
}

func (o *original) readRecord(ctx context.Context) error {
	v, err := bundle.ReadEnvironment(ctx, o.repo, o.desc)
	if err != nil {
		return err
	}
	r := v.Record
	if own := bundle.EnvironmentRepository(r.Environment); own != o.repo.name {
		return refusal(bundle.WrongEnvironment, "its record is for %s", own)
	}
	o.statement = statement{
		kind: "environment", platform: r.Platform, own: r.Tag(), clusterTypes: r.ClusterTypes, order: published.OrderOfRecord(v),
	}
	return nil
}

// checkSigned asks for the signatures that the trust in force wants, and without one for any.
func (c *copier) checkSigned(ctx context.Context, o *original) error {
	switch {
	case o.trust != nil: // judged by its chain
		return nil
	case o.signature == nil || len(o.signature.manifest.Layers) == 0:
		return refusal(bundle.Unsigned, "it has no signature")
	case c.trust == nil:
		return nil
	case c.chain != nil && o.platform != c.chain.Current().Platform:
		return refusal(bundle.WrongPlatform, "it is of the platform %q, and the trust document of %q", o.platform, c.chain.Current().Platform)
	case c.chain != nil && o.order.Epoch != c.trust.Epoch:
		return refusal(bundle.OldEpoch, "it has epoch %d, the trust in force has %d", o.order.Epoch, c.trust.Epoch)
	}
	_, err := bundle.VerifySignature(ctx, o.signature.of(o.repo), o.desc.Digest, *c.trust)
	return err
}

func refusal(reason bundle.Reason, format string, args ...any) error {
	return &bundle.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
