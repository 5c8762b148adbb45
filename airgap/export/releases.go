package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/published"
)

// chosen is a release that travels.
type chosen struct {
	stream    bundle.Stream
	ring      string // empty for latest
	repo      bundle.Source
	bundle    document
	signature document
	bundle.Release
}

func (c chosen) name() string { return bundle.ReleaseName(c.Number, c.bundle.Digest) }

// user names the release's stream in lists.
func (c chosen) user() string { return c.stream.Environment + "/" + c.stream.ClusterType }

// record is an environment record that travels.
type record struct {
	manifest, signature document
	bundle.EnvironmentRecord
}

// readManifest reads a small manifest.
func readManifest(ctx context.Context, src bundle.Source, d ocispec.Descriptor) (m ocispec.Manifest, data []byte, err error) {
	if data, err = bundle.ReadBlob(ctx, src, d, bundle.MaxManifestBytes); err != nil {
		return m, nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	for _, part := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if part.Digest.Validate() != nil || part.Digest.Algorithm() != digest.SHA256 || part.Size < 0 {
			return m, nil, fmt.Errorf("manifest %s names %.100q, which is no SHA-256 digest, or has a negative size", d.Digest, part.Digest)
		}
	}
	return m, data, nil
}

// missing says of a delta that it is missing, and what to do then.
func missing(d ocispec.Descriptor, err error) error { return delta.Missing(d, err) }

// readSignature reads the signatures of a manifest. The error is a *bundle.Refusal if there is none.
func readSignature(ctx context.Context, src bundle.Source, signed digest.Digest) (document, error) {
	d, err := bundle.ResolveManifest(ctx, src, bundle.SignatureTag(signed))
	if errors.Is(err, errdef.ErrNotFound) {
		return document{}, bundle.Refuse(bundle.Unsigned, "manifest %s has no signature", signed)
	}
	if err != nil {
		return document{}, fmt.Errorf("signature of %s: %w", signed, err)
	}
	doc, err := readDocument(ctx, src, d)
	if err != nil {
		return doc, fmt.Errorf("signature of %s: %w", signed, err)
	}
	return doc, nil
}

