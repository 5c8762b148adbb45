package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// visit is one look at one environment.
type visit struct {
	*Promoter
	options Options
	result  Result

	target   *platform.Loaded
	policy   promotion.Policy
	base     scheduler.BaseRepo
	record   *bundle.EnvironmentRecord // of the target; nil if it was never published
	pause    decisions.Pause
	isPaused bool
	isUndone bool // the commit that is pinned, which is not published again
	pinWaits bool // the gate did not let the commit in that is pinned
}

// at is called before each step.
func (v *visit) at(step string) error {
	if v.before == nil {
		return nil
	}
	return v.before(step)
}

func (v *visit) run(ctx context.Context) error {
	if err := v.load(ctx); err != nil {
		return err
	}
	if v.mustRepair() {
		if done, err := v.publish(ctx, v.base.Commit, false); err != nil || done && !v.pinWaits {
			return err
		}
	}
	waits := v.result
	v.result.State, v.result.Reason, v.result.Hint = Current, "", ""
	err := v.next(ctx)
	if v.pinWaits && err == nil && (v.result.State == Current || v.result.State == Ahead) {
		v.result = waits // nothing else comes that could take its place
	}
	return err
}

// next looks for the commit that the environment is to have, and gives it that.
func (v *visit) next(ctx context.Context) error {
	history := &history{access: v.Access, base: v.base, mirrors: v.Source.Mirrors, timeout: v.options.Git.Timeout}
	defer history.close()
	commit, err := v.candidate(ctx, history)
	if err != nil || v.result.State != Current {
		return err
	}
	v.result.Commit = commit
	switch {
	case commit == v.base.Commit || v.policy.Below() == "" && v.base.Commit == "":
		return v.repair(ctx, commit)
	case v.base.Commit != "":
		if err := v.compare(ctx, history, commit); err != nil || v.result.State != Current {
			return err
		}
		if same := v.isSameBase(ctx, commit); ctx.Err() != nil {
			return ctx.Err()
		} else if same {
			v.result.Commit, v.result.Commits, v.result.More = v.base.Commit, nil, 0
			return v.repair(ctx, v.base.Commit)
		}
	}
	return v.promote(ctx, commit)
}

// load reads the environment as it is now.
func (v *visit) load(ctx context.Context) (err error) {
	if v.target = v.Loaded[v.result.Environment]; v.target != nil {
		delete(v.Loaded, v.result.Environment) // if it has moved since, it is read anew
	} else {
		if err := v.at("load"); err != nil {
			return err
		}
		if v.target, err = platform.LoadPlatform(ctx, v.source(v.result.Environment)); err != nil {
			return err
		}
	}
	if v.record, err = v.Record(ctx, v.target.Model.PlatformName(), v.result.Environment); err != nil {
		return err
	}
	if v.policy, err = v.PolicyNow(ctx, v.source(v.result.Environment), v.target, v.record); err != nil {
		return err
	}
	if v.base, err = baseOf(v.target); err != nil { // without a base, its PromotionPolicy is not read either
		return err
	}
	if len(v.policy.Chain) == 0 {
		return ErrNoChain
	}
	v.result.From = v.policy.Below()
	v.result.Pinned = v.base.Commit
	if v.pause, v.isPaused, err = v.Paused(ctx, v.target.Model.PlatformName(), v.policy); err != nil {
		return err
	}
	v.isUndone, err = v.undone(ctx)
	return err
}

// undone reports whether the commit that is pinned was undone, and nobody has said that it may be released again.
func (v *visit) undone(ctx context.Context) (bool, error) {
	if v.record == nil || v.base.Commit == "" || v.Again == nil {
		return false, nil
	}
	of := func(u bundle.Undone) bool { return u.BaseCommit == v.base.Commit }
	if !slices.ContainsFunc(v.record.Undone, of) {
		return false, nil
	}
	again, err := v.Again(ctx, v.target.Model.PlatformName(), v.policy)
	return slices.ContainsFunc(v.record.Undone, func(u bundle.Undone) bool { return of(u) && u.At.After(again) }), err
}

func baseOf(l *platform.Loaded) (scheduler.BaseRepo, error) {
	for _, b := range l.Model.BaseRepos() {
		if b.Name == scheduler.MainBase {
			return b, nil
		}
	}
	return scheduler.BaseRepo{}, ErrNoBase
}

// ErrNoBase means that an environment has no BaseRepo object called main, so there is no commit to promote.
var ErrNoBase = errors.New("there is no BaseRepo called main")

// published reports whether the newest record has a commit.
func (v *visit) published(commit string) bool {
	return v.record != nil && v.record.BaseCommit == commit
}

// mustRepair reports whether the commit that is pinned still has to be published: a run was cut off, or a person has pinned it
// or merged a change request. While the environment is paused it may have been given other content on purpose, and what was undone is
// not published again.
func (v *visit) mustRepair() bool {
	return v.base.Commit != "" && !v.isUndone && !v.published(v.base.Commit) && (!v.isPaused || v.isResumed(v.base.Commit))
}

