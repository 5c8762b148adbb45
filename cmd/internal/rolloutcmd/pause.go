package rolloutcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/undo"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// undoing is undo.Undo or undo.Abort.
type undoing func(ctx context.Context, to oci.Location, signers []*keys.Key, o undo.Options, opts publisher.PublishOptions) (*undo.Done, error)

// pausing holds the flags of pause and resume.
type pausing struct {
	signing
	reason string
	again  bool
}

func newPauseCommand() *cobra.Command {
	var p pausing
	cmd := &cobra.Command{
		Use:   "pause [LOCATION] [--environment NAME] --reason TEXT [--key FILE | --signer cosign:URI]",
		Short: "Pause an environment",
		Long: `Keep an environment as it is until somebody resumes it: "wherry promote" and "wherry rollout advance" wait, and "wherry
publish" renews what is there and refuses new content.

The pause is a decision, signed and kept in the registry. It counts if a release key has signed it, or the key of a
member of a group of the platform's PromotionPolicy. It keeps no person from "wherry rollout undo".

The exit code is 0 if the environment is paused.

More: wherry help signing-keys`,
		Example: `  wherry rollout pause oci://127.0.0.1:5000/edge --environment prod --reason "sale until Monday" --key cosign.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.run(cmd, args, bundle.Pause) },
	}
	p.addTo(cmd)
	p.Signers.AddOptional(cmd)
	cmd.Flags().StringVar(&p.reason, "reason", "", "tell those who wait this `TEXT` (required)")
	_ = cmd.MarkFlagRequired("reason")
	cli.NotEmpty(cmd, "reason")
	return cmd
}

func newResumeCommand() *cobra.Command {
	var p pausing
	cmd := &cobra.Command{
		Use:   "resume [LOCATION] [--environment NAME] [--again] [--reason TEXT] [--key FILE | --signer cosign:URI]",
		Short: "Resume an environment",
		Long: `Let automation go on in an environment that was paused, by a person or by an undo. It says what the environment has:
what is pinned in git may be something else, and is published by the next "wherry publish", "wherry promote" or
their --watch. So mend what was wrong in git first; "wherry plan" shows what would change.

What was undone or aborted is not released again, whatever git pins: publish and promote exit with 1, and the gates of
rings say no. --again lets all of it come again; to give one workload its version back alone, run "wherry rollout undo
--workload NAME --back-to VERSION".

The exit code is 0 if the environment is not paused.

More: wherry help signing-keys`,
		Example: `  wherry rollout resume oci://127.0.0.1:5000/edge --environment prod --key cosign.key
  wherry rollout resume oci://127.0.0.1:5000/edge --environment prod --again --reason "it was the network" --key cosign.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args, bundle.Resume) },
	}
	p.addTo(cmd)
	p.Signers.AddOptional(cmd)
	cmd.Flags().StringVar(&p.reason, "reason", "", "keep this `TEXT` in the decision")
	cmd.Flags().BoolVar(&p.again, "again", false, "let what was undone be released again")
	return cmd
}

// paused is what pause and resume print. Its JSON form is an interface.
type paused struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	Paused      bool   `json:"paused"`
	// Was is the pause that was in force before, if there was one.
	Was *decisions.Pause `json:"was,omitempty"`
	// Written is false if nothing had to be written.
	Written bool `json:"written"`
	// BaseCommit, EnvironmentCommit and IssuedAt are those of the newest record.
	BaseCommit        string    `json:"baseCommit,omitempty"`
	EnvironmentCommit string    `json:"environmentCommit,omitempty"`
	IssuedAt          time.Time `json:"issuedAt,omitzero"`
	// Pinned is the base commit that git pins for the environment, if the command runs in the platform's repository. Resume tells it.
	Pinned string `json:"pinned,omitempty"`
	// Undone is what was undone and stays out; Again is true if it may be released again.
	Undone []bundle.Undone `json:"undone,omitempty"`
	Again  bool            `json:"again,omitempty"`
	// UndoneWorkloads are what of workloads was undone, by itself or with the environment.
	UndoneWorkloads []ledger.Undone `json:"undoneWorkloads,omitempty"`
}

