// Package copier brings releases with their signatures to another location.
//
// [Bundle] copies one bundle and [Environment] all that make up an environment. From a site package, the images and other
// artifacts that the bundles need go along with their referrers, to HOST/REPOSITORY below the destination. Newer releases never give way to older
// ones, unless that is asked for. Nothing here signs.
package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// atOnce is how many repositories are read, or written, at the same time.
const atOnce = 4

// Options are the optional parts of a copy. The zero value copies content with anybody's signature.
type Options struct {
	// Keys are public keys, one of which must have signed all copied content. If Keys and Trust are both nil,
	// anybody's signature is enough.
	Keys bundle.Keys
	// Trust is the envelope of version 1 of the platform's trust document. The later versions are read from
	// the source, and signatures must meet the last one.
	Trust []byte
	// Force moves tags from newer releases to older ones, and from other platforms' to this one's.
	Force bool
	// WithoutArtifacts leaves out the images and other artifacts that a site package holds.
	WithoutArtifacts bool
	// WithoutReferrers leaves out the signatures, attestations and SBOMs of these.
	WithoutReferrers bool
	// From and To configure the access to the two registries.
	From, To oci.Options
}

// Bundle copies the bundle that from names to the same repository below to, with its signatures, its
// own tag, and the moving tags that name it.
//
// It reads and judges everything before it writes, and writes in the order of Publish, so that it can be
// killed and repeated at any time; content that the destination has is not sent again. A tag moves forward only: a tag
// that names a newer release stays, and is in the result. Signatures that only the destination has stay too.
// The error wraps an *Error if a registry or folder failed, and a *bundle.Refusal if content is not trusted.
func Bundle(ctx context.Context, from oci.Reference, to oci.Location, opts Options) (*Copied, error) {
	from, err := published.BundleReference(from)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	c, err := newCopier(from.Location, to, opts)
	if err != nil {
		return nil, err
	}
	if err := c.planBundle(ctx, from); err != nil {
		return nil, err
	}
	return c.carryOut(ctx)
}

// Environment copies what makes up an environment, as Bundle copies one bundle: the releases that
// moving tags name, and the environment's record. Decisions about it are copied by rollout/decisions.
func Environment(ctx context.Context, from oci.Location, environment string, to oci.Location, opts Options) (*Copied, error) {
	if strings.Contains(environment, "/") {
		return nil, usage.Errorf("%q is no environment", environment)
	}
	if err := oci.CheckName(environment); err != nil {
		return nil, usage.Errorf("environment: %w", err)
	}
	c, err := newCopier(from, to, opts)
	if err != nil {
		return nil, err
	}
	if err := c.planEnvironment(ctx, environment); err != nil {
		return nil, err
	}
	return c.carryOut(ctx)
}

// copier is one run of Bundle or Environment.
type copier struct {
	opts     Options
	from, to place
	warnings []string
	// bundles are written first, each repository's in their order, and the record after all of them.
	bundles [][]*original
	record  *original
	// artifacts are written before the bundles that need them.
	artifacts []*artifact
	// documents are the trust documents, from version 1 on, and are written before all else.
	documents []*original
	// chain begins with the document that is believed; nil where there is none.
	chain bundle.TrustChain
	// trust is who must have signed; nil is anybody.
	trust *bundle.Trust
	mu    sync.Mutex // of warnings
}

func (c *copier) warn(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
	slices.Sort(c.warnings)
}

func newCopier(from, to oci.Location, opts Options) (*copier, error) {
	c := &copier{opts: opts}
	var err error
	if c.from, err = openPlace(from, opts.From); err != nil {
		return nil, err
	}
	if c.to, err = openPlace(to, opts.To); err != nil {
		return nil, err
	}
	if opts.Keys != nil {
		pinned := bundle.Pinned(opts.Keys)
		c.trust = &pinned
	}
	if opts.Trust != nil {
		if c.chain, err = trust.Begin(opts.Trust); err != nil {
			return nil, fmt.Errorf("trust document: %w", err)
		}
	}
	return c, nil
}