// mayPass reports whether a pause does not hold for a commit.
func (v *visit) mayPass(commit string) bool {
	return !v.isPaused || v.options.PausedToo && v.options.To != "" || v.isResumed(commit)
}

// isResumed reports whether the pause is the one with which the promotion of this older commit began, and the same promotion is asked
// for again, because it was cut off.
func (v *visit) isResumed(commit string) bool {
	return v.isPaused && v.options.Commit != "" && v.pause.Reason == olderReason(commit)
}

func olderReason(commit string) string { return "promotion of the older commit " + commit }

// candidate returns the commit to promote. If there is none, it says why in the result.
func (v *visit) candidate(ctx context.Context, h *history) (string, error) {
	below := v.policy.Below()
	switch {
	case v.options.Commit != "":
		return h.resolve(ctx, v.options.Commit)
	case below == "" && v.base.Commit == "":
		return v.target.BaseCommit, nil
	case below == "":
		return h.tip(ctx)
	}
	r, err := v.Record(ctx, v.target.Model.PlatformName(), below)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", below, err)
	case r == nil:
		v.wait(below+" has not been published", "wherry promote -e "+below)
	case r.BaseCommit == "":
		v.hold(below+" was published without a commit of the base", "publish it from a base in git")
	default:
		return r.BaseCommit, nil
	}
	return "", nil
}

// compare finds out how a commit lies to the one that is pinned.
func (v *visit) compare(ctx context.Context, h *history, commit string) error {
	older, err := h.isAncestor(ctx, commit, v.base.Commit)
	if err != nil {
		return err
	}
	if v.result.Older = older; older && v.options.Commit == "" {
		v.result.State = Ahead
		v.result.Reason = fmt.Sprintf("has %s, which is newer than %s of %s", short(v.base.Commit), short(commit), v.result.From)
		v.result.Hint = fmt.Sprintf("to take it back: wherry promote -e %s --commit %s", v.result.Environment, short(commit))
		return nil
	}
	if older {
		return nil
	}
	v.result.Commits, v.result.More, err = h.between(ctx, v.base.Commit, commit)
	return err
}

// isSameBase reports whether a commit has the same base as the one that is pinned, since it changes folders of environments alone. Where
// these are on the branch of the base, each pin is such a commit: promoting it would make the next one, without an end. What cannot be read at
// that commit is another base; promoting it says what is wrong.
func (v *visit) isSameBase(ctx context.Context, commit string) bool {
	if v.target.Place().Branch != v.base.Branch || v.options.Commit != "" {
		return false
	}
	source := v.source(v.result.Environment)
	source.BaseAt = commit
	other, err := platform.LoadPlatform(ctx, source)
	return err == nil && other.BaseID == v.target.BaseID && other.BaseID != ""
}

// repair publishes what the environment has, and sets its status.
func (v *visit) repair(ctx context.Context, commit string) error {
	if v.pinWaits {
		return nil // it was tried
	}
	if !v.mayPass(commit) {
		if v.published(commit) {
			return v.setStatus(ctx, commit, forge.Success, v.result.Environment+" has it", "")
		}
		return v.paused(ctx, commit)
	}
	if due, err := v.isDue(ctx, commit); err != nil {
		return err
	} else if due {
		if done, err := v.publish(ctx, commit, false); done || err != nil {
			return err
		}
	}
	return v.setStatus(ctx, commit, forge.Success, v.result.Environment+" has it", "")
}

// isDue reports whether the environment, which pins a commit, is to be published.
func (v *visit) isDue(ctx context.Context, commit string) (bool, error) {
	switch {
	case v.result.Published:
		return false, nil
	case !v.options.Quiet || !v.published(commit):
		return true, nil
	case v.Due == nil || !v.holdsContent():
		return false, nil
	}
	return v.Due(ctx, v.target, v.policy)
}

// holdsContent reports whether what application teams deliver has a gate of its own.
func (v *visit) holdsContent() bool {
	return v.policy.Below() != "" && v.policy.Gate.Content.Held
}

// meanwhile publishes what is proved of content while another base commit has to wait.
func (v *visit) meanwhile(ctx context.Context) (done bool, err error) {
	if !v.holdsContent() || !v.published(v.base.Commit) || v.isUndone || !v.mayPass(v.base.Commit) {
		return false, nil
	}
	if due, err := v.isDue(ctx, v.base.Commit); !due || err != nil {
		return false, err
	}
	return v.publish(ctx, v.base.Commit, false)
}

func (v *visit) paused(ctx context.Context, commit string) error {
	reason := "paused"
	if v.pause.By != "" {
		reason += " by " + v.pause.By
	}
	if v.pause.Reason != "" {
		reason += ": " + v.pause.Reason
	}
	v.wait(oneLine(reason), fmt.Sprintf("wherry rollout resume --environment %s; or promote by hand with -e %s --paused-too", v.result.Environment, v.result.Environment))
	return v.setStatus(ctx, commit, forge.Pending, v.result.Reason, "")
}

