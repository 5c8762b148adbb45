package rolloutcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// looking holds the flags of rollout status.
type looking struct {
	env.Gates
	format      string
	clusterType string
}

func newStatusCommand() *cobra.Command {
	var l looking
	cmd := &cobra.Command{
		Use:   "status [PLATFORM | LOCATION] [--environment NAME] [--to LOCATION]",
		Short: "Show the progress of a rollout",
		Long: `Show how far the rings of an environment are: the release of each ring, how many of its clusters are compliant, and what the
gate of the next ring says; then the workloads that wait for a proof, with the reason, and what was undone. The first line has the state:
running, done, held or paused. Facts come from registry and hub. PLATFORM is read for the policy and, without a hub, for
the clusters. Nothing is changed.

"wherry rollout commit" shows how far one commit is, "wherry rollout workload" one version of a workload.

Exit codes: 0 all rings have the newest release and proved it, 1 a gate says no or too many clusters failed, 5 under way or
paused. A LOCATION as the argument is --to.

More: wherry help rings, hub-access`,
		Example: `  wherry rollout status ./platform --environment prod --to oci://127.0.0.1:5000/edge --release-key cosign.pub
  wherry rollout status -e prod --hub https://hub.example.com`,
		Args: cobra.MaximumNArgs(1),
		RunE: l.run,
	}
	l.AddTo(cmd)
	l.AddTrust(cmd)
	cli.OutputFlag(cmd, &l.format)
	cmd.Flags().StringVar(&l.clusterType, "cluster-type", "", "show only the releases of this `TYPE` of clusters")
	cli.NotEmpty(cmd, "cluster-type")
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
	return cmd
}

// The states of a rollout.
const (
	stateDone    = "done"    // all rings have the newest release, and it is proved
	stateHeld    = "held"    // a gate says no, or too many clusters failed
	statePaused  = "paused"  // it is neither, and somebody has paused the environment
	stateRunning = "running" // none of these
)

// status is what wherry rollout status prints about rings. Its JSON form is an interface.
type status struct {
	State string           `json:"state"`
	Why   string           `json:"why,omitempty"` // the first reason why it is not done
	Pause *decisions.Pause `json:"pause,omitempty"`
	*advance.Seen
	Rings []ringStatus `json:"rings"`
	// AwaitingProof are the workloads of which the environment below has something newer that waits.
	AwaitingProof []diff.AwaitingProof `json:"awaitingProof"`
	// Undone is what was taken back and stays out until a person says that it may come again: base commits, then workloads.
	Undone []undone `json:"undone"`
	// Proof judges all clusters by the numbers of the ring gate, with the commit of the widest ring.
	Proof gate.Verdict `json:"proof"`
}

// undone is a base commit, or a version of a workload.
type undone struct {
	BaseCommit   string    `json:"baseCommit,omitempty"`
	Registration string    `json:"registration,omitempty"`
	Workload     string    `json:"workload,omitempty"`
	Version      string    `json:"version,omitempty"`
	At           time.Time `json:"at"`
	Reason       string    `json:"reason,omitempty"`
}

func (u undone) String() string {
	what := "base commit " + u.BaseCommit[:min(7, len(u.BaseCommit))]
	if u.Workload != "" {
		what = strings.TrimSpace(ledger.Key{Registration: u.Registration, Workload: u.Workload}.String() + " " + u.Version)
	}
	text := what + " is undone since " + u.At.UTC().Format(time.RFC3339)
	if u.Reason != "" {
		text += " (" + u.Reason + ")"
	}
	return text
}

type ringStatus struct {
	advance.Ring
	Cohort gate.Cohort `json:"cohort"`
}

func (l *looking) run(cmd *cobra.Command, args []string) error {
	o, err := l.Open(cmd, args)
	if said := (*cli.Error)(nil); errors.As(failure.Of(err), &said) && said.Code == cli.Usage && len(args) == 0 {
		hint := `"wherry rollout commit" asks a hub how far a commit is, without PLATFORM`
		if said.Hint != "" {
			hint = said.Hint + "; " + hint
		}
		return cli.Fail(said.Code, said.Err, hint)
	}
	if err != nil {
		return err
	}
	if o.Lost != nil {
		cmd.PrintErrf("warning: %s\n", cli.Indented(o.Lost.Error()))
	}
	s, err := l.look(cmd, o)
	if err != nil {
		return l.Failure(err, &o.Facts)
	}
	for _, w := range s.Warnings {
		cmd.PrintErrf("warning: %s\n", cli.Indented(w))
	}
	if l.format == "table" {
		fmt.Fprintln(cmd.OutOrStdout(), s.headline())
		if by := s.Proof.CountedBy(); by != "" {
			fmt.Fprintln(cmd.OutOrStdout(), show.Line(by))
		}
		if !s.hasClusters() {
			fmt.Fprintf(cmd.OutOrStdout(), "no clusters of %s are known\n", show.Line(s.Environment))
		}
	}
	if err := cli.Print(cmd.OutOrStdout(), l.format, s, s.table); err != nil {
		return err
	}
	switch s.State {
	case stateDone:
		return nil
	case stateHeld:
		return cli.Exit(cli.No)
	}
	return cli.Exit(cli.NotYet)
}

