package releasecmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Unproved is what a person lets into an environment without a proof.
type Unproved struct {
	// Reason is the person's; empty lets nothing in. Workloads are REGISTRATION/NAME; none are all.
	Reason    string
	Workloads []string
}

// AddTo adds --unproved and --unproved-workload.
func (u *Unproved) AddTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&u.Reason, "unproved", "", "let in what the environment below has not proved, for this `REASON`, which the record keeps")
	cmd.Flags().StringArrayVar(&u.Workloads, "unproved-workload", nil, "with --unproved: let in only this workload, as `REGISTRATION/NAME`; may be repeated")
	cli.NotEmpty(cmd, "unproved", "unproved-workload")
	cli.Rare(cmd, "unproved", "unproved-workload")
}

func (u Unproved) check() error {
	switch {
	case len(u.Workloads) > 0 && u.Reason == "":
		return cli.Usagef("--unproved-workload needs --unproved REASON")
	case u.Reason == "":
		return nil
	}
	if err := cmp.Or(bundle.CheckMessage(u.Reason), bundle.CheckMessage(u.message())); err != nil {
		return cli.Usagef("--unproved: %v", err)
	}
	return nil
}

// message is that of releases without a proof, for which a person gives none.
func (u Unproved) message() string { return "without a proof: " + u.Reason }