// promote asks the gate, pins the commit, and publishes.
func (v *visit) promote(ctx context.Context, commit string) error {
	if err := v.at("judge"); err != nil {
		return err
	}
	verdict, err := v.Judge(ctx, Question{Target: v.target, Policy: v.policy, Commit: commit, Automatic: !v.isPaused || !v.mayPass(commit), AllowRemovals: v.mayRemove()})
	if err != nil {
		return err
	}
	v.result.Verdict = &verdict
	switch {
	case verdict.Commit != commit || verdict.Environment != v.result.Environment:
		return fmt.Errorf("the gate of %s answered for %s in %s", v.result.Environment, short(verdict.Commit), verdict.Environment)
	case verdict.Result == gate.Fail:
		if done, err := v.meanwhile(ctx); done || err != nil {
			return err
		}
		v.hold(Reason(verdict), "wherry gate explain --environment "+v.result.Environment)
		return v.setStatus(ctx, commit, forge.Failure, SteadyReason(verdict), "")
	case !v.mayPass(commit):
		return v.paused(ctx, commit)
	case verdict.Result != gate.Pass:
		if done, err := v.meanwhile(ctx); done || err != nil {
			return err
		}
		v.wait(Reason(verdict), "wherry gate explain --environment "+v.result.Environment)
		return v.setStatus(ctx, commit, forge.Pending, SteadyReason(verdict), "")
	}
	if v.result.Older && !v.isPaused {
		if err := v.at("pause"); err != nil {
			return err
		}
		if err := v.Pause(ctx, v.target.Model.PlatformName(), v.result.Environment, olderReason(commit)); err != nil {
			return err
		}
		v.isPaused, v.pause.Reason = true, olderReason(commit)
	}
	if err := v.at("pin"); err != nil {
		return err
	}
	if pinned, err := v.pin(ctx, commit, verdict); !pinned || err != nil {
		return err
	}
	if done, err := v.publish(ctx, commit, true); done || err != nil {
		return err
	}
	v.result.State = Promoted
	return v.setStatus(ctx, commit, forge.Success, "promoted to "+v.result.Environment, "")
}

// mayRemove reports whether a person has agreed to remove more than the platform lets a publication, here or as a decision about
// the gate.
func (v *visit) mayRemove() bool {
	return v.options.AllowRemovals && v.options.To != "" || v.result.Verdict != nil && v.result.Verdict.Rule(gate.RuleRemovals).Overridden != ""
}

// publish publishes the environment. Judged says that its gate has passed. It reports whether the result is complete with that, because something is missing.
func (v *visit) publish(ctx context.Context, commit string, judged bool) (done bool, err error) {
	if err := v.at("publish"); err != nil {
		return true, err
	}
	err = v.Publish(ctx, Publication{
		Environment: v.result.Environment, Judged: judged, PausedToo: v.isPaused, AllowRemovals: v.mayRemove(), NextBatch: v.options.NextBatch && v.options.To != "",
	})
	if unfinished := (*UnfinishedError)(nil); errors.As(err, &unfinished) {
		v.result.Commit, v.result.Unfinished, v.pinWaits = commit, unfinished.Held || v.published(commit), unfinished.Pin != ""
		if unfinished.Held {
			v.hold(oneLine(err.Error()), oneLine(unfinished.Hint))
			return true, v.setStatus(ctx, commit, forge.Failure, v.result.Reason, "")
		}
		v.wait(strings.TrimPrefix(oneLine(err.Error()), v.result.Environment+": "), oneLine(unfinished.Hint))
		if v.pinWaits {
			if err := v.comment(ctx, commit, unfinished.Pin); err != nil {
				return true, err
			}
		}
		return true, v.setStatus(ctx, commit, forge.Pending, cmp.Or(unfinished.Pin, v.result.Reason), "")
	}
	if err != nil {
		return true, err
	}
	v.result.Published = true
	return false, nil
}

func (v *visit) wait(reason, hint string) {
	v.result.State, v.result.Reason, v.result.Hint = Waiting, reason, hint
}

func (v *visit) hold(reason, hint string) {
	v.result.State, v.result.Reason, v.result.Hint = Held, reason, hint
}

// setStatus sets the status of a base commit. That it cannot is a warning.
func (v *visit) setStatus(ctx context.Context, commit string, state forge.StatusState, text, url string) error {
	if err := v.at("status"); err != nil {
		return err
	}
	if commit == "" {
		return nil
	}
	access := v.Access(v.base.Repo)
	if access.Forge == nil {
		return nil
	}
	err := access.Forge.SetStatus(ctx, commit, forge.Status{Context: "wherry/promote/" + v.result.Environment, State: state, Description: text, URL: url})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		v.warn("the status of " + short(commit) + " was not set: " + err.Error())
	}
	return nil
}

// git returns the options for the commit that pins.
func (v *visit) git() outgit.Options {
	o := v.options.Git
	o.Date, o.Again, o.EnvironmentCommit = v.options.Now, v.options.Again, ""
	return o
}