func (l *looking) look(cmd *cobra.Command, o *env.Opened) (*status, error) {
	ctx, policy, now := cmd.Context(), o.Policy, o.Facts.Now().UTC()
	options := advance.Options{Environment: policy.Environment, ClusterType: l.clusterType, Rings: policy.Rings}
	seen, err := advance.Look(ctx, o.Facts.Location, o.Facts.Options, o.Facts.Signers, options, o.Facts.RingGate(map[string]promotion.Policy{policy.Environment: policy}), now)
	if err != nil {
		return nil, err
	}
	s := &status{Seen: seen, Rings: []ringStatus{}}
	count, err := o.Facts.Counter(ctx, policy)
	if err != nil {
		return nil, err
	}
	for i, r := range seen.Rings {
		one := ringStatus{Ring: r}
		rings := []string{r.Ring}
		if r.Ring == "" {
			rings = nil
		} else if i == len(seen.Rings)-1 {
			rings = append(rings, "") // agents without a ring have what the last ring has
		}
		if r.BaseCommit != "" {
			counted, err := count(rings, r.BaseCommit, r.IssuedAt)
			if err != nil {
				return nil, err
			}
			one.Cohort = counted.Cohort
		}
		s.Rings = append(s.Rings, one)
	}
	var all facts.Counted
	widest := seen.Rings[len(seen.Rings)-1]
	if widest.BaseCommit != "" {
		if all, err = count(nil, widest.BaseCommit, widest.IssuedAt); err != nil {
			return nil, err
		}
	}
	s.Proof = proof(policy, seen, widest, all, now)
	pause, is, err := o.Facts.Paused(ctx, policy, seen.Platform)
	if err != nil {
		return nil, err
	}
	if is {
		s.Pause = &pause
	}
	entry, err := o.Facts.EntryNow(ctx, o.Loaded, policy)
	if err != nil {
		return nil, err
	}
	s.AwaitingProof = entry.Awaiting()
	if s.Undone, err = takenBack(ctx, o, policy, seen); err != nil {
		return nil, err
	}
	s.conclude()
	return s, nil
}

