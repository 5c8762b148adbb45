package platform

import (
	"context"
	"slices"

	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/embed"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// Options are what [Build] does beside reading and rendering. The zero value does nothing else.
type Options struct {
	// Decision is rendered in place of what the platform's scheduling policies select.
	Decision *scheduler.Decision
	// RefuseMissing fails assignments whose templates print missing keys. Content to be signed requires it.
	RefuseMissing bool
	// Cache, if not nil, has the results of earlier rendering and packing.
	Cache scheduler.Cache
	// LastRelease returns the content of the last releases; see [scheduler.Options].
	LastRelease func(ctx context.Context, clusterType string) ([]scheduler.Released, error)
	// Pack packs bundles as they are rendered and drops their files, unless a source could not be read.
	Pack bool
	// Pin, if not nil, configures the access to the sources whose commits and digests are pinned.
	Pin *sources.Options
	// AfterLoad, if not nil, is called before rendering. It may change the model, and the options above according to
	// the loaded platform. Its error ends Build.
	AfterLoad func(ctx context.Context, loaded *Loaded, opts *Options) error
}

// Built is an environment that is ready to be published.
type Built struct {
	Loaded *Loaded
	Result *scheduler.Result
	// Decision is the decision that Result was rendered from; nil for the platform's own scheduling policies.
	Decision *scheduler.Decision
	// Packed has packed the bundles; nil unless Options.Pack could be followed.
	Packed *pack.Packer
}

// Build reads an environment of a platform, renders it and pins what asks for that. What failed of single assignments and
// registrations is in the result; the error is that of [Load], of [scheduler.Model.Render], of the functions in opts, or
// of ctx.
func Build(ctx context.Context, src Source, opts Options) (Built, error) {
	loaded, err := Load(ctx, src)
	if err == nil && opts.AfterLoad != nil {
		err = opts.AfterLoad(ctx, loaded, &opts)
	}
	if err != nil {
		return Built{}, err
	}
	b := Built{Loaded: loaded, Decision: opts.Decision}
	render := scheduler.Options{
		BaseCommit: loaded.BaseCommit, Decision: opts.Decision, Incomplete: len(loaded.Unread) > 0,
		Cache: opts.Cache, RefuseMissing: opts.RefuseMissing, LastRelease: opts.LastRelease,
	}
	if opts.Pack && len(loaded.Unread)+len(loaded.Model.FailedPolicies()) == 0 {
		b.Packed = pack.NewPacker(opts.Cache, loaded.Model.EnvironmentName())
		render.Each = b.Packed.Take
	}
	if b.Result, err = loaded.Model.Render(ctx, render); err != nil || opts.Pin == nil {
		return b, err
	}
	return b, b.complete(ctx, src, opts)
}

// complete pins what asks for it, and embeds. Both ask each source once, so that they see the same state of it.
func (b *Built) complete(ctx context.Context, src Source, opts Options) error {
	resolver := sources.NewResolver(*opts.Pin)
	defer func() { _ = resolver.Close() }() // removes temporary files only
	if !embed.Any(b.Result) {
		return artifacts.Pin(ctx, b.Result, resolver)
	}
	explainer, err := b.Loaded.Model.Explainer(opts.Decision)
	if err != nil {
		return err
	}
	own := newOwnSources(src, b.Loaded)
	defer own.close()
	embedded, err := embed.Read(ctx, b.Result, embed.Options{Resolver: resolver, Cache: opts.Cache, Own: own.read, Value: explainer.Value})
	if err == nil {
		err = artifacts.Pin(ctx, b.Result, resolver)
	}
	if err != nil {
		return err
	}
	embedded.AddTo(b.Result)
	for i := range b.Result.ClusterTypes {
		ct := &b.Result.ClusterTypes[i]
		if !slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded) {
			continue
		}
		b.Result.Warnings = append(b.Result.Warnings, explainer.CheckEmbedded(ct, func(f scheduler.File) bool { return artifacts.IsEmbeddedPath(f.Path) })...)
		b.Loaded.Model.LimitEmbedded(ct)
	}
	return ctx.Err()
}

// UnreadRegistration is a WorkloadRegistration whose source could not be read, and why.
type UnreadRegistration struct {
	Registration string `json:"registration"`
	Error        string `json:"error"`
}

// FailedPolicy is a scheduling policy whose selection is unknown, and the error.
type FailedPolicy struct {
	Policy string `json:"policy"`
	Error  string `json:"error"`
}

// UnreadOf returns unread as results list it.
func UnreadOf(unread []Unread) []UnreadRegistration {
	var list []UnreadRegistration
	for _, u := range unread {
		list = append(list, UnreadRegistration{u.Registration, u.Err.Error()})
	}
	return list
}

// FailedPoliciesOf returns the scheduling policies that failed as results list them.
func FailedPoliciesOf(failed []scheduler.FailedPolicy) []FailedPolicy {
	var list []FailedPolicy
	for _, f := range failed {
		list = append(list, FailedPolicy{f.Name, f.Err.Error()})
	}
	return list
}
