package promotecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/follow"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// watching is promote --watch.
type watching struct {
	*promoting
	followed platform.Followed
	said     map[string]string // what was said last of each environment
	// unfinished has the commits of environments whose publication is not whole.
	unfinished map[string]string
	states     string    // of what is followed, when all was published last
	renewAt    time.Time // when all is published again
	next       time.Time // when a release has to be renewed
	rings      env.Rings
	// chain has the environments that are in the chain, as the step found them at its beginning.
	chain []environment
}

// environment is one that could be read. The name of its platform is empty if there is no Platform object, and its source if the
// platform is one environment.
type environment struct{ name, platform, source string }

// goOn runs passes again and again.
func (p *promoting) goOn(cmd *cobra.Command) error {
	switch {
	case p.options.Commit != "":
		return cli.Usagef("--commit is not for --watch, which follows the chain")
	case p.options.Again:
		return cli.Usagef("--again is not for --watch: a change request that a person closed is a no")
	case p.options.PausedToo:
		return cli.Usagef("--paused-too is not for --watch: a pause holds for automation")
	}
	w := &watching{promoting: p, said: map[string]string{}, unfinished: map[string]string{}}
	if err := w.follow(); err != nil {
		return err
	}
	changes, hubs, stop, err := w.FollowHub(cmd)
	if err != nil {
		return err
	}
	defer stop()
	watched := flags.Watched{Format: p.format, Changes: changes, Sources: func() []follow.Source { return append(w.sources(), hubs...) }}
	return p.watch.Run(cmd, watched, func(ctx context.Context, j *flags.Journal) (time.Time, error) { return w.step(ctx, cmd, j) })
}

func (w *watching) sources() []follow.Source { return flags.SourcesOf(w.followed, w.Location.Dir) }

// statesNow is the state of all that is followed. What does not answer has none.
func (w *watching) statesNow(ctx context.Context) string {
	var all strings.Builder
	for _, s := range w.sources() {
		state, err := s.State(ctx)
		if err != nil {
			state = ""
		}
		fmt.Fprintf(&all, "%s\n%s\n", s.Name, state)
	}
	return all.String()
}

// follow notes the place of the platform.
func (w *watching) follow() error {
	source, err := w.Source.Of("").Options(w.place, w.Location.Dir)
	w.followed = platform.FollowedBy(source)
	return err
}

// step gives the first environment of the chain the newest commit, and runs a pass over the others. What has its commit is
// published again if something that is read has moved, and once an hour, which mends and renews.
func (w *watching) step(ctx context.Context, cmd *cobra.Command, j *flags.Journal) (next time.Time, err error) {
	if err := w.ReadTrust(cmd, w.Registry); err != nil {
		return next, err
	}
	promoter, err := w.promoter(cmd)
	if err != nil {
		return next, err
	}
	first, err := w.first(ctx, promoter)
	if err != nil {
		return next, w.failure(err)
	}
	now, states := time.Now(), w.statesNow(ctx)
	options := w.options
	options.Quiet, options.Now = states == w.states && now.Before(w.renewAt), now
	if options.Quiet {
		j.Same()
	} else {
		w.next = time.Time{}
	}
	var lost error
	w.published = func(done *publisher.Published) {
		if at := done.RenewAt; !at.IsZero() && (w.next.IsZero() || at.Before(w.next)) {
			w.next = at
		}
		if text := releasecmd.WhatIsNew(done); text != "" {
			lost = errors.Join(lost, j.Print(flags.Line{Event: "published", Environment: done.Environment, Message: text, Result: done}))
		}
	}
	var results []promote.Result
	targets := []string{options.To}
	if options.To == "" && first != "" {
		targets = []string{first, ""}
	}
	for _, to := range targets {
		options.To = to
		done, err := promoter.Pass(ctx, options)
		if err != nil {
			return next, w.failure(err)
		}
		if results = append(results, done.Results...); !done.NextLook.IsZero() && (next.IsZero() || done.NextLook.Before(next)) {
			next = done.NextLook
		}
	}
	if lost != nil {
		return next, follow.Stop(lost)
	}
	if !options.Quiet {
		w.states, w.renewAt = states, now.Add(releasecmd.LookAnyway)
		if !w.next.IsZero() && w.next.Before(w.renewAt) {
			w.renewAt = w.next
		}
	}
	if w.renewAt.After(now) && (next.IsZero() || w.renewAt.Before(next)) {
		next = w.renewAt
	}
	next, failed, lost := w.conclude(cmd, j, results, next, now)
	if lost != nil {
		return next, follow.Stop(lost)
	}
	look, err, lost := w.advance(ctx, cmd, j, promoter.Source)
	if lost != nil {
		return next, follow.Stop(lost)
	}
	if errors.Is(err, publisher.ErrUnfinished) {
		w.renewAt = time.Time{} // the next step publishes, which completes it
	}
	if !look.IsZero() && (next.IsZero() || look.Before(next)) {
		next = look
	}
	return next, errors.Join(failed, err)
}

