package promotecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// watching is promote --watch. Its steps are read, promote and advance.
type watching struct {
	*promoting
	followed platform.Followed
	printed  map[string]string // the last line of each environment
	// unfinished has the commits of environments whose publication is not whole.
	unfinished map[string]string
	state      string    // of what is followed, when all was published last
	pushed     time.Time // when that was
	renewAt    time.Time // when all is published again
	renewal    time.Time // when a release has to be renewed; zero if none has to be
	rings      env.Rings
	moved      map[string]string // what was proved when an environment was published last; see facts.Entry.Moves
	// behind are the environments that hold content and got nothing of what was pushed, because they were closed or waited then.
	behind map[string]bool
	posted posted
	said   map[string]string // which decisions about content there are; see facts.Facts.Said

	// What a turn reads first: what promotes, the first environment of the chain, and the environments that are in it.
	promoter *promote.Promoter
	first    string
	chain    []environment
}

// environment is one that could be read. The name of its platform is empty if there is no Platform object, and its source if the
// platform is one environment. Held is true if it holds content, which enters at the times of schedule.
type environment struct {
	name, platform, source string
	held                   bool
	schedule               promotion.Schedule
}

// goOn runs passes again and again.
func (p *promoting) goOn(cmd *cobra.Command) error {
	switch {
	case p.options.Commit != "":
		return cli.Usagef("--commit is not for --watch, which follows the chain")
	case p.options.Again:
		return cli.Usagef("--again is not for --watch: a change request that a person closed is a no")
	case p.options.NextBatch:
		return cli.Usagef("--next-batch is not for --watch: let the next batch in by hand, once")
	case p.options.PausedToo:
		return cli.Usagef("--paused-too is not for --watch: a pause holds for automation")
	}
	w := &watching{promoting: p, printed: map[string]string{}, unfinished: map[string]string{}, moved: map[string]string{}, behind: map[string]bool{}, said: map[string]string{}}
	if err := w.follow(); err != nil {
		return err
	}
	wakers, hubs, err := w.FollowHub(cmd)
	if err != nil {
		return err
	}
	watched := flags.Watched{Format: p.format, Wakers: wakers, Sources: func() []watch.Source {
		return append(w.followed.Sources(w.Location.Dir), hubs...)
	}}
	step := func(do func(context.Context, *cobra.Command, *watch.Turn, *flags.Journal) error) flags.Step {
		return func(ctx context.Context, t *watch.Turn, j *flags.Journal) error { return do(ctx, cmd, t, j) }
	}
	return p.watch.Run(cmd, watched, step(w.read), step(w.promote), step(w.advance))
}

// follow notes the place of the platform.
func (w *watching) follow() error {
	source, err := w.Source.Of("").Options(w.place, w.Location.Dir)
	w.followed = platform.FollowedBy(source)
	return err
}

// read reads the trust document and the chain.
func (w *watching) read(ctx context.Context, cmd *cobra.Command, _ *watch.Turn, _ *flags.Journal) (err error) {
	if err := w.ReadTrust(cmd, w.Registry); err != nil {
		return err
	}
	if w.promoter, err = w.newPromoter(cmd); err != nil {
		return err
	}
	if err := w.readChain(ctx); err != nil {
		return w.failure(err)
	}
	return nil
}

