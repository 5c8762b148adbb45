package platform

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/embed"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/sandbox"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

// Options are what [Build] does beside reading and rendering. The zero value does nothing else.
type Options struct {
	// Decision is rendered in place of what the platform's scheduling policies select.
	Decision *scheduler.Decision
	// ToSign fails assignments whose content must not be signed: those whose templates print missing keys, and those that no
	// cluster would take.
	ToSign bool
	// WarnRefused adds a warning about each assignment that no cluster would take.
	WarnRefused bool
	// Cache, if not nil, has the results of earlier rendering and packing.
	Cache scheduler.Cache
	// LastRelease returns the content of the last releases; see [scheduler.Options].
	LastRelease func(ctx context.Context, clusterType string) ([]scheduler.Released, error)
	// Pack packs bundles as they are rendered and drops their files, unless a source could not be read.
	Pack bool
	// Pin, if not nil, configures the access to the sources whose commits and digests are pinned.
	Pin *sources.Options
	// Platform, if not nil, is what LoadPlatform returned for the same source, but for WorkloadsAt: Build goes on with it, and nobody else may use
	// it any more.
	Platform *Loaded
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
	loaded, err := opts.Platform, error(nil)
	if loaded != nil {
		err = loaded.addWorkloads(ctx, src)
	} else {
		loaded, err = Load(ctx, src)
	}
	if err == nil && opts.AfterLoad != nil {
		err = opts.AfterLoad(ctx, loaded, &opts)
	}
	if err != nil {
		return Built{}, err
	}
	b := Built{Loaded: loaded, Decision: opts.Decision}
	render := scheduler.Options{
		BaseCommit: loaded.BaseCommit, Decision: opts.Decision, Incomplete: len(loaded.Unread) > 0,
		Cache: opts.Cache, RefuseMissing: opts.ToSign, LastRelease: opts.LastRelease,
	}
	if opts.Pack && len(loaded.Unread)+len(loaded.Model.FailedPolicies()) == 0 {
		b.Packed = pack.NewPacker(opts.Cache, loaded.Model.EnvironmentName())
	}
	find := artifacts.Finder{Cache: opts.Cache, Scope: loaded.Model.EnvironmentName()}
	refusals := lint.NewRefusals(loaded.Model, opts.Cache)
	refuse := func(ct *scheduler.ClusterTypeResult) {
		if opts.ToSign {
			refusals.Fail(ct)
		} else if opts.WarnRefused {
			refusals.Warn(ct)
		}
	}
	render.Each = func(ct *scheduler.ClusterTypeResult) error {
		find.CheckCarry(ct, false)
		if opts.Pin == nil || !slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded) {
			refuse(ct)
		}
		return b.Packed.Take(ct)
	}
	if b.Result, err = loaded.Model.Render(ctx, render); err != nil {
		return b, err
	}
	if opts.Pin != nil {
		if err := b.complete(ctx, src, opts); err != nil {
			return b, err
		}
		for i := range b.Result.ClusterTypes {
			ct := &b.Result.ClusterTypes[i]
			if _, packed := b.Packed.Of(ct.Name); packed {
				continue
			}
			if slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded) {
				refuse(ct)
			}
			find.CheckCarry(ct, true)
		}
	}
	if len(loaded.Unread) > 0 { // what could not be read may be what a policy selects
		b.Result.Warnings = slices.DeleteFunc(b.Result.Warnings, func(f finding.Finding) bool { return f.Code == finding.CodeNoTarget })
	}
	b.Result.Warnings = append(b.Result.Warnings, refusals.Warnings()...)
	b.addPlaces(src)
	return b, nil
}

// addPlaces adds where workloads and the folders beside them were read from.
func (b *Built) addPlaces(src Source) {
	b.Result.Places = map[string]scheduler.Place{}
	for registration, at := range b.Loaded.places {
		p := scheduler.Place{Path: at.path}
		if at.folder == "" {
			p.Repo, p.Ref, p.Commit = src.urlOf(at.repo.URL), at.repo.Branch, at.repo.Commit
		}
		if dir, err := gitrepo.CleanPath(at.path); err == nil {
			p.Path = dir
		}
		b.Result.Places[registration] = p
	}
	for i := range b.Result.ClusterTypes {
		all := b.Result.ClusterTypes[i].Assignments
		for j := range all {
			if o := &all[j].Origin; o.Repo == "" && o.Path != "" {
				from := b.Result.Places[all[j].Registration]
				*o = scheduler.Place{Repo: from.Repo, Ref: from.Ref, Commit: from.Commit, Path: path.Join(from.Path, o.Path), ID: o.ID}
			}
		}
	}
}