// readRecord returns the environment's record, or nil if there is none. A record without a signature does not travel.
func readRecord(ctx context.Context, at *published.Place, environment string, p *Plan) (*record, error) {
	e, err := at.Environment(environment)
	if err != nil {
		return nil, err
	}
	d, err := bundle.ResolveManifest(ctx, e.Repo, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, _, err := e.ReadAt(ctx, d)
	if err != nil {
		return nil, err
	}
	r := &record{EnvironmentRecord: v.Record}
	if r.manifest, err = readDocument(ctx, e.Repo, d); err != nil {
		return nil, err
	}
	r.signature, err = readSignature(ctx, e.Repo, d.Digest)
	if refusal := (*bundle.Refusal)(nil); errors.As(err, &refusal) {
		p.warn("the record of environment %s has no signature and does not travel", environment)
		r.manifest, err = document{}, nil
	}
	return r, err
}

// clusterTypes returns the cluster types of the request, else those of the record, else those that the location lists.
func clusterTypes(ctx context.Context, at *published.Place, r Request, rec *record) ([]string, error) {
	switch {
	case len(r.ClusterTypes) > 0:
		return slices.Compact(slices.Sorted(slices.Values(r.ClusterTypes))), nil
	case rec != nil && len(rec.Types()) > 0:
		return rec.Types(), nil
	}
	repositories, err := at.Store.Repositories(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, &NoEnvironmentError{Environment: r.Environment, Err: err}
	}
	if err != nil {
		return nil, err
	}
	var types []string
	for _, s := range published.StreamsOf(repositories, r.Environment) {
		types = append(types, s.ClusterType)
	}
	if len(types) == 0 {
		return nil, &NoEnvironmentError{Environment: r.Environment, Repositories: repositories}
	}
	return types, nil
}

// readReleases reads the releases that travel, sorted by repository and ring.
func readReleases(ctx context.Context, at *published.Place, r Request, rec *record, p *Plan) ([]chosen, error) {
	types, err := clusterTypes(ctx, at, r, rec)
	if err != nil {
		return nil, err
	}
	rings := slices.Compact(slices.Sorted(slices.Values(r.Rings)))
	if len(rings) == 0 {
		rings = []string{""}
	}
	all := make([]chosen, len(types)*len(rings))
	for i := range all {
		all[i].stream = bundle.Stream{Environment: r.Environment, ClusterType: types[i/len(rings)]}
		all[i].ring = rings[i%len(rings)]
	}
	none := make([]error, len(all))
	err = inParallel(ctx, len(all), func(ctx context.Context, i int) error {
		err := all[i].read(ctx, at, r.Release)
		if errors.As(err, new(*NoReleaseError)) {
			none[i], err = err, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var found []chosen
	for i, c := range all {
		switch {
		case none[i] == nil:
			found = append(found, c)
		case len(r.ClusterTypes) > 0 || c.ring != "":
			return nil, none[i]
		default:
			p.warn("%s has no release for agents without a ring, and does not travel", c.user())
		}
	}
	if len(found) == 0 {
		return nil, none[0]
	}
	p.Contents.Platform = found[0].Platform
	for _, c := range found {
		if own := c.Release.Stream(); own.Environment != c.stream.Environment || own.ClusterType != c.stream.ClusterType {
			p.warn("the newest release of %s is one of %s/%s: agents will refuse it", c.user(), own.Environment, own.ClusterType)
		}
		if c.Platform != p.Contents.Platform {
			return nil, fmt.Errorf("%s is of platform %q, and %s of %q: a package carries one platform", found[0].user(), p.Contents.Platform, c.user(), c.Platform)
		}
	}
	return found, nil
}

// read reads the release with its signature: the newest for the ring, or the one with that digest.
func (c *chosen) read(ctx context.Context, at *published.Place, wanted digest.Digest) error {
	if err := c.readRelease(ctx, at, wanted); err != nil {
		return err
	}
	var err error
	if c.signature, err = readSignature(ctx, c.repo, c.bundle.Digest); err != nil {
		return fmt.Errorf("%s: %w", c.user(), err)
	}
	return nil
}

// readRelease is read without the signature.
func (c *chosen) readRelease(ctx context.Context, at *published.Place, wanted digest.Digest) (err error) {
	t, err := at.Type(c.stream)
	if err != nil {
		return err
	}
	c.repo = t.Repo
	reference := bundle.MovingTag(c.ring)
	if wanted != "" {
		reference = wanted.String()
	}
	d, err := bundle.ResolveManifest(ctx, c.repo, reference)
	if errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout) {
		return &NoReleaseError{c.stream, c.ring, err}
	}
	if err != nil {
		return err
	}
	v, _, err := t.ReadAt(ctx, d)
	if err != nil {
		return fmt.Errorf("%s: %w", c.user(), err)
	}
	c.Release = v.Release
	if c.bundle, err = readDocument(ctx, c.repo, d); err != nil {
		return fmt.Errorf("%s: %w", c.user(), err)
	}
	return nil
}

// checkExpiry refuses expired releases unless there is a reason, and warns of those that expire soon.
func checkExpiry(r Request, releases []chosen, p *Plan) error {
	if r.Now.IsZero() {
		return nil
	}
	var expired []string
	for _, c := range releases {
		x := c.Expiry(r.Now)
		if !x.Expired {
			p.warnBeforeEnd(r, c, x)
			continue
		}
		expired = append(expired, fmt.Sprintf("release %s of %s %s", c.name(), c.user(), x.Text))
		if r.AllowExpired != "" {
			p.warn("release %s of %s %s: only agents that have it already take it", c.name(), c.user(), x.Text)
			p.Contents.AllowExpired = bundle.OneLine(r.AllowExpired)
		}
	}
	if len(expired) > 0 && r.AllowExpired == "" {
		return joined(bundle.Expired, expired)
	}
	return nil
}

// warnBeforeEnd warns if the validity of a release ends before the next trip.
func (p *Plan) warnBeforeEnd(r Request, c chosen, x bundle.Expiry) {
	switch {
	case r.NextTrip > 0 && c.ExpiresAt.Before(r.Now.Add(r.NextTrip)):
		p.warn("release %s of %s expires %s, before the next trip: publish the environment again first, or plan a trip before %s", c.name(), c.user(), x.Text, show.Time(c.ExpiresAt))
	case r.NextTrip == 0 && x.Soon:
		p.warn("release %s of %s expires %s: it has to be imported by %s", c.name(), c.user(), x.Text, show.Time(c.ExpiresAt))
	}
}

// readTrust returns the versions of the trust document, from the first on; none for releases of epoch 0, which have none.
func readTrust(ctx context.Context, at *published.Place, releases []chosen) (versions []document, err error) {
	if !slices.ContainsFunc(releases, func(c chosen) bool { return c.Epoch > 0 }) {
		return nil, nil
	}
	documents, err := at.Documents()
	if err != nil {
		return nil, err
	}
	all, err := documents.Versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("trust document: %w", err)
	}
	for i, d := range all {
		doc, err := readDocument(ctx, documents.Repo, d)
		if err != nil {
			return nil, fmt.Errorf("trust document %s: %w", bundle.TrustTag(int64(i)+1), err)
		}
		versions = append(versions, doc)
	}
	return versions, nil
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}
