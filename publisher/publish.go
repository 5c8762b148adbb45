// Package publisher brings what the scheduler rendered to a registry or an OCI layout, in signed releases.
//
// Begin with [Publish]. The packages below it do the rest: platform reads sources, outdir writes a plain folder.
// Publish leaves no tag on anything incomplete, keeps the last verified content of assignments that failed, and
// gives the same bytes for the same input.
package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// DefaultPlatform names a platform that has no Platform object.
	DefaultPlatform = "default"
	// DefaultValidity is how long a release may be accepted for the first time.
	DefaultValidity = 90 * 24 * time.Hour
	// trustSoon is how long before a trust document expires publishers are warned, as agents warn: the roots may
	// have to meet.
	trustSoon = 30 * 24 * time.Hour
)

// PublishOptions holds what is not required. The zero value publishes to every ring.
type PublishOptions struct {
	// Platform is the name where the platform has no Platform object. Empty is DefaultPlatform.
	Platform string
	// EnvironmentCommit and Source say where the environment's objects came from, as far as is known.
	EnvironmentCommit string
	Source            string
	// Created is the base commit's time. Zero is the time of issue.
	Created time.Time
	// Rings limits the releases to the named rings. Empty means all. Where the platform names rings, these have to be
	// among them, the releases are for the widest of these and all narrower ones, and empty means the first.
	Rings []string
	// ValidFor is the validity of cluster types that have no wherry.dev/valid-for. Zero is DefaultValidity.
	ValidFor time.Duration
	// RenewBefore is how long before a release expires it is published again. Zero is a third of its validity.
	RenewBefore time.Duration
	// Trust is what the trust documents at the destination say; see trust.Walk. The zero value is that of
	// those who pin the public halves of the keys that sign.
	Trust trust.Signers
	// Unread lists the WorkloadRegistrations of which result has nothing, because their sources could not
	// be read.
	Unread []platform.Unread
	// Drop gives up assignments that failed, each as <cluster type>/<deployment target>: they are left out,
	// which deletes them from clusters. Each must have failed, or be in the last release.
	Drop []string
	// AllowEmpty publishes cluster types that had assignments and now have none.
	AllowEmpty bool
	// Strict publishes nothing unless everything can be published.
	Strict bool
	// Cache, if not nil, has the trees that were packed before.
	Cache scheduler.Cache
	// DeltaCommand is the program, with its arguments, by which this program calls delta.Child. Without one there
	// are no deltas of trees that are not small; see delta.Small.
	DeltaCommand []string
	// Packed, if not nil, has packed what could be while it was rendered. It excludes Unread and
	// policies that failed, since what is held for these is known only here.
	Packed *pack.Packer
	// Checks are commands of the shell, each of which has to agree before anything is pushed. They run one
	// after the other in a folder with what would be released: the trees as tree/<cluster type>/…, and in
	// artifacts.ndjson what these need from elsewhere. Their output goes to CheckOutput; nil is nowhere.
	Checks      []string
	CheckOutput io.Writer
	// OCI says how to talk to the registry.
	OCI oci.Options
	// Now is the clock. Nil is time.Now.
	Now func() time.Time
}

// Publish signs what result holds with keys and pushes it to a registry or layout: one bundle per cluster
// type and one record for the environment. What is there already in equal form is not pushed again. Where
// more keys have to sign, all is pushed and nothing released: it is pending until the others have signed it;
// see OpenPending.
//
// It reads everything that it compares with before it writes, and writes in an order that leaves no tag
// on anything incomplete, so that it can be killed and repeated at any time. The error is about what
// stopped it as a whole; what concerns one cluster type is in the result, which is never nil.
func Publish(ctx context.Context, result *scheduler.Result, to oci.Location, keys []*keys.Key, opts PublishOptions) (*Published, error) {
	signers := opts.Trust
	if !signers.Documented() {
		signers = trust.PinnedBy(keys)
	}
	p, err := newPublication(result, to, keys, signers, opts)
	if err == nil {
		err = signers.CheckKeys(keys)
	}
	if err != nil {
		return &Published{Environment: result.Environment}, err
	}
	if err = p.mayPublish(ctx); err == nil {
		err = p.untilSettled(ctx, result)
	}
	if err != nil {
		err = fmt.Errorf("publish to %s: %w", to, err)
	}
	return p.done, err
}