func (p *pausing) run(cmd *cobra.Command, args []string, action bundle.Action) error {
	if err := p.open(cmd, args); err != nil {
		return err
	}
	ctx, now := cmd.Context(), time.Now()
	standing, name, err := recordAt(ctx, cmd, p.Location, p.registry.Options(), p.Trusted, p.environment, now)
	if err != nil {
		return failure.At(err, p.Location)
	}
	record := standing.Verified.Record
	done := paused{
		Platform: name, Environment: p.environment, Paused: action == bundle.Pause,
		BaseCommit: record.BaseCommit, EnvironmentCommit: record.EnvironmentCommit, IssuedAt: record.IssuedAt, Undone: record.Undone, Again: p.again,
	}
	found, err := decisions.Read(ctx, p.Location, p.registry.Options(), p.environment, nil)
	if err != nil {
		return failure.At(err, p.Location)
	}
	// Whoever is in a group of the policy is not known here: their pauses are resumed too, and count only if the policy says so.
	judge := decisions.Trust{Platform: name, Policy: promotion.Policy{Environment: p.environment}, Releases: p.Trusted, Now: now}
	at := now
	for _, l := range decisions.List(found, judge) {
		if l.Action != bundle.Pause && l.Action != bundle.Resume || l.Platform != name || l.IssuedAt.Sub(now) > decisions.MaxAhead {
			continue
		}
		if later := l.IssuedAt.Add(time.Second); later.After(at) && action == bundle.Resume {
			at = later // of a pause and a resume in one second, the pause counts
		}
	}
	if was, is := decisions.Paused(found, judge); is {
		done.Was = &was
	}
	d := bundle.Decision{Action: action, Platform: name, Environment: p.environment, Reason: p.reason, Again: p.again, IssuedAt: at.UTC().Truncate(time.Second)}
	if _, err := decisions.Write(ctx, p.Location, p.registry.Options(), d, p.Keys[0], now); err != nil {
		return failure.At(err, p.Location)
	}
	done.Written = true
	var pinnedAt string
	if action == bundle.Resume {
		done.Pinned, pinnedAt = p.pinned(cmd, name)
		l, err := standing.Ledger(ctx, standing.Verified)
		if err != nil {
			cmd.PrintErrf("warning: %s\n", cli.Indented(err.Error()))
		}
		done.UndoneWorkloads = undoneWorkloads(record, l)
	}
	if err := cli.Print(cmd.OutOrStdout(), p.format, done, func(io.Writer) {}); err != nil {
		return err
	}
	switch has, _ := undo.Names(undo.Commits{Record: record.Tag(), BaseCommit: record.BaseCommit, EnvironmentCommit: record.EnvironmentCommit}, undo.Commits{}); {
	case done.Paused:
		cmd.PrintErrf("%s/%s: paused; it keeps %s\n", name, p.environment, has)
	case done.Was == nil:
		cmd.PrintErrf("%s/%s: resumed; no release key had paused it; it has %s\n", name, p.environment, has)
		p.tellNext(cmd, done, has, pinnedAt)
	default:
		cmd.PrintErrf("%s/%s: resumed; it was paused since %s: %s\n", name, p.environment, done.Was.IssuedAt.Format(time.RFC3339), show.Line(done.Was.Reason))
		p.tellNext(cmd, done, has, pinnedAt)
	}
	return nil
}

// tellNext prints what happens after a resume.
func (p *pausing) tellNext(cmd *cobra.Command, done paused, has, pinnedAt string) {
	const next = "the next wherry promote or wherry publish releases what git has, and wherry plan shows what that changes"
	tell := func(u fmt.Stringer) {
		if done.Again {
			cmd.PrintErrf("note: %s; it may be released again\n", show.Line(u.String()))
		} else {
			cmd.PrintErrf("note: %s; it is not released again, whatever git has, unless you resume with --again\n", show.Line(u.String()))
		}
	}
	for _, all := range done.Undone {
		tell(all)
		var with []string
		for _, u := range done.UndoneWorkloads {
			if u.At.Equal(all.At) {
				with = append(with, u.Key.String())
			}
		}
		if len(with) > 0 && !done.Again {
			cmd.PrintErrf("note: until something newer of them comes, these stay as they are: %s\n", show.Line(show.List(with, maxNamed)))
		}
	}
	for _, u := range done.UndoneWorkloads {
		if !slices.ContainsFunc(done.Undone, func(all bundle.Undone) bool { return all.At.Equal(u.At) }) {
			tell(u)
		}
	}
	switch {
	case done.Pinned == "":
		cmd.PrintErrf("note: it has %s; %s\n", has, next)
	case done.Pinned == done.BaseCommit:
		cmd.PrintErrf("note: git pins the commit that it has, %s (%s); %s\n", show.Line(done.Pinned), show.Line(pinnedAt), next)
	default:
		cmd.PrintErrf("note: git pins %s (%s), and it has %s; %s\n", show.Line(done.Pinned), show.Line(pinnedAt), has, next)
	}
}

// undoneWorkloads returns the marks of workloads that stay out of a ring of record.
func undoneWorkloads(record bundle.EnvironmentRecord, l *ledger.Ledger) (all []ledger.Undone) {
	if l == nil {
		return nil
	}
	rings := publisher.RingOrder(record)
	if len(rings) == 0 {
		rings = []string{""}
	}
	var out []ledger.Undone
	for _, ring := range rings {
		out = append(out, l.Rejected(ring, time.Time{})...)
	}
	for _, u := range l.Undone {
		if slices.Contains(out, u) {
			all = append(all, u)
		}
	}
	return all
}

// maxNamed is how many workloads are named.
const maxNamed = 5

// pinnedTime bounds the look into git, which the command can do without.
const pinnedTime = 10 * time.Second

// pinned returns the base commit that the repository around the current folder pins for the environment of a platform, and where;
// empty if it is not there.
func (p *pausing) pinned(cmd *cobra.Command, name string) (commit, at string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), pinnedTime)
	defer cancel()
	source := flags.Source{Environment: p.environment}
	loaded := source.Peek(ctx, pinnedTime)
	if loaded == nil || cmp.Or(loaded.Model.PlatformName(), publisher.DefaultPlatform) != name {
		return "", ""
	}
	for _, b := range loaded.Model.BaseRepos() {
		if b.Name == scheduler.MainBase {
			return b.Commit, b.Position.String()
		}
	}
	return "", ""
}

// recordAt returns the newest record of an environment, which is there, and the platform's name.
func recordAt(ctx context.Context, cmd *cobra.Command, to oci.Location, opts oci.Options, signers published.Signers, environment string, now time.Time) (state.Record, string, error) {
	var none state.Record
	name, err := publisher.PlatformOf(ctx, to, opts, environment)
	if err != nil {
		return none, "", err
	}
	store, err := to.Open(opts)
	if err != nil {
		return none, "", err
	}
	reader := state.New(to, store, signers, now, name, environment, func(format string, args ...any) {
		cmd.PrintErrf("warning: %s\n", cli.Indented(fmt.Sprintf(format, args...)))
	})
	r, err := reader.Record(ctx)
	if err != nil {
		return none, "", err
	}
	if r.Verified == nil {
		return none, "", &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("there is no record of environment %s %s", environment, signers.SignedText())}
	}
	return r, name, nil
}