// advance brings what is in the rings of environments to the next ones as far as their gates pass.
func (w *watching) advance(ctx context.Context, cmd *cobra.Command, j *flags.Journal, source platform.Source) (next time.Time, err, lost error) {
	var all []advance.Options
	var failed []error
	policies := map[string]promotion.Policy{}
	for _, e := range w.chain {
		if w.options.To != "" && w.options.To != e.name {
			continue
		}
		record, err := w.record(ctx, e.platform, e.name)
		if err == nil && (record == nil || len(record.Rings) == 0) {
			continue
		}
		var policy promotion.Policy
		if err == nil {
			policy, err = policyNow(ctx, source, e.source)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		policies[e.name] = policy
		if len(record.RingOrder) > 1 || len(policy.Rings) > 1 {
			all = append(all, advance.Options{Environment: e.name, Rings: policy.Rings})
		}
	}
	opts := publisher.PublishOptions{OCI: w.Registry.Options(), Parallel: publisher.DefaultParallel}
	if w.First != "" {
		opts.Trust = w.Trusted
	}
	w.rings.Tell = func(done *publisher.Published) {
		(&releasecmd.Publication{To: w.Location, Registry: w.Registry, Fleet: w.Fleet}).TellHub(cmd, done)
	}
	next, err, lost = w.rings.Advance(ctx, j, w.Location, w.Keys, all, w.facts.RingGate(policies), opts)
	if err != nil {
		failed = append(failed, w.failing(err))
	}
	return next, errors.Join(failed...), lost
}

// policyNow reads the policy that an environment has after the pass, which may have brought it another one.
func policyNow(ctx context.Context, source platform.Source, name string) (promotion.Policy, error) {
	source.Environment = name
	loaded, err := platform.LoadPlatform(ctx, source)
	if err != nil {
		return promotion.Policy{}, err
	}
	return loaded.Model.Promotion()
}

// first returns the first environment of the chain, and notes what is to be followed.
func (w *watching) first(ctx context.Context, p *promote.Promoter) (string, error) {
	if err := w.follow(); err != nil {
		return "", err
	}
	environments, err := platform.Environments(ctx, p.Source)
	if err != nil && !errors.Is(err, platform.ErrNoEnvironments) {
		return "", err
	}
	names := []string{""}
	if err == nil {
		names = nil
		for _, e := range environments {
			names = append(names, e.Environment)
		}
	}
	first := ""
	w.chain = nil
	for _, name := range names {
		source := p.Source
		source.Environment = name
		loaded, err := platform.Load(ctx, source)
		if err != nil {
			continue // the pass says so
		}
		w.followed.Add(loaded.Followed)
		for _, b := range loaded.Model.BaseRepos() {
			w.followed.AddBranch(b.Repo, b.Branch, source.Mirrors) // whose newest commit the first environment gets
		}
		policy, err := loaded.Model.Promotion()
		if err != nil || len(policy.Chain) == 0 {
			continue
		}
		w.chain = append(w.chain, environment{loaded.Model.EnvironmentName(), loaded.Model.PlatformName(), name})
		if first == "" && (name != "" || loaded.Model.EnvironmentName() == policy.Chain[0]) { // PLATFORM may be another environment alone
			first = policy.Chain[0]
		}
	}
	return first, nil
}

// conclude prints what is new since the last step, and returns the moment of the next, what failed, and the error of printing.
func (w *watching) conclude(cmd *cobra.Command, j *flags.Journal, results []promote.Result, next, now time.Time) (_ time.Time, failure, lost error) {
	var failed []error
	for _, r := range results {
		for _, warning := range r.Warnings {
			cmd.PrintErrf("warning: %s: %s\n", r.Environment, warning)
		}
		switch r.State {
		case promote.Failed:
			failed = append(failed, fmt.Errorf("%s: %w", r.Environment, w.failing(r.Err)))
			continue
		case promote.Waiting, promote.Held:
			if again := now.Add(env.LookAtFacts); next.IsZero() || again.Before(next) {
				next = again
			}
		}
		if r.State == promote.Current && !r.Published && w.unfinished[r.Environment] == r.Commit {
			continue // it was not published again, so this is no news
		}
		delete(w.unfinished, r.Environment)
		if r.Unfinished {
			w.unfinished[r.Environment] = r.Commit
		}
		about, known := stable(r), w.said[r.Environment] != ""
		same := w.said[r.Environment] == about
		w.said[r.Environment] = about
		if same || r.State == promote.Current && !known {
			continue
		}
		text := strings.TrimPrefix(r.String(), r.Environment+": ")
		if err := j.Print(flags.Line{Event: string(r.State), Environment: r.Environment, Message: text, Hint: r.Hint, Result: r}); err != nil {
			return next, errors.Join(failed...), err
		}
	}
	return next, errors.Join(failed...), nil
}

func (w *watching) failing(err error) error {
	var said *cli.Error
	if err := w.failure(err); errors.As(err, &said) && said.Err != nil {
		return said.Err
	}
	return err
}

// publishedCounts are what differs when the same is published again.
var publishedCounts = lazyregexp.New(`\d+ (published|unchanged)`)

// stable is what a result is about, without the numbers that go on with time: nothing new is said of the same rules.
func stable(r promote.Result) string {
	state := r.State
	if state == promote.Promoted { // it has the commit from now on
		state = promote.Current
	}
	parts := []string{string(state), r.Commit}
	if r.Request != nil {
		parts = append(parts, r.Request.URL)
	}
	if r.Verdict == nil || r.Verdict.Result == gate.Pass || state == promote.Current {
		if state != promote.Current {
			parts = append(parts, publishedCounts.ReplaceAllString(r.Reason, ""))
		}
		return strings.Join(parts, "\n")
	}
	for _, rule := range r.Verdict.Rules {
		if rule.Result == r.Verdict.Result { // as the reason has it
			parts = append(parts, rule.Name)
		}
	}
	return strings.Join(parts, "\n")
}
