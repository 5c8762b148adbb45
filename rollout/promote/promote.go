// Package promote moves base commits along the chain of environments.
//
// Begin with [Promoter.Pass], which looks at each environment once: it reads the environment as it is now, asks the gate, pins the
// commit that passed in the environment's BaseRepo object, publishes, and sets a commit status. A pin is a commit to the
// environment's branch, or a change request.
//
// Everything that is decided is in git or in the registry, so a pass that was cut off anywhere is completed by the next one, and two
// promoters at once end as one. The gate judges by the policy that the target environment has at the commit that is
// replaced: if the branch moves between question and answer, both are asked for again.
package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// State is what a pass found or did in an environment.
type State string

// The states, the worst first.
const (
	Failed   State = "failed"   // Err says why
	Held     State = "held"     // a rule fails, a person declined it, or what was published is not whole
	Waiting  State = "waiting"  // a rule waits, the environment is paused, or signatures are missing
	Proposed State = "proposed" // a change request is open
	Ahead    State = "ahead"    // the environment has a newer commit than the one below it
	Promoted State = "promoted" // the commit was pinned and published
	Current  State = "current"  // the environment has the commit
)

var states = []State{Failed, Held, Waiting, Proposed, Ahead, Promoted, Current}

// Result is about one environment. Its JSON form is an interface.
type Result struct {
	Environment string `json:"environment"`
	From        string `json:"from,omitempty"` // the environment below; empty for the first
	State       State  `json:"state"`
	// Commit is the base commit that is to be promoted, and Pinned the one that the environment pinned before.
	Commit string `json:"commit,omitempty"`
	Pinned string `json:"pinned,omitempty"`
	// Commits are those that come with Commit and that Pinned does not have, the newest first. More counts those that are
	// not listed. There are none if the history is not known.
	Commits []Commit `json:"commits,omitempty"`
	More    int      `json:"more,omitempty"`
	// Older is true if Commit is an ancestor of Pinned.
	Older bool `json:"older,omitempty"`
	// Published is true if the environment was published in this pass.
	Published bool `json:"published,omitempty"`
	// Unfinished is true if its newest record has the commit and what was published in this pass is not whole: assignments are held, or
	// signatures are missing.
	Unfinished bool `json:"unfinished,omitempty"`
	// Reason and Hint are for people, each one line.
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Request is the change request; nil without one.
	Request *Request `json:"changeRequest,omitempty"`
	// Verdict is the gate's; nil if it was not asked.
	Verdict  *gate.Verdict `json:"verdict,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	// Err is the error of Failed.
	Err error `json:"-"`
}

// Request is a change request.
type Request struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
	Action string `json:"action"` // opened, updated, unchanged or declined
}

// Commit is a commit of the base.
type Commit struct {
	ID      string    `json:"id"`
	Subject string    `json:"subject"` // one printable line
	Author  string    `json:"author"`
	Time    time.Time `json:"time"`
}

// Question is what a gate is asked before an environment gets a commit.
type Question struct {
	// Target is the environment as it is now. Its policy judges.
	Target *platform.Loaded
	Policy promotion.Policy
	Commit string
	// Automatic is true unless a person has said that the promotion is to be made in spite of a pause.
	Automatic bool
	// AllowRemovals agrees to remove more from the environment than the platform lets a publication.
	AllowRemovals bool
}

// Publication is what Promoter.Publish is asked to publish.
type Publication struct {
	Environment string
	// Judged is true if the gate has passed for the base commit that is pinned.
	Judged bool
	// PausedToo is true if the environment is to be published although it is paused.
	PausedToo bool
	// NextBatch lets new content into the first ring although the batch before has not reached the last one.
	NextBatch bool
	// AllowRemovals is true if somebody has agreed to remove more than the platform lets a publication.
	AllowRemovals bool
}

// UnfinishedError is an error of Promoter.Publish for a publication that stands but is not whole: if Held is true, assignments are held
// or left out; else it waits, such as for a signature, or all of it for a proof. If the base commit that is pinned waits for its gate, Pin
// says for what, in a line that is the same at each look while nothing changes.
type UnfinishedError struct {
	Held bool
	Pin  string
	Err  error
	Hint string // one line; may be empty
}

func (e *UnfinishedError) Error() string { return e.Err.Error() }
func (e *UnfinishedError) Unwrap() error { return e.Err }

// ErrNoChain means that no PromotionPolicy has the environment in its chain.
var ErrNoChain = errors.New("no PromotionPolicy has this environment in its chain")

// Requests is the part of a forge that is needed here, which [forge.Repository] has.
type Requests interface {
	outgit.Requests
	OfCommit(ctx context.Context, commit string) ([]forge.ChangeRequest, error)
	SetStatus(ctx context.Context, commit string, s forge.Status) error
	Comment(ctx context.Context, number int, marker, body string) (forge.Comment, error)
}

// Access is how a repository is reached.
type Access struct {
	URL            string // by which git reaches it
	User, Password string // both may be empty
	// Forge is nil where no forge is known, or there is no token for it.
	Forge Requests
	// ForgeErr says why there is no Forge.
	ForgeErr error
}

// Promoter has what a pass needs. Its functions do what depends on the way in which wherry is run.
type Promoter struct {
	// Source is where the platform is read from: as a URL, the path of a bare repository, or a folder that no remote repository
	// stands behind; see [Remote]. Environment, Bases and Clone are not used.
	Source platform.Source
	// Loaded has environments by name as they were just read from Source. Each is taken for the first look at it; may be nil.
	Loaded map[string]*platform.Loaded
	// Judge asks the gate.
	Judge func(ctx context.Context, q Question) (gate.Verdict, error)
	// Record returns the newest verified record of an environment; nil if it has never been published. The name of the platform is
	// empty where it has no Platform object, here and below.
	Record func(ctx context.Context, platform, environment string) (*bundle.EnvironmentRecord, error)
	// PolicyNow returns the policy that judges what enters an environment, which has this record; see platform.PolicyNow.
	PolicyNow func(ctx context.Context, source platform.Source, target *platform.Loaded, record *bundle.EnvironmentRecord) (promotion.Policy, error)
	// Publish publishes an environment as its branch is now. For an [*UnfinishedError] the publication stands, or waits.
	Publish func(ctx context.Context, p Publication) error
	// Paused returns the pause that is in force in an environment; false without one.
	Paused func(ctx context.Context, platform string, p promotion.Policy) (decisions.Pause, bool, error)
	// Again returns the moment until which what was undone in an environment may be released again; see decisions.Again. It is asked if
	// the pinned commit was undone, and may be nil.
	Again func(ctx context.Context, platform string, p promotion.Policy) (time.Time, error)
	// Due reports whether an environment that holds content, and has what it pins, is to be published with Options.Quiet because
	// something was proved below it. It may be nil.
	Due func(ctx context.Context, target *platform.Loaded, p promotion.Policy) (bool, error)
	// Content says which content may enter an environment, so that the commits of application teams get statuses; nil if they get none. Statuses
	// must not be nil then, and remembers them from pass to pass, and the change requests of pins.
	Content  func(ctx context.Context, target *platform.Loaded, p promotion.Policy) (*content.Decision, error)
	Statuses *Statuses
	// Pause writes a pause.
	Pause func(ctx context.Context, platform, environment, reason string) error
	// Access tells how to reach the repository at a URL.
	Access func(url string) Access

	// before is called before each step with its name; a test ends the run there.
	before func(step string) error
}

// Options are the options of [Promoter.Pass]. The zero value looks at each environment after the first.
type Options struct {
	// To names the only environment to look at. It may be the first.
	To string
	// Commit is the one to promote, or at least seven of its first digits; empty for that of the newest record of the
	// environment below. It needs To.
	Commit string
	// PausedToo promotes into To although it is paused.
	PausedToo bool
	// NextBatch lets new content into the first ring of To although the batch before has not reached the last one.
	NextBatch bool
	// AllowRemovals agrees to remove more from To than the platform lets a publication.
	AllowRemovals bool
	// ChangeRequest proposes also where the policy does not ask for that.
	ChangeRequest bool
	// Again proposes although a person declined the commit.
	Again bool
	// Quiet publishes only what is not published yet. Without it, an environment that has its commit is published all the
	// same, which mends and renews what is there.
	Quiet bool
	// Now is the time of the pass.
	Now time.Time
	// Git has the author, committer and timeout of commits.
	Git outgit.Options
}

// Pass is what [Promoter.Pass] returns.
type Pass struct {
	Results []Result `json:"environments"` // the worst first, else along the chain
	// NextLook is the earliest moment at which time alone may change a result; zero if there is none.
	NextLook time.Time `json:"nextLook,omitzero"`
}

// Pass looks at each environment of the chain once, in order. What fails in one of them is in its Result and keeps none of the others
// back. The error is about the platform as a whole, or of ctx.
func (p *Promoter) Pass(ctx context.Context, o Options) (Pass, error) {
	names, err := p.targets(ctx, o)
	if err != nil {
		return Pass{}, err
	}
	var all Pass
	for _, name := range names {
		r := p.look(ctx, name, o)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		all.Results = append(all.Results, r)
		if v := r.Verdict; v != nil && r.State == Waiting && !v.NextLook.IsZero() && (all.NextLook.IsZero() || v.NextLook.Before(all.NextLook)) {
			all.NextLook = v.NextLook
		}
	}
	slices.SortStableFunc(all.Results, func(a, b Result) int {
		return cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State))
	})
	return all, nil
}

// targets returns the environments to look at, in the order of the chain; none if each is the first of its chain.
func (p *Promoter) targets(ctx context.Context, o Options) ([]string, error) {
	if o.To != "" {
		return []string{o.To}, nil
	}
	sources, err := platform.Environments(ctx, p.source(""))
	if errors.Is(err, platform.ErrNoEnvironments) { // PLATFORM is one environment
		loaded, err := platform.LoadPlatform(ctx, p.source(""))
		if err != nil {
			return nil, err
		}
		return []string{loaded.Model.EnvironmentName()}, nil
	}
	if err != nil {
		return nil, err
	}
	type place struct {
		name  string
		order int
	}
	var found []place
	var failed []error
	chained, based := false, false
	for _, s := range sources {
		loaded, err := p.Loaded[s.Environment], error(nil)
		if loaded == nil {
			loaded, err = platform.LoadPlatform(ctx, p.source(s.Environment))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.Environment, err))
			found = append(found, place{s.Environment, len(sources)}) // its result has the error
			continue
		}
		_, noBase := baseOf(loaded)
		based = based || noBase == nil
		policy, err := loaded.Model.Promotion()
		switch {
		case err != nil:
			found = append(found, place{s.Environment, len(sources)})
		case policy.Below() != "":
			found = append(found, place{s.Environment, slices.Index(policy.Chain, s.Environment)})
		case len(policy.Chain) > 0:
			chained = true
		}
	}
	switch {
	case len(failed) == len(sources):
		return nil, errors.Join(failed...)
	case len(found) == 0 && !chained && !based && len(sources) > 0:
		return nil, fmt.Errorf("%s: %w", sources[0].Environment, ErrNoBase)
	case len(found) == 0 && !chained:
		return nil, ErrNoChain
	}
	slices.SortStableFunc(found, func(a, b place) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name)) })
	var names []string
	for _, f := range found {
		names = append(names, f.name)
	}
	return names, nil
}

// source returns the source of an environment.
func (p *Promoter) source(environment string) platform.Source {
	s := p.Source
	s.Environment, s.Bases, s.Clone, s.Commit = environment, nil, nil, ""
	return s
}

// errMoved means that the environment's branch has another commit than the one that was judged by.
var errMoved = errors.New("the branch moved")

// maxTries bounds how often an environment is looked at again because its branch moved.
const maxTries = 5

// look looks at one environment.
func (p *Promoter) look(ctx context.Context, name string, o Options) (r Result) {
	for range maxTries {
		v := &visit{Promoter: p, options: o, result: Result{Environment: name, State: Current}}
		err := v.run(ctx)
		if err == nil {
			err = v.teams(ctx)
		}
		if r = v.result; err == nil {
			return r
		}
		if !errors.Is(err, errMoved) {
			r.State, r.Err, r.Reason = Failed, err, oneLine(err.Error())
			return r
		}
	}
	r.State, r.Err, r.Reason = Failed, outgit.ErrBusy, outgit.ErrBusy.Error()
	return r
}
