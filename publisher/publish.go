// Package publisher brings what the scheduler rendered to a registry or an OCI layout, in signed releases.
//
// Begin with [Publish]. A planner decides each cluster type's next release from the scheduler's result and from the releases
// at the destination (package state), and a pusher signs and pushes it (package releases). Package platform reads sources,
// and outdir writes a plain folder. Publish leaves no tag on anything incomplete, keeps the last verified content of
// assignments that failed, and gives the same bytes for the same input.
package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

const (
	// DefaultPlatform names a platform that has no Platform object.
	DefaultPlatform = "default"
	// DefaultValidity is how long a release may be accepted for the first time.
	DefaultValidity = 90 * 24 * time.Hour
	// DefaultParallel is a number of cluster types to publish at once that keeps two cores and a registry busy.
	DefaultParallel = 4
	// trustSoon is how long before a trust document expires publishers are warned, as agents warn: the roots may
	// have to meet.
	trustSoon = 30 * 24 * time.Hour
)

// PublishOptions are the optional parts of Publish. The zero value publishes to every ring.
type PublishOptions struct {
	// Platform is the name of a platform without a Platform object. Empty means DefaultPlatform.
	Platform string
	// EnvironmentCommit and Source are the commit and the place of the environment's objects, if known.
	EnvironmentCommit string
	// BaseID is that of the record; see platform.Loaded.
	BaseID string
	Source string
	// Created is the base commit's time. Zero means the time of issue.
	Created time.Time
	// Rings are among those that the platform names: releases are for the widest of these and all narrower ones. Empty means
	// the first, and all clusters if the platform names none.
	Rings []string
	// ValidFor is the validity for cluster types without wherry.dev/valid-for. Zero means DefaultValidity.
	ValidFor time.Duration
	// RenewBefore is how long before a release expires it is published again. Zero is a third of its validity.
	RenewBefore time.Duration
	// Trust is what the trust documents at the destination say; see published.FollowTrust. The zero value is that of
	// those who pin the public halves of the keys that sign.
	Trust published.Signers
	// Unread lists the WorkloadRegistrations of which result has nothing, because their sources could not
	// be read.
	Unread []platform.Unread
	// Admission, if not nil, decides which content of workloads enters. The error wraps ErrDecideAgain if that does not hold any more.
	Admission *Admission
	// Drop gives up assignments that failed, each as <cluster type>/<deployment target>: they are left out,
	// which deletes them from clusters. Each must have failed, or be in the last release.
	Drop []string
	// AllowEmpty publishes cluster types that had assignments and now have none.
	AllowEmpty bool
	// AllowRemovals publishes also what takes more assignments away than the platform's MaxRemoved says.
	AllowRemovals bool
	// Commits has a commit of a source that changes nothing here make a record: the environment above in a chain reads that source at the
	// commit of the ledger, and may have folders of it that this one lacks.
	Commits bool
	// Strict publishes nothing unless everything can be published.
	Strict bool
	// Cache, if not nil, has the trees that were packed before.
	Cache scheduler.Cache
	// DeltaCommand is the program, with its arguments, by which this program calls delta.Child. Without one there
	// are no deltas of trees that are not small; see delta.Small.
	DeltaCommand []string
	// Packed, if not nil, has packed bundles during rendering. It must be nil with Unread or failed policies, since
	// only Publish knows the assignments held for these.
	Packed *pack.Packer
	// Paused publishes nothing new: what is there is renewed, and Published.Refused lists what would have changed.
	Paused bool
	// Again is the moment until which what was undone may be released again; see decisions.Again. What was undone since is not released:
	// what is there is renewed, and Published.Undone has it. A workload that was undone by itself keeps what it has.
	Again time.Time
	// Checks are shell commands, all of which have to exit with 0 before anything is pushed. They run one
	// after the other in a folder with the releases: the trees as tree/<cluster type>/…, and the list of
	// their artifacts as artifacts.ndjson. Their output goes to CheckOutput; nil discards it.
	Checks      []string
	CheckOutput io.Writer
	// CheckEnv names environment variables with secrets that checks get all the same; see checks.Environment.
	CheckEnv []string
	// Message says in one line what the publication is for; see bundle.CheckMessage. It is kept in the releases that it
	// makes. Empty leaves them without one.
	Message string
	// Fleet lists the clusters that Compare and the platform's plan checks count. Nil means those that the platform lists
	// for Compare, and that none are known for Publish.
	Fleet *impact.Fleet
	// OCI configures the access to the registry.
	OCI oci.Options
	// Parallel is the number of cluster types that are read and pushed at once. Zero means one.
	Parallel int
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Publish signs the assignments of result with keys and pushes them to a registry or layout: one bundle per cluster
// type and one record for the environment. It does not push content again that is already published. If
// more keys have to sign, it pushes everything and releases nothing: the releases are pending until the others have
// signed them; see OpenPending.
//
// Publish reads everything for its comparison before it writes, and writes in an order that leaves no tag
// on anything incomplete, so that it can be killed and repeated at any time. The error means that
// Publish stopped as a whole; errors of one cluster type are in the result, which is never nil.
func Publish(ctx context.Context, result *scheduler.Result, to oci.Location, keys []*keys.Key, opts PublishOptions) (*Published, error) {
	so := newProgress()
	done, err := settled("publish to "+to.String(), result, to, keys, opts, func(p *publication) (Published, error) {
		if err := p.mayPublish(ctx); err != nil {
			return p.nothingDone(), err
		}
		return p.run(ctx, result, so)
	})
	if len(result.Rings) == 0 { // the one release is the cluster type's own
		for i := range done.ClusterTypes {
			done.ClusterTypes[i].Releases = nil
		}
	}
	return done, err
}

// settled opens a publication of result and has it written. The result is never nil; errors begin with what.
func settled(what string, result *scheduler.Result, to oci.Location, keys []*keys.Key, opts PublishOptions, write func(*publication) (Published, error)) (*Published, error) {
	signers := opts.Trust
	if !signers.Documented() {
		signers = trust.PinnedBy(keys)
	}
	p, err := newPublication(result, to, keys, signers, opts)
	if err == nil {
		err = trust.CheckKeys(signers, keys)
	}
	if err != nil {
		return &Published{Environment: result.Environment}, err
	}
	done, err := p.untilSettled(write)
	done.Warnings = p.warnings.list
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return &done, err
}

// untilSettled calls write again where another publisher was at work at the same time.
func (p *publication) untilSettled(write func(*publication) (Published, error)) (Published, error) {
	done, err := write(p)
	for round := 1; errors.Is(err, releases.ErrRace) && round < releases.MaxRaces; round++ {
		done, err = write(p)
	}
	return done, err
}

// ofRecord takes the platform from the environment's record, whose signature is checked later, and returns an error if
// agents would not accept the releases.
func (p *publication) ofRecord(ctx context.Context) (err error) {
	if p.Platform, err = platformOf(ctx, p.Reader); err != nil {
		return err
	}
	return p.mayPublish(ctx)
}

// mayPublish returns an error if agents would not accept the releases.
func (p *publication) mayPublish(ctx context.Context) error {
	if !p.Trust.Documented() {
		return trust.RefuseUndocumented(ctx, p.Store)
	}
	if err := p.Trust.Check(p.Platform, p.IssuedAt); err != nil {
		return err
	}
	if d := p.Trust.Document; d.ExpiresAt.Sub(p.IssuedAt) < trustSoon {
		p.Warn("version %d of the trust document expires at %s, and nothing can be published after that: have the roots sign the next one", d.Version, d.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

// publication is one run of Publish: the planner and the pusher, which share a reader. They pass their results to one
// another as values.
type publication struct {
	*state.Reader
	planner
	pusher
	warnings *warnings // of the Reader
	tried    int64     // bytes of trees; see maxTriedBytes
}

// warnings lists the Reader's warnings, each once.
type warnings struct{ list []string }

func (w *warnings) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.list, text) {
		w.list = append(w.list, text)
	}
}

func newPublication(result *scheduler.Result, to oci.Location, keys []*keys.Key, signers published.Signers, opts PublishOptions) (*publication, error) {
	if err := oci.CheckName(result.Environment); err != nil {
		return nil, usage.Errorf("environment: %w", err)
	}
	if err := checkOptions(opts, result); err != nil {
		return nil, err
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
	packer := opts.Packed
	if packer == nil {
		packer = pack.NewPacker(opts.Cache, result.Environment)
	}
	w := new(warnings)
	at := state.New(to, store, signers, now(), cmp.Or(result.Platform, opts.Platform, DefaultPlatform), result.Environment, w.add)
	return &publication{
		Reader: &at,
		planner: planner{
			Reader: &at, unknowns: unknowns{unread: opts.Unread, failedPolicies: result.FailedPolicies, drops: drops},
			opts: opts, packer: packer, rings: result.Rings, accountOf: result.ServiceAccount,
			maxRemoved: result.MaxRemoved, declared: result.Declared,
		},
		pusher: pusher{
			Reader: &at, signer: releases.Signer{Keys: keys, Known: signers.Keys, Location: to},
			renewBefore: opts.RenewBefore, commits: commits{result.BaseCommit, opts.EnvironmentCommit, opts.BaseID},
			deltaSlots: make(slots, runtime.GOMAXPROCS(0)), created: opts.Created, source: opts.Source, message: opts.Message, cache: opts.Cache, deltaCommand: opts.DeltaCommand,
		},
		warnings: w,
	}, nil
}

// checkOptions checks what of opts does not fit, by itself or with result.
func checkOptions(opts PublishOptions, result *scheduler.Result) error {
	for _, r := range opts.Rings {
		if err := oci.CheckTag(bundle.MovingTag(r)); err != nil || r == "" {
			return usage.Errorf("%q is not a ring: use letters, digits, '.', '_' and '-'", r)
		}
	}
	if err := suggestRing(opts.Rings, result.Rings); err != nil {
		return err
	}
	if opts.Message != "" {
		if err := bundle.CheckMessage(opts.Message); err != nil {
			return usage.Errorf("message: %w", err)
		}
	}
	if opts.ValidFor < 0 {
		return usage.Errorf("validity %s is negative", opts.ValidFor)
	}
	if opts.RenewBefore < 0 {
		return usage.Errorf("renewal %s before the end is negative", opts.RenewBefore)
	}
	if opts.Packed != nil && len(opts.Unread)+len(result.FailedPolicies) > 0 {
		return usage.Errorf("the options Packed and Unread, or policies that failed, exclude each other")
	}
	for _, command := range opts.Checks {
		if strings.TrimSpace(command) == "" {
			return usage.Errorf("a check is empty, which would agree to everything")
		}
	}
	if err := checks.CheckNames(opts.CheckEnv); err != nil {
		return usage.Errorf("--check-env: %v", err)
	}
	return nil
}

// suggestRing makes an error of the rings that the platform does not name.
func suggestRing(wanted, named []string) error {
	for _, ring := range wanted {
		if len(named) == 0 {
			return usage.Errorf("unknown ring %q: the platform names no rings; write them into spec.rings of its Platform object", ring)
		}
		if !slices.Contains(named, ring) {
			return usage.Errorf("unknown ring %q (known: %s)", ring, strings.Join(named, ", "))
		}
	}
	return nil
}

// nothingDone is the result before anything was done.
func (p *publication) nothingDone() Published {
	return Published{
		Platform: p.Platform, Environment: p.Environment, BaseCommit: p.commits.base, EnvironmentCommit: p.commits.environment,
		ClusterTypes: []PublishedType{}, Unread: platform.UnreadOf(p.unknowns.unread), FailedPolicies: platform.FailedPoliciesOf(p.unknowns.failedPolicies),
	}
}

// progress is what a run has done so far, in all its rounds.
type progress struct {
	// mu is held while the maps are used by several cluster types at once, and while the checks run.
	mu sync.Mutex
	// pushed names the cluster types that were published.
	pushed map[string]bool
	// checked has the tree of each cluster type that the checks agreed to.
	checked map[string]digest.Digest
	// there has the assignments that PublishOptions.Drop may name.
	there map[string]bool
}

func newProgress() *progress {
	return &progress{pushed: map[string]bool{}, checked: map[string]digest.Digest{}, there: map[string]bool{}}
}

// note adds what became of a cluster type, and returns what the run as a whole did for it.
func (so *progress) note(row PublishedType) PublishedType {
	so.mu.Lock()
	defer so.mu.Unlock()
	switch {
	case row.Result == releases.OutcomePublished:
		so.pushed[row.ClusterType] = true
	case row.Result == releases.OutcomeUnchanged && so.pushed[row.ClusterType]:
		row.Result = releases.OutcomePublished
	}
	return row
}

// run plans all cluster types before it pushes the first. It returns an error wrapping releases.ErrRace when another publisher wrote
// the environment's record meanwhile, whose releases a record of this run would not know.
func (p *publication) run(ctx context.Context, result *scheduler.Result, so *progress) (Published, error) {
	done := p.nothingDone()
	record, err := p.Record(ctx)
	if err == nil {
		err = p.isDecided(record)
	}
	if err != nil {
		return done, err
	}
	plans, last, err := p.planned(ctx, result, record, so)
	if err == nil {
		err = p.refused(plans)
	}
	if err != nil {
		return done, err
	}
	done.Dropping, done.AwaitingProof = p.unknowns.droppingOf(), p.awaitingProof()
	if p.opts.Strict && (p.unknowns.any() || slices.ContainsFunc(plans, (*plan).lacksSomething)) {
		done.ClusterTypes, done.Record = skipped(plans), publishedRecord(record, releases.OutcomeSkipped)
		return done, nil
	}
	undone := p.undone(plans, record)
	if p.opts.Paused || undone != nil {
		done, err := p.runPaused(ctx, plans, record)
		done.Undone = undone
		return done, err
	}
	if err := p.checkPlan(result.Checks, plans, so); err != nil {
		return done, err
	}
	if err := p.check(ctx, plans, so); err != nil {
		return done, err
	}
	read := readingOf(result, plans)
	if err := read.bound(); err != nil {
		return done, err
	}
	done.Proved = p.provedOf(read, last)
	p.proved = done.Proved
	if err := p.stillStands(ctx, plans); err != nil {
		return done, err
	}
	rows := make([]*PublishedType, len(plans))
	err = p.each(len(plans), func(p *publication, i int) error {
		row, err := p.carryOut(ctx, plans[i], record, so)
		if err == nil {
			row = so.note(row)
			rows[i] = &row
		}
		return err
	})
	for _, row := range rows {
		if row != nil {
			done.ClusterTypes = append(done.ClusterTypes, *row)
		}
	}
	if err != nil {
		return done, err
	}
	next := p.newRecord(done, result, record)
	done.Record, err = p.publishRecord(ctx, record, next, last, p.nextLedger(read, result, plans, done, record, last), done.Pending() > 0)
	done.RenewAt = p.renewal().next(plans)
	return done, err
}

// planned plans the cluster types of result, and those that have left the environment. Registrations that drop too many
// targets are held. Last is the ledger of record, or nil.
func (p *publication) planned(ctx context.Context, result *scheduler.Result, record state.Record, so *progress) (plans []*plan, last *ledger.Ledger, err error) {
	p.unknowns.dropping, p.unknowns.waiting, p.unknowns.undone = nil, nil, nil
	if last, err = p.lastLedger(ctx, record); err != nil {
		return nil, nil, err
	}
	plans, err = p.planAll(ctx, askedOf(result, record), record, so)
	if err == nil {
		plans, err = p.holdWaiting(ctx, result, plans, record, last)
	}
	if err == nil {
		plans, err = p.holdDropping(ctx, plans, record)
	}
	for _, pl := range plans {
		for _, drop := range pl.intact {
			p.Warn("%s did not fail, so it is not dropped", drop)
		}
	}
	return plans, last, err
}

// planAll plans cluster types, and checks that the assignments to drop exist.
func (p *publication) planAll(ctx context.Context, all []asked, record state.Record, so *progress) ([]*plan, error) {
	plans := make([]*plan, len(all))
	err := p.each(len(all), func(p *publication, i int) (err error) {
		plans[i], err = p.plan(ctx, all[i], record)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, pl := range plans {
		for _, drop := range pl.there {
			so.there[drop] = true
		}
	}
	return plans, p.unknowns.check(so.there)
}

// each calls do with the numbers below n, for PublishOptions.Parallel of them at once, and returns the error of the lowest
// number. After an error it begins no other. Each call has a publication of its own, whose warnings p gets in the order of
// the numbers.
func (p *publication) each(n int, do func(p *publication, i int) error) error {
	warned, errs := make([]warnings, n), make([]error, n)
	var failed atomic.Bool
	var group errgroup.Group
	group.SetLimit(max(1, p.opts.Parallel))
	for i := range n {
		group.Go(func() error {
			if !failed.Load() {
				errs[i] = do(p.apart(&warned[i]), i)
			}
			if errs[i] != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for _, w := range warned {
		for _, text := range w.list {
			p.warnings.add("%s", text)
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// apart returns a publication like p that adds its warnings to w.
func (p *publication) apart(w *warnings) *publication {
	own, reader := *p, *p.Reader
	reader.Warn = w.add
	own.Reader, own.planner.Reader, own.pusher.Reader, own.warnings = &reader, &reader, &reader, w
	return &own
}

// skipped is what the result says where nothing is published because something failed.
func skipped(plans []*plan) []PublishedType {
	rows := []PublishedType{}
	for _, pl := range plans {
		if pl.row.Result != releases.OutcomeFailed {
			pl.row.Result = releases.OutcomeSkipped
		}
		rows = append(rows, pl.row)
	}
	return rows
}

// check has the commands of p look at what plans would release, but for what this run has had them look at already. What
// is unchanged is not released.
func (p *publication) check(ctx context.Context, plans []*plan, so *progress) error {
	if len(p.opts.Checks) == 0 {
		return nil
	}
	so.mu.Lock()
	defer so.mu.Unlock()
	var due []checks.Proposal
	for _, pl := range plans {
		isDue, err := p.isDue(ctx, pl)
		if err != nil {
			return err
		}
		if isDue && so.checked[pl.Name] != pl.tree.Content.DiffID {
			due = append(due, checks.Proposal{ClusterType: pl.Name, Content: pl.tree})
		}
	}
	if len(due) == 0 {
		return nil
	}
	commands := checks.Commands{
		Lines: p.opts.Checks, Output: p.opts.CheckOutput, Env: p.opts.CheckEnv, Platform: p.Platform, Environment: p.Environment, BaseCommit: p.commits.base,
	}
	if err := commands.Run(ctx, due, len(so.pushed) > 0); err != nil {
		return err
	}
	for _, d := range due {
		so.checked[d.ClusterType] = d.Content.Content.DiffID
	}
	return nil
}

// carryOut pushes what pl asks for, or finds that it is there, and returns what the result says of it. Where another
// publisher was faster, it plans the cluster type anew.
func (p *publication) carryOut(ctx context.Context, pl *plan, record state.Record, so *progress) (PublishedType, error) {
	for race := 1; pl.row.Result != releases.OutcomeFailed; race++ {
		row, err := p.attempt(ctx, pl)
		if !errors.Is(err, releases.ErrRace) {
			return row, err
		}
		if race == releases.MaxRaces {
			return row, fmt.Errorf("%s: %w", pl.Name, err)
		}
		if pl, err = p.plan(ctx, pl.asked, record); err != nil {
			return row, err
		}
		if err := p.check(ctx, []*plan{pl}, so); err != nil { // it may hold something else now
			return row, err
		}
	}
	return pl.row, nil
}