// checkNames returns an error about a workload that neither the environments of an entry have, nor what was rendered.
func (u Unproved) checkNames(e *facts.Entry, rendered []scheduler.Workload) error {
	var known []string
	for _, t := range e.Decision.Takes {
		known = append(known, t.Key.String())
	}
	for _, w := range rendered {
		known = append(known, ledger.Key{Registration: w.Registration, Workload: w.Name}.String())
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range u.Workloads {
		if slices.ContainsFunc(known, func(k string) bool { return k == name || strings.HasSuffix(k, "/"+name) }) {
			continue
		}
		return cli.Fail(cli.Usage, fmt.Errorf("--unproved-workload %q: no workload has this name (known: %s)", name, show.List(known, maxKnown)), finding.DidYouMean(name, known))
	}
	return nil
}

// maxKnown bounds the names that an error lists.
const maxKnown = 20

// notOverridden returns an error about workloads that wait although somebody asks to have them without a proof: a release key alone is not
// the word of the policy's group.
func notOverridden(all []content.Take, policy promotion.Policy) error {
	if len(all) == 0 {
		return nil
	}
	text := fmt.Sprintf("--unproved: %d of group %q has to override the rule content for %s first: %s",
		policy.Gate.Override.Required, policy.Gate.Override.Group, all[0].Key, show.Line(all[0].Waits))
	if len(all) > 1 {
		text += fmt.Sprintf("; and for %d more, unless --unproved-workload names the one that you mean", len(all)-1)
	}
	return cli.Fail(cli.Denied, errors.New(text), fmt.Sprintf("wherry gate override -e %s --workload %s --rule content --reason \"REASON\" --key FILE", policy.Environment, all[0].Key))
}

// entering is an environment before it is rendered: what it is read from, and what may enter it.
type entering struct {
	source *flags.Source
	read   *platform.Loaded // the platform as source reads it, without workloads; nil if that is to be read once more
	entry  *facts.Entry     // nil if nothing is held
	facts  *facts.Facts     // what it was asked of; of a plan alone
	pinned string
	// waits says why the base commit that is pinned does not enter yet; empty if it may. Steady is the same without what changes with time alone.
	waits, steady string
	// way is how a person lets it in all the same.
	way string
	// unproved is the reason for which a person lets it in without a proof; empty if its gate has passed.
	unproved string
	// refused says why nothing new may be published: no base commit is proved, and the environment has none. What it has is renewed.
	refused error
}

// enter asks what may enter an environment. Judged says that its gate has passed for the base commit that is
// pinned, and nextBatch that a batch under way is no reason to wait. Known may be the answer about the content. The source stays as it is.
func enter(cmd *cobra.Command, source *flags.Source, place string, from *facts.Facts, known *facts.Entry, judged, nextBatch bool, unproved Unproved) (entering, error) {
	at := *source
	e := entering{source: &at}
	options, err := source.Options(place, from.Location.Dir)
	if err != nil {
		return e, err
	}
	options.Log = source.Log(cmd)
	loaded, err := platform.LoadPlatform(cmd.Context(), options)
	if err != nil {
		return e, failure.Input(err)
	}
	e.read = loaded
	of := from.Look() // of which promote has begun one
	if of.Platform == "" {
		of.Platform = loaded.Model.PlatformName()
	}
	policy, err := loaded.Model.Promotion()
	if err != nil {
		return e, failure.Input(err)
	}
	record, err := of.Record(cmd.Context(), loaded.Model.PlatformName(), policy.Environment)
	if err != nil && policy.Below() != "" { // else publishing says what is wrong
		return e, entryFailure(err, of)
	}
	policy, lost := of.PolicyNow(cmd.Context(), options, loaded, record)
	if lost != nil && unproved.Reason == "" {
		return e, failure.Input(lost)
	}
	if err := unproved.check(); err != nil {
		return e, err
	}
	if policy.Below() == "" || !policy.Gate.Content.Held {
		if unproved.Reason != "" && lost == nil {
			cmd.PrintErrf("note: %s needs no proofs, so --unproved does nothing, and its reason is kept nowhere\n", show.Line(policy.Environment))
		}
		return e, nil
	}
	if record != nil && record.Epoch != of.Signers.Epoch {
		record = nil // nobody vouches for what it says
	}
	commit := loaded.BaseCommit
	e.pinned = commit
	group := policy.Gate.Override.Required > 0 // which overrides rules of the gate, too
	if e.way = fmt.Sprintf(`wherry publish -e %s --unproved "REASON" lets it in`, policy.Environment); group {
		e.way = fmt.Sprintf("group %q may override its rules: wherry gate override -e %s", policy.Gate.Override.Group, policy.Environment)
	}
	if !judged && (unproved.Reason == "" || len(unproved.Workloads) > 0 || group) {
		if commit, err = e.base(cmd, of, policy, record, loaded); err != nil || e.refused != nil {
			if record == nil {
				err = cmp.Or(err, e.refused)
			}
			return e, err
		}
	} else if !judged && (record == nil || !record.HasBase(commit, loaded.BaseID)) {
		e.unproved = unproved.Reason
	}
	ask := facts.AskOf(loaded, policy, commit)
	ask.Unproved, ask.Only, ask.NextBatch = unproved.Reason, unproved.Workloads, nextBatch
	if e.entry = known; !known.Answers(ask) {
		if e.entry, err = of.Entry(cmd.Context(), ask); err != nil {
			return e, entryFailure(err, of)
		}
	}
	if err := notOverridden(e.entry.NotOverridden(), policy); err != nil {
		return e, err
	}
	if err := e.entry.Refused(); err != nil && len(source.Dropped) == 0 { // else what is rendered says whether all of it is dropped
		return e, refusal(err)
	}
	at.WorkloadsAt, at.SourcesAt = e.entry.Commit, e.entry.At
	return e, nil
}

// refusal returns the error about an environment that cannot be published before its workloads are proved.
func refusal(err error) error {
	return cli.Fail(cli.NotYet, err, `publish again once they are proved; --unproved "REASON" lets them in, and --drop TYPE/TARGET leaves one out`)
}

// base returns the base commit that an environment runs: the one that is pinned if its gate passes, else the one that it has. If there is
// none, refused says why.
func (e *entering) base(cmd *cobra.Command, from *facts.Facts, policy promotion.Policy, record *bundle.EnvironmentRecord, loaded *platform.Loaded) (string, error) {
	pinned := loaded.BaseCommit
	if pinned == "" {
		hint := "commit them, or read the base from git"
		if policy.Gate.Override.Required == 0 { // a group overrides rules for a commit
			hint += "; " + e.way
		}
		e.refused = cli.Fail(cli.NotYet, fmt.Errorf("%s: no commit has the files that its base was read from, so %s cannot have proved them", policy.Environment, policy.Below()),
			hint)
		return "", nil
	}
	if record != nil && record.HasBase(pinned, loaded.BaseID) {
		return pinned, nil
	}
	verdict, err := from.Judge(cmd.Context(), facts.Ask{Policy: policy, Commit: pinned, BaseID: loaded.BaseID})
	if err != nil && !errors.Is(err, facts.ErrNoCommit) {
		return "", entryFailure(err, from)
	}
	switch {
	case err == nil && verdict.Result == gate.Pass:
		return pinned, nil
	case err != nil:
		e.waits, e.steady = err.Error(), err.Error()
	default:
		e.waits, e.steady = promote.Reason(verdict), promote.SteadyReason(verdict)
	}
	if record == nil || record.BaseCommit == "" {
		e.refused = e.Waits(policy.Environment, pinned)
		return "", nil
	}
	e.source.BaseAt, e.read = record.BaseCommit, loaded.Before
	return record.BaseCommit, nil
}

// entryFailure gives an error of the facts about what may enter its exit code and a hint.
func entryFailure(err error, from *facts.Facts) error {
	if from.Hub != nil {
		err = failure.HubRequest(err, from.HubURL)
	}
	return failure.At(err, from.Location)
}

// PinWaitsError means that the gate of an environment has not passed for the base commit that is pinned. Steady is Why without what changes
// with time alone.
type PinWaitsError struct{ Environment, Commit, Why, Steady string }

func (e *PinWaitsError) Error() string {
	return fmt.Sprintf("%s: base commit %s waits: %s", e.Environment, short(e.Commit), show.Line(e.Why))
}

func short(commit string) string { return commit[:min(len(commit), 7)] }

// Waits returns the error about a base commit that waits.
func (e *entering) Waits(environment, commit string) error {
	return cli.Fail(cli.NotYet, &PinWaitsError{environment, commit, e.waits, e.steady},
		fmt.Sprintf("wherry gate explain -e %s; %s", environment, e.way))
}

// warned are the warnings that were printed: several steps read the same records.
type warned map[string]bool

// printer returns a function that prints a warning, unless it was printed before.
func (w warned) printer(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !w[text] {
			w[text] = true
			cmd.PrintErrf("warning: %s\n", cli.Indented(text))
		}
	}
}

// factsOf returns the facts for an environment that is published or planned.
func factsOf(cmd *cobra.Command, source *flags.Source, place string, to oci.Location, registry flags.Registry, fleet *flags.Fleet, signers published.Signers, warn func(string, ...any)) (*facts.Facts, error) {
	from := &facts.Facts{
		Location: to, Options: registry.Options(), Signers: signers, Now: cli.Now, Warn: warn,
		Clusters: facts.Roster(func(environment string) (platform.Source, error) { return source.OptionsOf(environment, place) }),
	}
	if fleet.URL() == "" {
		return from, nil
	}
	hub, err := fleet.Client(cmd)
	if err != nil {
		return nil, err
	}
	from.Hub, from.HubURL = hub, fleet.URL()
	return from, nil
}