// takenBack returns what was taken back from any ring of the environment.
func takenBack(ctx context.Context, o *env.Opened, policy promotion.Policy, seen *advance.Seen) ([]undone, error) {
	all := []undone{}
	again, err := o.Facts.Again(ctx, policy, seen.Platform)
	if err != nil {
		return nil, err
	}
	record, err := o.Facts.Record(ctx, seen.Platform, policy.Environment)
	if err != nil {
		return nil, err
	}
	if record != nil {
		for _, u := range record.Undone {
			if u.BaseCommit != "" && u.At.After(again) {
				all = append(all, undone{BaseCommit: u.BaseCommit, At: u.At, Reason: u.Reason})
			}
		}
	}
	l, err := o.Facts.Ledger(ctx, seen.Platform, policy.Environment)
	if l == nil || err != nil {
		return all, err
	}
	for _, r := range seen.Rings {
		for _, u := range l.Rejected(r.Ring, again) {
			one := undone{Registration: u.Registration, Workload: u.Workload, Version: u.Version, At: u.At, Reason: u.Reason}
			if !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
	}
	return all, nil
}

// proofRules are those that the clusters themselves have to meet.
var proofRules = []string{gate.RulePublished, gate.RuleCohort, gate.RuleReported, gate.RuleCompliant, gate.RuleFailed, gate.RuleQuarantine, gate.RuleFailures, gate.RuleRequired}

// proof judges the clusters of all rings by the numbers of the ring gate.
func proof(policy promotion.Policy, seen *advance.Seen, widest advance.Ring, all facts.Counted, now time.Time) gate.Verdict {
	v := gate.Judge(gate.Question{
		Policy: policy, Gate: policy.RingGate, Ring: widest.Ring, Commit: widest.BaseCommit,
		Candidate: &gate.Candidate{Platform: seen.Platform, Environment: seen.Environment, BaseCommit: widest.BaseCommit, IssuedAt: widest.IssuedAt},
		Cohort:    all.Cohort, Required: all.Required, Now: now,
	})
	v.Rules = slices.DeleteFunc(v.Rules, func(r gate.Rule) bool { return !slices.Contains(proofRules, r.Name) })
	v.Result, v.NextLook = gate.Pass, time.Time{}
	for _, r := range v.Rules {
		if r.Result == gate.Fail || v.Result == gate.Pass {
			v.Result = r.Result
		}
	}
	return v
}

// conclude sets the state from what was found.
func (s *status) conclude() {
	behind := false
	s.State = stateRunning
	for _, r := range s.Rings {
		if r.Next == nil {
			continue
		}
		behind = true
		if r.Next.Result == advance.Held && s.State != stateHeld {
			s.State, s.Why = stateHeld, "ring "+r.Next.Ring+": "+reason(r.Next.Verdict)
		}
		if s.Why == "" {
			if s.Why = "ring " + r.Next.Ring + ": "; r.Next.Result == advance.Ready {
				s.Why += "its gate passes: wherry rollout advance brings it on"
			} else {
				s.Why += reason(r.Next.Verdict)
			}
		}
	}
	switch {
	case behind:
	case s.Proof.Result == gate.Pass:
		s.State, s.Why = stateDone, ""
		return
	case s.Proof.Result == gate.Fail:
		s.State, s.Why = stateHeld, reason(s.Proof)
	default:
		s.Why = reason(s.Proof)
	}
	if s.Pause != nil && s.State == stateRunning {
		s.State = statePaused
	}
}

// reason returns the first rule that fails, else the first that waits; empty if all pass.
func reason(v gate.Verdict) string {
	for _, result := range []gate.Result{gate.Fail, gate.Wait} {
		for _, r := range v.Rules {
			if r.Result == result {
				return r.String()
			}
		}
	}
	return ""
}

// headline says the state in one line.
func (s *status) headline() string {
	text := show.Line(s.Platform + "/" + s.Environment + ": " + s.State)
	if p := s.Pause; p != nil {
		if s.State != statePaused {
			text += ", paused"
		}
		text += " by " + show.Line(cmp.Or(p.By, p.KeyID)) + " since " + p.IssuedAt.Format(time.RFC3339)
		if p.Reason != "" {
			text += ": " + show.Line(p.Reason)
		}
	}
	if s.Why != "" && s.State != statePaused {
		text += ": " + show.Line(s.Why)
	}
	return text
}

// hasClusters reports whether a ring has clusters, also such as do not report.
func (s *status) hasClusters() bool {
	return slices.ContainsFunc(s.Rings, func(r ringStatus) bool { return r.Cohort.Clusters+r.Cohort.NotReporting > 0 })
}

func (s *status) table(w io.Writer) {
	cli.Row(w, "RING", "RELEASE", "COMMIT", "CLUSTERS", "COMPLIANT", "PROGRESSING", "FAILED", "WAITING", "UNKNOWN", "NEXT RING", "GATE", "REASON", "NEXT LOOK")
	for _, r := range s.Rings {
		c := r.Cohort
		row := []string{cmp.Or(r.Ring.Ring, "all"), releasesText(r.Releases), r.BaseCommit[:min(7, len(r.BaseCommit))]}
		for _, n := range []int{c.Clusters, c.Compliant, c.Progressing, c.Failed, c.Waiting, c.Unknown} {
			if s.hasClusters() {
				row = append(row, fmt.Sprint(n))
			} else {
				row = append(row, "-")
			}
		}
		if n := r.Next; n == nil {
			row = append(row, "", "", "", "")
		} else {
			look := ""
			if !n.Verdict.NextLook.IsZero() {
				look = n.Verdict.NextLook.Format(time.RFC3339)
			}
			row = append(row, n.Ring, string(n.Verdict.Result), reason(n.Verdict), look)
		}
		cli.Row(w, row...)
	}
	for _, a := range s.AwaitingProof {
		fmt.Fprintln(w, show.Line(a.Reason))
	}
	for _, u := range s.Undone {
		if !slices.ContainsFunc(s.AwaitingProof, func(a diff.AwaitingProof) bool {
			return a.Registration == u.Registration && a.Workload == u.Workload && strings.Contains(a.Reason, "undone in "+s.Environment+" since")
		}) {
			fmt.Fprintln(w, show.Line(u.String()))
		}
	}
}

// releasesText names releases: one by its number and digest, several of few cluster types by theirs, and many by their count.
func releasesText(all []advance.Release) string {
	const few = 3
	var names []string
	for _, r := range all {
		name := bundle.ReleaseName(r.Number, r.Digest)
		if len(all) > 1 {
			name = r.ClusterType + " " + name
		}
		names = append(names, name)
	}
	if len(names) > few {
		return fmt.Sprintf("%d cluster types", len(names))
	}
	return strings.Join(names, ", ")
}