// promote gives the first environment of the chain the newest commit, and runs a pass over the others. What has its commit is
// published again if something that is read has moved, and once an hour, which mends and renews; one that holds content also if something
// was proved. Pushes publish once in a while at most, and the first environment gets no record more often, so that teams that push all the
// time do not fill the registry.
func (w *watching) promote(ctx context.Context, cmd *cobra.Command, t *watch.Turn, j *flags.Journal) error {
	state := t.State(ctx)
	soonest, tooSoon, err := w.soonest(ctx, t)
	if err != nil {
		return err
	}
	options := w.options
	moved := state != w.state || !t.Now.Before(w.renewAt)
	options.Quiet, options.Now = !moved || t.Now.Before(soonest), t.Now
	if t.Now.Before(soonest) && (moved || tooSoon) {
		t.At(soonest)
	}
	closed := w.closed(t)
	w.promoter.Due = w.due(t)
	if options.Quiet {
		j.Same()
	} else {
		w.renewal = time.Time{}
	}
	var lost error
	w.published = func(done *publisher.Published) {
		t.At(done.NextLook)
		if at := done.RenewAt; !at.IsZero() && (w.renewal.IsZero() || at.Before(w.renewal)) {
			w.renewal = at
		}
		lost = errors.Join(lost, releasecmd.PrintNew(j, done))
	}
	var results []promote.Result
	targets := []string{options.To}
	if options.To == "" && w.first != "" {
		targets = []string{w.first, ""}
	}
	for _, to := range targets {
		if options.To = to; tooSoon && to == w.first {
			continue
		}
		done, err := w.promoter.Pass(ctx, options)
		if err != nil {
			return w.failure(err)
		}
		results = append(results, done.Results...)
		t.At(done.NextLook)
	}
	if lost != nil {
		return lost
	}
	for _, r := range results {
		w.behind[r.Environment] = closed[r.Environment] || !r.Published && !r.Unfinished && (w.behind[r.Environment] || !options.Quiet)
	}
	if !options.Quiet {
		w.state, w.pushed, w.renewAt = state, t.Now, t.Now.Add(watch.ForAnything)
		if !w.renewal.IsZero() && w.renewal.Before(w.renewAt) {
			w.renewAt = w.renewal
		}
	}
	if w.renewAt.After(t.Now) {
		t.At(w.renewAt)
	}
	if slices.ContainsFunc(w.chain, func(e environment) bool { return e.held }) {
		t.Within(watch.ForReports) // which come without a word, as what others publish does
	}
	w.posted.verdicts(results)
	return w.conclude(cmd, t, j, results)
}

// Pushes publish no more often than once in pushEvery, or in so many intervals if that is less.
const (
	pushEvery     = 5 * time.Minute
	pushIntervals = 10
)

// soonest returns the time from which pushes may publish. TooSoon is true if the first environment, whose newest record may be by another
// process, has to wait for it, too.
func (w *watching) soonest(ctx context.Context, t *watch.Turn) (soonest time.Time, tooSoon bool, err error) {
	every := min(pushEvery, pushIntervals*w.watch.Interval())
	soonest = w.pushed.Add(every)
	i := slices.IndexFunc(w.chain, func(e environment) bool { return e.name == w.first })
	if i < 0 || w.options.To != "" && w.options.To != w.first {
		return soonest, false, nil
	}
	record, err := w.record(ctx, w.chain[i].platform, w.first)
	if err != nil || record == nil {
		return soonest, false, w.failing(err)
	}
	at := record.IssuedAt.Add(every)
	if at.After(soonest) {
		soonest = at
	}
	return soonest, t.Now.Before(at), nil
}

// closed returns the environments that take nothing new now by their schedules, and has the loop look again when they do.
func (w *watching) closed(t *watch.Turn) map[string]bool {
	closed := map[string]bool{}
	for _, e := range w.chain {
		if why, opens := gate.Closed(e.schedule, t.Now); e.held && why != "" {
			closed[e.name] = true
			t.At(opens)
		}
	}
	return closed
}

// due returns the function by which an environment that holds content is published because something was proved, once for the same, or because
// it opens, since what it alone has waits for nothing else, or because people decided about content.
func (w *watching) due(t *watch.Turn) func(context.Context, *platform.Loaded, promotion.Policy) (bool, error) {
	return func(ctx context.Context, target *platform.Loaded, policy promotion.Policy) (bool, error) {
		entry, err := w.entry(ctx, target, policy)
		if err != nil {
			return false, err
		}
		w.posted.waits(policy.Environment, entry.Decision)
		t.At(entry.NextLook())
		moves := entry.Moves()
		if moves != "" && moves != w.moved[policy.Environment] {
			w.moved[policy.Environment] = moves
			return true, nil
		}
		said, err := w.look.Said(ctx, policy.Environment)
		if err != nil {
			return false, err
		}
		if said != w.said[policy.Environment] { // what it is about may be known by rendering alone
			w.said[policy.Environment] = said
			return true, nil
		}
		if !entry.Open() { // a batch may be under way
			w.behind[policy.Environment] = true
			return false, nil
		}
		return w.behind[policy.Environment], nil
	}
}