// complete pins what asks for it, and embeds. Both ask each source once, so that they see the same state of it.
func (b *Built) complete(ctx context.Context, src Source, opts Options) error {
	pin := *opts.Pin
	pin.Access, pin.Meters = b.Loaded.Access, b.Loaded.meters
	resolver := sources.NewResolver(pin)
	defer func() { _ = resolver.Close() }() // removes temporary files only
	err := Embed(ctx, src, b.Loaded, b.Result, opts.Decision, embed.Options{Resolver: resolver, Cache: opts.Cache}, func() error {
		return artifacts.Pin(ctx, b.Result, resolver, b.Loaded.Model.CheckSource)
	})
	if src.Log != nil {
		for _, u := range b.Loaded.meters.Used() {
			src.Log.Debug("budget used", "registration", u.Registration, "sources", u.Sources, "requests", u.Requests, "bytes", u.Bytes, "disk", u.Disk, "time", u.Time, "cpu", u.CPU)
		}
	}
	return err
}

// Embed adds to the assignments of result with embedded delivery what their targets name; the functions of opts are set
// here. It calls pin once everything is read and before it adds the contents, for steps that need the rendered files alone.
// It adds warnings about the embedded objects to those of result. The decision is that of [Options], or nil.
func Embed(ctx context.Context, src Source, loaded *Loaded, result *scheduler.Result, decision *scheduler.Decision, opts embed.Options, pin func() error) error {
	if !embed.Any(result) {
		return pin()
	}
	explainer, err := loaded.Model.Explainer(decision)
	if err != nil {
		return err
	}
	own := newOwnSources(src, loaded)
	defer own.close()
	limits := loaded.Model.Sandbox()
	opts.Sandbox = sandbox.Options{Command: src.Sandbox, Memory: limits.Memory, CPU: time.Duration(limits.CPUSeconds) * time.Second, Meters: loaded.meters, Log: src.Log}
	opts.Own, opts.Value, opts.At, opts.Allowed = own.read, explainer.Value, explainer.TargetAt, loaded.Model.CheckSource
	embedded, err := embed.Read(ctx, result, opts)
	if err == nil {
		err = pin()
	}
	if err != nil {
		return err
	}
	embedded.AddTo(result)
	for i := range result.ClusterTypes {
		ct := &result.ClusterTypes[i]
		if !slices.ContainsFunc(ct.Assignments, artifacts.IsEmbedded) {
			continue
		}
		result.Warnings = append(result.Warnings, explainer.CheckEmbedded(ct, func(f scheduler.File) bool { return artifacts.IsEmbeddedPath(f.Path) })...)
		loaded.Model.LimitEmbedded(ct)
	}
	result.Warnings = append(result.Warnings, warningsOf(embedded.Warnings(result), explainer)...)
	return ctx.Err()
}

// warningsOf returns warnings with the places of their targets. The same about several assignments of a target is one.
func warningsOf(all []embed.Warning, explainer *scheduler.Explainer) []finding.Finding {
	type group struct {
		code, message string
		at            finding.Position
	}
	var list []finding.Finding
	first, more := map[group]int{}, []int{}
	for _, w := range all {
		w.Position = explainer.TargetAt(w.Assignment, w.Registration)
		key := group{w.Code, w.Message, w.Position}
		if i, known := first[key]; known {
			more[i]++
			continue
		}
		first[key], more = len(list), append(more, 0)
		w.Message = w.ClusterType + "/" + w.Assignment + "\x00" + w.Message
		list = append(list, w.Finding)
	}
	for i := range list {
		of, message, _ := strings.Cut(list[i].Message, "\x00")
		if more[i] > 0 {
			of += fmt.Sprintf(" and on %s", show.Count(more[i], "more cluster type"))
		}
		list[i].Message = of + ": " + message
	}
	return list
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