func (c *copier) planBundle(ctx context.Context, from oci.Reference) error {
	if err := c.planTrust(ctx); err != nil {
		return err
	}
	repo, err := c.from.repository(from.Repository)
	if err != nil {
		return &usage.Error{Err: err}
	}
	desc, err := repo.Resolve(ctx, cmp.Or(from.Digest.String(), from.Tag, oci.DefaultTag))
	if errors.Is(err, errdef.ErrNotFound) && from.Tag != "" {
		var at published.Type
		if at, err = c.from.published().Named(from.Repository); err == nil {
			desc, err = at.Find(ctx, from.Tag, errdef.ErrNotFound)
		}
	}
	if err != nil {
		return err
	}
	named, err := published.ReadTags(ctx, repo)
	if err != nil {
		return err
	}
	o, err := c.readOriginal(ctx, repo, desc.Digest, named)
	if err != nil {
		return err
	}
	c.bundles = [][]*original{{o}}
	return nil
}

// planEnvironment reads the record before the bundles, so that a publication meanwhile cannot lead to a copied record
// without its bundles.
func (c *copier) planEnvironment(ctx context.Context, environment string) error {
	if err := c.planTrust(ctx); err != nil {
		return err
	}
	types, err := c.planRecord(ctx, environment)
	if err != nil {
		return err
	}
	names, err := c.bundleRepositories(ctx, environment, types)
	if err != nil {
		return err
	}
	if len(names) == 0 && c.record == nil {
		return &Error{c.from.at, fmt.Errorf("environment %s at %s: %w", environment, c.from.at, errdef.ErrNotFound)}
	}
	c.bundles = make([][]*original, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, name := range names {
		group.Go(func() (err error) {
			c.bundles[i], err = c.readRepository(ctx, name, types[name])
			return err
		})
	}
	return group.Wait()
}

// planRecord returns the repositories that the record names, with the release of each.
func (c *copier) planRecord(ctx context.Context, environment string) (map[string]digest.Digest, error) {
	name := bundle.EnvironmentRepository(environment)
	repo, err := c.from.repository(name)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if errors.Is(err, errdef.ErrNotFound) && !errors.Is(err, oci.ErrNoLayout) {
		c.warn("%s has no record of the environment: gates, plans and the hub will miss it", c.from.at)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	latest := published.Tags{Moving: map[string]digest.Digest{bundle.LatestTag: desc.Digest}}
	if c.record, err = c.readOriginal(ctx, repo, desc.Digest, latest); err != nil {
		return nil, err
	}
	types := map[string]digest.Digest{}
	for ct, d := range c.record.clusterTypes {
		types[bundle.Stream{Environment: environment, ClusterType: ct}.Repository()] = d
	}
	return types, nil
}

// bundleRepositories adds to those of the record the ones that the place lists, where it lists any: types
// that have left the environment are in no record, and their agents still ask.
func (c *copier) bundleRepositories(ctx context.Context, environment string, types map[string]digest.Digest) ([]string, error) {
	var names []string
	for name := range types {
		names = append(names, name)
	}
	listed, err := c.from.Repositories(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	for _, s := range published.StreamsOf(listed, environment) {
		names = append(names, s.Repository())
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// carryOut looks at all of the destination before it writes any of it.
func (c *copier) carryOut(ctx context.Context) (*Copied, error) {
	all := slices.Concat(append([][]*original{c.documents}, c.bundles...)...)
	if c.record != nil {
		all = append(all, c.record)
	}
	if err := inParallel(ctx, all, c.decide); err != nil {
		return nil, err
	}
	if err := c.planArtifacts(ctx); err != nil {
		return nil, err
	}
	if err := c.putAll(ctx, c.documents); err != nil {
		return nil, err
	}
	if err := c.putArtifacts(ctx); err != nil {
		return nil, err
	}
	if err := inParallel(ctx, c.bundles, c.putAll); err != nil {
		return nil, err
	}
	if c.record != nil {
		if err := c.put(ctx, c.record); err != nil {
			return nil, err
		}
	}
	done := &Copied{From: c.from.at.String(), To: c.to.at.String(), Items: []Item{}, Warnings: c.warnings}
	for _, o := range all[:len(c.documents)] {
		done.Items = append(done.Items, o.done)
	}
	for _, a := range c.artifacts {
		if a.done.Result != "" {
			done.Items = append(done.Items, a.done)
		}
	}
	for _, o := range all[len(c.documents):] {
		done.Items = append(done.Items, o.done)
	}
	return done, nil
}

func (c *copier) putAll(ctx context.Context, all []*original) error {
	for _, o := range all {
		if err := c.put(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func inParallel[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, one := range all {
		group.Go(func() error { return do(ctx, one) })
	}
	return group.Wait()
}