// advance brings what is in the rings of environments to the next ones as far as their gates pass.
func (w *watching) advance(ctx context.Context, cmd *cobra.Command, t *watch.Turn, j *flags.Journal) error {
	var all []advance.Options
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
			policy, err = w.policyNow(ctx, e.source, record)
		}
		if err != nil {
			t.Fail(fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		policies[e.name] = policy
		if len(record.RingOrder) > 1 || len(policy.Rings) > 1 {
			all = append(all, advance.Options{Environment: e.name, Rings: policy.Rings})
		}
	}
	w.rings.Tell = func(done *publisher.Published) {
		(&releasecmd.Publication{To: w.Location, Registry: w.Registry, Fleet: w.Fleet}).TellHub(cmd, done)
	}
	err := w.rings.Advance(ctx, t, j, w.Location, w.Keys, all, w.posted.ring(w.facts.RingGate(policies)), w.PublishOptions(w.Registry))
	w.post(ctx, t.Now, func() (poster, error) { return w.Fleet.Client(cmd) })
	if errors.Is(err, publisher.ErrUnfinished) {
		w.renewAt = time.Time{} // the next turn publishes, which completes it
	}
	if err != nil {
		return w.failing(err)
	}
	return nil
}

// policyNow reads the policy that judges in an environment after the pass, which may have brought it another one.
func (w *watching) policyNow(ctx context.Context, name string, record *bundle.EnvironmentRecord) (promotion.Policy, error) {
	source := w.promoter.Source
	source.Environment = name
	loaded, err := platform.LoadPlatform(ctx, source)
	if err != nil {
		return promotion.Policy{}, err
	}
	return w.facts.PolicyNow(ctx, source, loaded, record)
}

// readChain finds the environments that are in the chain and the first of it, and notes what is to be followed.
func (w *watching) readChain(ctx context.Context) error {
	if err := w.follow(); err != nil {
		return err
	}
	environments, err := platform.Environments(ctx, w.promoter.Source)
	if err != nil && !errors.Is(err, platform.ErrNoEnvironments) {
		return err
	}
	names := []string{""}
	if err == nil {
		names = nil
		for _, e := range environments {
			names = append(names, e.Environment)
		}
	}
	w.first, w.chain, w.promoter.Loaded = "", nil, map[string]*platform.Loaded{}
	for _, name := range names {
		source := w.promoter.Source
		source.Environment, source.Bases, source.Clone, source.Commit = name, nil, nil, ""
		loaded, err := platform.Load(ctx, source)
		if err != nil {
			continue // the pass says so
		}
		if name != "" {
			w.promoter.Loaded[name] = loaded
		}
		w.followed.Add(loaded.Followed)
		for _, b := range loaded.Model.BaseRepos() {
			w.followed.AddBranch(b.Repo, b.Branch, source.Mirrors) // whose newest commit the first environment gets
		}
		policy, err := loaded.Model.Promotion()
		if err != nil || len(policy.Chain) == 0 {
			continue
		}
		w.chain = append(w.chain, environment{
			loaded.Model.EnvironmentName(), loaded.Model.PlatformName(), name, policy.Below() != "" && policy.Gate.Content.Held, policy.Gate.Schedule,
		})
		w.posted.note(loaded.Model.PlatformName(), policy)
		if w.first == "" && (name != "" || loaded.Model.EnvironmentName() == policy.Chain[0]) { // PLATFORM may be another environment alone
			w.first = policy.Chain[0]
		}
	}
	return nil
}

// conclude prints what is new since the last turn, notes what failed, and asks for the next turn. An error of printing stops the loop.
func (w *watching) conclude(cmd *cobra.Command, t *watch.Turn, j *flags.Journal, results []promote.Result) error {
	for _, r := range results {
		for _, warning := range r.Warnings {
			cmd.PrintErrf("warning: %s: %s\n", r.Environment, warning)
		}
		switch r.State {
		case promote.Failed:
			delete(w.moved, r.Environment)
			delete(w.said, r.Environment)
			t.Fail(fmt.Errorf("%s: %w", r.Environment, w.failing(r.Err)))
			continue
		case promote.Waiting, promote.Held:
			t.Within(watch.ForReports)
		}
		if r.State == promote.Current && !r.Published && w.unfinished[r.Environment] == r.Commit {
			continue // it was not published again, so this is no news
		}
		delete(w.unfinished, r.Environment)
		if r.Unfinished {
			w.unfinished[r.Environment] = r.Commit
		}
		about, before := stable(r), w.printed[r.Environment]
		w.printed[r.Environment] = about
		if about == before || r.State == promote.Current && before == "" {
			continue
		}
		text := strings.TrimPrefix(r.String(), r.Environment+": ")
		if err := j.Print(flags.Line{Event: string(r.State), Environment: r.Environment, Message: text, Hint: r.Hint, Result: r}); err != nil {
			return watch.Stop(err)
		}
	}
	return nil
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