// mayPublish asks whether agents would take what is published.
func (p *publication) mayPublish(ctx context.Context) error {
	if !p.trust.Documented() {
		return trust.RefuseUndocumented(ctx, p.store)
	}
	if err := p.trust.Check(p.done.Platform, p.issuedAt); err != nil {
		return err
	}
	if d := p.trust.Document; d.ExpiresAt.Sub(p.issuedAt) < trustSoon {
		p.warn("version %d of the trust document expires at %s, and nothing can be published after that: have the roots sign the next one", d.Version, d.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

// publication is one run of Publish: what it reads, what it signs with, what it cannot know, and what it has done so far.
type publication struct {
	reader
	signer
	gaps
	opts PublishOptions
	// rings are those that the platform names, narrowest first.
	rings []string
	// accountOf is scheduler.Result.ServiceAccount.
	accountOf func(workspace, namespace string) string
	// record is what was found of the environment's record when this round began.
	record recordStanding
	done   *Published
	// pushed names the cluster types that an earlier round of this run published.
	pushed map[string]bool
	// checked has the content of each cluster type that the checks agreed to.
	checked map[string]digest.Digest
}

func newPublication(result *scheduler.Result, to oci.Location, keys []*keys.Key, signers trust.Signers, opts PublishOptions) (*publication, error) {
	if err := oci.CheckName(result.Environment); err != nil {
		return nil, usage.Errorf("environment: %w", err)
	}
	opts.Rings = slices.Compact(slices.Sorted(slices.Values(opts.Rings)))
	for _, r := range opts.Rings {
		if err := oci.CheckTag(bundle.MovingTag(r)); err != nil || r == "" {
			return nil, usage.Errorf("%q is not a ring: use letters, digits, '.', '_' and '-'", r)
		}
	}
	if err := suggestRing(opts.Rings, result.Rings); err != nil {
		return nil, err
	}
	if opts.ValidFor < 0 {
		return nil, usage.Errorf("validity %s is negative", opts.ValidFor)
	}
	if opts.RenewBefore < 0 {
		return nil, usage.Errorf("renewal %s before the end is negative", opts.RenewBefore)
	}
	if opts.Packed != nil && len(opts.Unread)+len(result.FailedPolicies) > 0 {
		return nil, usage.Errorf("the options Packed and Unread, or policies that failed, exclude each other")
	}
	for _, command := range opts.Checks {
		if strings.TrimSpace(command) == "" {
			return nil, usage.Errorf("a check is empty, which would agree to everything")
		}
	}
	drops := map[string]bool{}
	for _, d := range opts.Drop {
		if ct, name, _ := strings.Cut(d, "/"); ct == "" || name == "" || strings.Contains(name, "/") {
			return nil, usage.Errorf("%q is not an assignment: write TYPE/TARGET", d)
		}
		drops[d] = true
	}
	store, err := to.Open(opts.OCI)
	if err != nil {
		return nil, err
	}
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	done := &Published{
		Platform:    cmp.Or(result.Platform, opts.Platform, DefaultPlatform),
		Environment: result.Environment, BaseCommit: result.BaseCommit, EnvironmentCommit: opts.EnvironmentCommit,
		ClusterTypes: []PublishedType{}, Unread: platform.UnreadOf(opts.Unread), FailedPolicies: platform.FailedPoliciesOf(result.FailedPolicies),
	}
	return &publication{
		reader: newReader(to, store, signers, now(), done), signer: signer{keys: keys, known: signers.Keys, location: to},
		gaps: gaps{unread: opts.Unread, failedPolicies: result.FailedPolicies, left: map[string]bool{}, drops: drops, dropped: map[string]bool{}},
		opts: opts, rings: result.Rings, accountOf: result.ServiceAccount, done: done,
		pushed: map[string]bool{}, checked: map[string]digest.Digest{},
	}, nil
}

// untilSettled runs again where another publisher was at work at the same time.
func (p *publication) untilSettled(ctx context.Context, result *scheduler.Result) error {
	for round := 1; ; round++ {
		err := p.run(ctx, result)
		if !errors.Is(err, releases.ErrRace) || round == releases.MaxRaces {
			return err
		}
	}
}

// run plans all cluster types before it pushes the first. It returns an error wrapping releases.ErrRace when another publisher wrote
// the environment's record meanwhile, whose releases a record of this run would not know.
func (p *publication) run(ctx context.Context, result *scheduler.Result) error {
	p.done.ClusterTypes = []PublishedType{}
	var err error
	if p.record, err = p.readRecord(ctx); err != nil {
		return err
	}
	var plans []*plan
	for _, ct := range append(slices.Clone(result.ClusterTypes), p.leftTypes(p.record.verified, result)...) {
		plan, err := p.plan(ctx, ct)
		if err != nil {
			return err
		}
		plans = append(plans, plan)
	}
	if err := p.checkDrops(); err != nil {
		return err
	}
	if p.opts.Strict && (p.unknown() || slices.ContainsFunc(plans, (*plan).lacksSomething)) {
		for _, pl := range plans {
			if pl.result.Result != releases.OutcomeFailed {
				pl.result.Result = releases.OutcomeSkipped
			}
			p.done.ClusterTypes = append(p.done.ClusterTypes, pl.result)
		}
		p.done.Record = p.record.published(releases.OutcomeSkipped)
		return nil
	}
	if err := p.check(ctx, plans); err != nil {
		return err
	}
	for _, pl := range plans {
		if err := p.carryOut(ctx, pl); err != nil {
			return err
		}
		switch {
		case pl.result.Result == releases.OutcomePublished:
			p.pushed[pl.result.ClusterType] = true
		case pl.result.Result == releases.OutcomeUnchanged && p.pushed[pl.result.ClusterType]:
			pl.result.Result = releases.OutcomePublished
		}
		p.done.ClusterTypes = append(p.done.ClusterTypes, pl.result)
	}
	return p.publishRecord(ctx, p.newRecordOf(p.done.recorded(result)))
}
