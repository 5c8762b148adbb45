package promotecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// subject holds the flags with which the policy, the candidate and the decisions of an environment are found.
type subject struct {
	source    flags.Source
	registry  flags.Registry
	fleet     flags.Fleet
	to        string
	published flags.Trust
	ring      string

	place    string
	loc      oci.Location
	platform string // empty for one without a Platform object
	loaded   *platform.Loaded
	policy   promotion.Policy
	trust    decisions.Trust
}

func (f *subject) addTo(cmd *cobra.Command) {
	f.source.AddEnvironment(cmd)
	f.source.AddReading(cmd)
	f.registry.AddTo(cmd)
	f.fleet.AddTo(cmd)
	cmd.Flags().StringVar(&f.to, "to", "", "the `LOCATION` of releases and decisions, such as oci://HOST/PREFIX (default the registry of the settings)")
	f.published.AddReleaseKey(cmd)
	cli.NotEmpty(cmd, "to")
}

// open reads the policy of the environment, and who signs its releases.
func (f *subject) open(cmd *cobra.Command, args []string) (*settings.Settings, error) {
	place, err := f.source.Resolve(cmd, args)
	if err != nil {
		return nil, err
	}
	f.place = place
	s := f.source.Settings()
	f.fleet.Default(s)
	if f.loc, err = flags.Location(s, "to", f.to); err != nil {
		return nil, err
	}
	f.source.Named = f.loc.String()
	loaded, err := f.source.Load(cmd, place, f.loc.Dir)
	if err != nil {
		return nil, err
	}
	if f.policy, err = loaded.Model.Promotion(); err != nil {
		return nil, failure.Input(err)
	}
	f.published.Default(s)
	if !f.published.Given() {
		return nil, cli.Fail(cli.Usage, errors.New("missing --release-key or --trust"), `decisions are about signed records: give one, or set "trust" or "keys" in wherry.yaml`)
	}
	signers, err := f.published.Open(cmd.Context(), f.loc, f.registry.Options())
	if err != nil {
		return nil, err
	}
	f.loaded, f.platform = loaded, loaded.Model.PlatformName()
	if err := f.judgedBy(cmd, signers); err != nil {
		return nil, err
	}
	f.trust = decisions.Trust{
		Platform: cmp.Or(f.platform, publisher.DefaultPlatform), Policy: f.policy, Releases: signers, Now: time.Now().UTC(),
	}
	return s, nil
}

// judgedBy takes the policy by which the environment is judged now, in place of the one at the commit that it pins.
func (f *subject) judgedBy(cmd *cobra.Command, signers published.Signers) error {
	source, err := f.source.Options(f.place, f.loc.Dir)
	if err != nil {
		return err
	}
	from := facts.Facts{Location: f.loc, Options: f.registry.Options(), Signers: signers, Now: time.Now, Warn: warner(cmd)}
	record, err := from.Record(cmd.Context(), f.platform, f.policy.Environment)
	if err != nil {
		return failure.At(err, f.loc)
	}
	if f.policy, err = from.PolicyNow(cmd.Context(), source, f.loaded, record); err != nil {
		return failure.Input(err)
	}
	return nil
}

// gate is the gate that is decided about.
func (f *subject) gate() promotion.Gate {
	if f.ring != "" {
		return f.policy.RingGate
	}
	return f.policy.Gate
}

// candidate returns what is to be decided about, as the gate sees it.
func (f *subject) candidate(cmd *cobra.Command) (*gate.Candidate, error) {
	from := facts.Facts{
		Location: f.loc, Options: f.registry.Options(), Signers: f.trust.Releases, Platform: f.platform, Warn: warner(cmd),
		Now: func() time.Time { return f.trust.Now },
	}
	c, err := from.Candidate(cmd.Context(), facts.Ask{Policy: f.policy, Ring: f.ring})
	below := cmp.Or(f.policy.Below(), f.policy.Environment)
	switch {
	case err != nil:
		return nil, new(env.Gates).Failure(err, &from)
	case c == nil || len(c.Contents) == 0:
		return nil, cli.Fail(cli.No, fmt.Errorf("%s has no record of environment %s %s", f.loc, below, f.trust.Releases.SignedText()), f.toPublish(below))
	}
	f.trust.Platform = c.Platform
	return c, nil
}

// toPublish says how an environment gets its first record.
func (f *subject) toPublish(environment string) string {
	if f.ring != "" {
		return "publish it first"
	}
	return "wherry promote -e " + environment + " publishes it"
}

// found reads the decisions of the environment with read, from the registry and, if it is given, the hub.
func (f *subject) found(cmd *cobra.Command, read readDecisions) ([]decisions.Found, error) {
	all, err := read(cmd.Context(), f.loc, f.registry.Options(), f.policy.Environment, warner(cmd))
	if err != nil {
		return nil, failure.At(err, f.loc)
	}
	if f.fleet.URL() == "" {
		return all, nil
	}
	more, err := f.atHub(cmd)
	if err != nil && f.fleet.Preset() {
		cmd.PrintErrf("note: the hub does not say which decisions it has: %s\n", cli.Indented(err.Error()))
		return all, nil
	}
	return append(all, more...), err
}

// readDecisions is decisions.Read or decisions.ReadAll.
type readDecisions func(context.Context, oci.Location, oci.Options, string, func(string, ...any)) ([]decisions.Found, error)

func warner(cmd *cobra.Command) func(string, ...any) {
	return func(format string, args ...any) {
		cmd.PrintErrf("warning: %s\n", cli.Indented(fmt.Sprintf(format, args...)))
	}
}

// deciding holds the flags of approve, reject and override.
type deciding struct {
	subject
	signers  flags.Signers
	action   bundle.Action
	commit   string
	workload string
	revision string
	reason   string
	rules    []string
	expires  string
	format   string
}

// Decided is what approve, reject and override print. Its JSON form is an interface.
type Decided struct {
	*decisions.Written
	// By is the member for whom the decision counts.
	By string `json:"by"`
	// Approvals are the members whose approvals of the same count now, Rejections those who reject it, and Needed is how many the policy
	// asks for.
	Approvals  []string `json:"approvals"`
	Rejections []string `json:"rejections"`
	Needed     int      `json:"needed"`
}

func newApproveCommand() *cobra.Command {
	d := &deciding{action: bundle.Approve}
	cmd := &cobra.Command{
		Use:   "approve [PLATFORM] --environment NAME [--ring NAME | --workload NAME] (--key FILE | --signer cosign:URI | --hub URL)",
		Short: "Approve a commit, a release or a workload",
		Long: `Approve the commit that is to enter an environment, with --ring the release that is to enter its next ring, or with
--workload the revision of a workload that waits. You see what would change before the approval is signed.

Exit codes: 0 the approval is in place, 1 no candidate, 4 the key or token may not decide.

More: wherry help decisions, signing-keys`,
		Example: `  wherry gate approve -e prod --key anna.key
  wherry gate approve -e prod --commit 5523a85 --expires 7d --hub https://hub.example.com
  wherry gate approve -e prod --workload shop/checkout --key anna.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: d.run,
	}
	d.addTo(cmd)
	d.addExpires(cmd)
	return cmd
}

func newRejectCommand() *cobra.Command {
	d := &deciding{action: bundle.Reject}
	cmd := &cobra.Command{
		Use:   "reject [PLATFORM] --environment NAME [--ring NAME | --workload NAME] --reason TEXT (--key FILE | --signer cosign:URI | --hub URL)",
		Short: "Reject a commit, a release or a workload",
		Long: `Reject the commit that is to enter an environment, with --ring the release that is to enter its next ring, or with --workload
the revision of a workload that waits. A rejection replaces your earlier approval and override, and holds until you approve.

Exit codes: 0 the rejection is in place, 1 no candidate, 4 the key or token may not decide.

More: wherry help decisions, signing-keys`,
		Example: `  wherry gate reject -e prod --reason "the maps of plant 7 are wrong" --key anna.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    d.run,
	}
	d.addTo(cmd)
	return cmd
}

func newOverrideCommand() *cobra.Command {
	d := &deciding{action: bundle.Override}
	cmd := &cobra.Command{
		Use:   "override [PLATFORM] --environment NAME [--ring NAME | --workload NAME] --rule NAME --reason TEXT (--key FILE | --signer cosign:URI | --hub URL)",
		Short: "Override rules of a gate",
		Long: `Override rules of a gate for the commit that is to enter an environment: those that --rule names and "wherry gate check"
lists. With --workload, the rules are content (its proof) and approvals. An override replaces your earlier one of the same
content. The rules published, complete, pinned and undone cannot be overridden.

Exit codes: 0 the override is in place, 1 no candidate, 4 the key or token may not decide.

More: wherry help decisions, signing-keys`,
		Example: `  wherry gate override -e prod --rule soak --rule reported --reason "security fix" --expires 2d --key anna.key
  wherry gate override -e prod --workload shop/checkout --rule content --reason "orders fail" --key anna.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: d.run,
	}
	d.addTo(cmd)
	d.addExpires(cmd)
	cmd.Flags().StringArrayVar(&d.rules, "rule", nil, "the `NAME` of a rule to override; may be repeated (required)")
	_ = cmd.MarkFlagRequired("rule")
	_ = cmd.RegisterFlagCompletionFunc("rule", cobra.FixedCompletions(append(bundle.Decision{}.OverridableRules(), gate.RuleContent), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (d *deciding) addTo(cmd *cobra.Command) {
	d.subject.addTo(cmd)
	cmd.Flags().Lookup("hub").Usage = "ask the hub at this `URL` how far the clusters are; without --key and --signer it signs, for the name of your access token"
	d.signers.AddOptional(cmd)
	cmd.Flags().StringVar(&d.ring, "ring", "", "decide about the `NAME` of a ring that is to get the release of the ring before it")
	cmd.Flags().StringVar(&d.commit, "commit", "", "the `COMMIT` that you mean, or at least 7 of its first digits")
	cmd.Flags().StringVar(&d.reason, "reason", "", "the reason, a `TEXT` of one line")
	cmd.Flags().StringVar(&d.workload, "workload", "", "decide about the revision of this workload, `REGISTRATION/NAME`, that waits in the environment below")
	cmd.Flags().StringVar(&d.revision, "revision", "", "with --workload: the `REVISION` that you mean, or at least 7 of its first digits (default the newest)")
	cli.NotEmpty(cmd, "ring", "commit", "reason", "workload", "revision")
	cmd.MarkFlagsMutuallyExclusive("workload", "ring")
	cmd.MarkFlagsMutuallyExclusive("workload", "commit")
	_ = cmd.RegisterFlagCompletionFunc("ring", d.source.CompleteRings)
	if d.action != bundle.Approve {
		_ = cmd.MarkFlagRequired("reason")
	}
	cli.OutputFlag(cmd, &d.format)
}

func (d *deciding) addExpires(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.expires, "expires", "", "the decision ends after this `TIME`, such as 7d (default never)")
	cli.NotEmpty(cmd, "expires")
}

// decision returns the decision as the flags have it, without content.
func (d *deciding) decision(now time.Time) (bundle.Decision, error) {
	said := bundle.Decision{Action: d.action, Reason: d.reason, Ring: d.ring}
	if d.reason != "" {
		if err := bundle.CheckMessage(d.reason); err != nil {
			return said, cli.Usagef("--reason: %v", err)
		}
	}
	of := said
	of.Workload.Name = d.workload
	allowed := of.OverridableRules()
	for _, rule := range d.rules {
		if slices.Contains(allowed, rule) {
			continue
		}
		err := fmt.Errorf("--rule: unknown rule %q", rule)
		if slices.Contains([]string{gate.RulePublished, gate.RuleComplete, gate.RulePinned, gate.RuleUndone}, rule) {
			err = fmt.Errorf("--rule: %q cannot be overridden", rule)
		}
		return said, cli.Fail(cli.Usage, err, "allowed: "+strings.Join(allowed, ", "))
	}
	said.Rules = slices.Sorted(slices.Values(d.rules))
	said.Rules = slices.Compact(said.Rules)
	if d.expires != "" {
		after, err := flags.ParseValidity("expires", d.expires)
		if err != nil {
			return said, err
		}
		said.ExpiresAt = now.Add(after).UTC().Truncate(time.Second)
	}
	if d.commit != "" && len(d.commit) < 7 {
		return said, cli.Usagef("--commit %s: give at least 7 digits", show.Line(d.commit))
	}
	if d.revision = strings.TrimPrefix(d.revision, "sha256:"); d.revision != "" && (d.workload == "" || len(d.revision) < 7) {
		return said, cli.Usagef("--revision %s: give --workload, and at least 7 digits", show.Line(d.revision))
	}
	return said, nil
}

func (d *deciding) run(cmd *cobra.Command, args []string) error {
	said, err := d.decision(time.Now())
	if err != nil {
		return err
	}
	s, err := d.open(cmd, args)
	if err != nil {
		return err
	}
	if err := d.mayDecide(); err != nil {
		return err
	}
	hubSigns, err := d.hubSigns(cmd, s)
	if err != nil {
		return err
	}
	var what string
	var found []decisions.Found
	if d.workload != "" {
		what, found, err = d.aboutWorkload(cmd, &said)
	} else {
		what, found, err = d.aboutCandidate(cmd, &said)
	}
	if err != nil {
		return err
	}
	var done *Decided
	if hubSigns {
		done, err = d.byHub(cmd, said, found)
	} else {
		done, err = d.byKey(cmd, said, found)
	}
	if err != nil {
		return err
	}
	return d.conclude(cmd, done, what)
}

// aboutCandidate has said be about the candidate, which it shows and names, and returns the decisions that there are.
func (d *deciding) aboutCandidate(cmd *cobra.Command, said *bundle.Decision) (what string, _ []decisions.Found, _ error) {
	c, err := d.candidate(cmd)
	if err != nil {
		return "", nil, err
	}
	if d.commit != "" && !strings.HasPrefix(c.BaseCommit, strings.ToLower(d.commit)) {
		return "", nil, cli.Fail(cli.No, fmt.Errorf("the candidate has commit %s, and not %s", show.Cell(c.BaseCommit), show.Line(d.commit)), "look at it with wherry gate check, and decide again")
	}
	about := c.Subject(d.policy, d.ring)
	said.Platform, said.Environment = d.trust.Platform, d.policy.Environment
	said.From, said.BaseCommit, said.Contents = about.From, about.BaseCommit, about.Contents
	d.show(cmd, c)
	d.showChanges(cmd, c)
	found, err := d.found(cmd, decisions.Read)
	if err == nil {
		d.showVerdict(cmd, found)
	}
	return show.Cell(c.BaseCommit), found, err
}

// hubSigns reports whether a hub signs the decision: if no flag names a key, and a flag names the hub, or the settings name a hub and no
// key.
func (d *deciding) hubSigns(cmd *cobra.Command, s *settings.Settings) (bool, error) {
	key := cmd.Flags().Changed("key") || cmd.Flags().Changed("signer")
	if !key && cmd.Flags().Changed("hub") {
		return true, nil
	}
	if d.signers.Default(s) == nil {
		return false, nil
	}
	if d.fleet.URL() == "" {
		return false, cli.Fail(cli.Usage, errors.New("missing --key, --signer or --hub"), "sign with your own key, or give --hub to have a hub sign for the name of your access token")
	}
	return true, nil
}

// mayDecide returns an error unless the policy asks for such decisions, and there can be something to decide about.
func (d *deciding) mayDecide() error {
	if d.ring == "" && d.policy.Below() == "" && len(d.policy.Chain) > 0 {
		return cli.Fail(cli.Usage, fmt.Errorf("environment %s is the first of its chain: no environment below it has a record to decide about", d.policy.Environment),
			"protect the branch of the base to have people look at what enters it")
	}
	what, asks := "approvals", d.gate().Approvals
	switch {
	case d.action == bundle.Override:
		what, asks = "override", d.gate().Override
	case d.workload != "": // also for who takes a rejection back
		asks.Required = len(d.policy.Groups)
	}
	if d.workload != "" && !d.policy.Gate.Content.Held {
		return notHeld(d.policy)
	}
	if asks.Required > 0 {
		return nil
	}
	where := "the gate of environment " + d.policy.Environment
	if d.ring != "" {
		where = "the gate of rings of environment " + d.policy.Environment
	}
	return cli.Fail(cli.Usage, fmt.Errorf("%s has no %s: nobody may %s", where, what, d.action), fmt.Sprintf("write %s: {required: 1, group: NAME} into the PromotionPolicy", what))
}

// show prints what is decided about.
func (d *deciding) show(cmd *cobra.Command, c *gate.Candidate) {
	to := d.policy.Environment
	if d.ring != "" {
		to += ", ring " + d.ring
	}
	cmd.PrintErrf("%s to %s: commit %s, %s, published %s\n", show.Cell(c.Environment), show.Cell(to), show.Cell(c.BaseCommit), show.Count(len(c.Contents), "cluster type"), show.Time(c.IssuedAt))
	for i, typ := range slices.Sorted(maps.Keys(c.Contents)) {
		if i == maxShown {
			cmd.PrintErrf("  and %d more\n", len(c.Contents)-maxShown)
			break
		}
		cmd.PrintErrf("  %s %s\n", show.Cell(typ), c.Contents[typ])
	}
	if len(c.Incomplete) > 0 {
		cmd.PrintErrf("incomplete, so no gate passes it: %s\n", show.Line(strings.Join(c.Incomplete, ", ")))
	}
}

// showVerdict prints what the gate says before the decision. Nothing depends on it, so that one may decide where the clusters cannot be
// counted.
func (d *deciding) showVerdict(cmd *cobra.Command, found []decisions.Found) {
	from, err := d.facts(cmd, found)
	if err != nil {
		cmd.PrintErrf("note: the gate cannot be asked: %s\n", cli.Indented(err.Error()))
		return
	}
	q, err := from.Question(cmd.Context(), facts.Ask{Policy: d.policy, Ring: d.ring})
	if err != nil {
		cmd.PrintErrf("note: the gate cannot be asked: %s\n", cli.Indented(err.Error()))
		return
	}
	v := gate.Judge(q) // an external check is for those who ask the gate
	text := headline(v)
	if open := openRules(v); len(open) > 0 {
		text += ": " + strings.Join(open, ", ")
	}
	cmd.PrintErrf("the gate before this decision: %s\n%s", text, counted(v))
}

// facts returns what the gate is asked by, with these decisions beside those in the registry.
func (d *deciding) facts(cmd *cobra.Command, found []decisions.Found) (*facts.Facts, error) {
	from := &facts.Facts{
		Location: d.loc, Options: d.registry.Options(), Signers: d.trust.Releases, Platform: d.platform, Now: func() time.Time { return d.trust.Now },
		Clusters:  facts.Roster(func(environment string) (platform.Source, error) { return d.source.OptionsOf(environment, d.place) }),
		Decisions: []func(context.Context, string) ([]decisions.Found, error){func(context.Context, string) ([]decisions.Found, error) { return found, nil }},
	}
	if d.fleet.URL() == "" {
		return from, nil
	}
	hub, err := d.fleet.Client(cmd)
	if err == nil {
		from.Hub, from.HubURL = hub, d.fleet.URL()
	}
	return from, err
}

// openRules returns the names of the rules that do not pass, those that fail first.
func openRules(v gate.Verdict) (all []string) {
	for _, result := range []gate.Result{gate.Fail, gate.Wait} {
		for _, r := range v.Rules {
			if r.Result == result {
				all = append(all, r.Name)
			}
		}
	}
	return all
}

// maxShown bounds the cluster types that are listed before a decision.
const maxShown = 20

// byKey signs and writes the decision with the key of a member.
func (d *deciding) byKey(cmd *cobra.Command, said bundle.Decision, found []decisions.Found) (*Decided, error) {
	keys, err := d.signers.Open(cmd)
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, cli.Usagef("%d keys are given: one person decides with one key", len(keys))
	}
	id, err := bundle.KeyID(keys[0].Public())
	if err != nil {
		return nil, err
	}
	groups, who := d.deciders()
	member := memberOf(groups, id)
	if member == "" {
		return nil, cli.Fail(cli.Denied, fmt.Errorf("key %s is that of no member of %s", trust.ShortKeyID(id), who),
			"its members are "+membersText(groups)+"; one without a key decides through a hub (--hub)")
	}
	if same := d.sameAsBefore(found, said, member); same != nil {
		return d.summary(&decisions.Written{Decision: same.Decision, KeyID: same.KeyID, Result: releases.OutcomeUnchanged, Reference: d.reference(same)}, member, said, found), nil
	}
	said.By = member // for readers without the policy, such as the pages of a hub
	written, err := decisions.Write(cmd.Context(), d.loc, d.registry.Options(), said, keys[0], d.trust.Now)
	if err != nil {
		return nil, failure.At(err, d.loc)
	}
	return d.summary(written, member, said, append(found, decisions.Found{Envelope: written.Envelope})), nil
}

// deciders returns the groups whose members may decide, and what they are for people.
func (d *deciding) deciders() ([]promotion.Group, string) {
	group := d.gate().Approvals
	if d.action == bundle.Override {
		group = d.gate().Override
	} else if d.workload != "" {
		return d.policy.Groups, "a group of the policy"
	}
	return []promotion.Group{group.Of()}, "group " + group.Group
}

func (d *deciding) reference(l *decisions.Listed) string {
	if l.Tag == "" {
		return l.Source
	}
	return d.loc.Name(bundle.EnvironmentRepository(l.Environment)) + ":" + l.Tag
}

// sameAsBefore returns the member's decision that counts and says the same already.
func (d *deciding) sameAsBefore(found []decisions.Found, said bundle.Decision, member string) *decisions.Listed {
	for _, l := range decisions.List(found, d.trust) {
		if l.Valid && l.Member == member && l.Action == said.Action && l.Decision.IsAbout(said) && l.ExpiresAt.Equal(said.ExpiresAt) &&
			slices.Equal(l.Rules, said.Rules) && (said.Reason == "" || l.Reason == said.Reason) {
			return &l
		}
	}
	return nil
}

// summary counts who has approved and rejected what was decided about.
func (d *deciding) summary(w *decisions.Written, member string, said bundle.Decision, found []decisions.Found) *Decided {
	asked := d.gate().Approvals
	if d.workload != "" {
		asked = d.policy.Gate.Content.Approvals
	}
	done := &Decided{Written: w, By: member, Approvals: []string{}, Rejections: []string{}, Needed: asked.Required}
	for _, one := range decisions.Of(found, d.trust) {
		if !one.IsAbout(said) {
			continue
		}
		switch {
		case one.Action == bundle.Reject:
			done.Rejections = append(done.Rejections, one.Member)
		case one.Action == bundle.Approve && slices.ContainsFunc(asked.Members, func(m promotion.Member) bool { return m.Name == one.Member }):
			done.Approvals = append(done.Approvals, one.Member)
		}
	}
	slices.Sort(done.Approvals)
	slices.Sort(done.Rejections)
	return done
}

func (d *deciding) conclude(cmd *cobra.Command, done *Decided, what string) error {
	if d.format != "table" {
		if err := cli.Print(cmd.OutOrStdout(), d.format, done, nil); err != nil {
			return err
		}
	}
	past := map[bundle.Action]string{bundle.Approve: "approved", bundle.Reject: "rejected", bundle.Override: "overrode " + strings.Join(done.Decision.Rules, ", ") + " for"}[d.action]
	if done.Result == releases.OutcomeUnchanged {
		cmd.PrintErrf("%s has %s %s already, at %s: nothing was changed\n", show.Cell(done.By), past, what, show.Time(done.Decision.IssuedAt))
	} else {
		cmd.PrintErrf("%s %s %s\n", show.Cell(done.By), past, what)
	}
	defer d.hintOfRejection(cmd, done)
	if done.Needed == 0 {
		return nil
	}
	cmd.PrintErrf("%s\n", show.Line(done.count()))
	return nil
}

// count says how many have approved, and who has rejected.
func (d *Decided) count() string {
	text := fmt.Sprintf("%d of %d approvals", len(d.Approvals), d.Needed)
	if len(d.Approvals) > d.Needed {
		text = fmt.Sprintf("%s, %d needed", show.Count(len(d.Approvals), "approval"), d.Needed)
	}
	if len(d.Approvals) > 0 {
		text += ": " + strings.Join(d.Approvals, ", ")
	}
	if len(d.Rejections) > 0 {
		text += "; rejected by " + strings.Join(d.Rejections, ", ")
	}
	return text
}

// hintOfRejection says what a rejection means for an override, which takes none back.
func (d *deciding) hintOfRejection(cmd *cobra.Command, done *Decided) {
	if d.action != bundle.Override || len(done.Rejections) == 0 {
		return
	}
	who := show.Line(strings.Join(done.Rejections, ", "))
	switch {
	case d.workload != "":
		cmd.PrintErrf("note: it stays out all the same: an override takes back no rejection, so whoever rejected it (%s) has to approve it\n", who)
	case !slices.Contains(d.rules, gate.RuleApprovals):
		cmd.PrintErrf("note: it stays out all the same: %s rejected it; --rule approvals overrides that too\n", who)
	}
}

func memberOf(groups []promotion.Group, keyID string) string {
	for _, g := range groups {
		for _, m := range g.Members {
			if m.Key == nil {
				continue
			}
			if id, err := bundle.KeyID(m.Key); err == nil && id == keyID {
				return m.Name
			}
		}
	}
	return ""
}

func membersText(groups []promotion.Group) string {
	var names []string
	for _, g := range groups {
		for _, m := range g.Members {
			names = append(names, m.Name)
		}
	}
	return show.Line(show.List(names, maxShown))
}

// listing holds the flags of gate list.
type listing struct {
	subject
	format string
}

func newListCommand() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list [PLATFORM] --environment NAME",
		Short: "List the decisions about an environment",
		Long: `List the decisions about an environment, newest first: who decided what and when, and whether it counts, or why it does not.
They are read from the registry, and from the hub of --hub or the settings. "unproved" is what the environment has by
"wherry publish --unproved".

The exit code is 0, also if there are none; 2 for wrong usage, and 3 for other failures.`,
		Example: `  wherry gate list -e prod
  wherry gate list -e prod --to oci://127.0.0.1:5000/edge --release-key cosign.pub -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: l.run,
	}
	l.addTo(cmd)
	cmd.Flags().Lookup("hub").Usage = "also read the decisions that the hub at this `URL` has"
	cli.OutputFlag(cmd, &l.format)
	return cmd
}

func (l *listing) run(cmd *cobra.Command, args []string) error {
	if _, err := l.open(cmd, args); err != nil {
		return err
	}
	found, err := l.found(cmd, decisions.ReadAll)
	if err != nil {
		return err
	}
	list := decisions.List(found, l.trust)
	unproved, err := l.unproved(cmd)
	if err != nil {
		return err
	}
	list = append(list, unproved...)
	slices.SortStableFunc(list, func(a, b decisions.Listed) int { return b.IssuedAt.Compare(a.IssuedAt) })
	if l.format == "table" && len(list) == 0 {
		cmd.PrintErrf("no decisions about environment %s\n", l.policy.Environment)
		return nil
	}
	return cli.Print(cmd.OutOrStdout(), l.format, list, func(w io.Writer) {
		fmt.Fprintln(w, "ISSUED\tWHO\tDECISION\tRING\tABOUT\tCOUNTS\tREASON")
		for _, d := range list {
			counts := "yes"
			if !d.Valid {
				counts = "no: " + d.Why
			}
			what := string(d.Action)
			if len(d.Rules) > 0 {
				what += " " + strings.Join(d.Rules, ",")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", show.Time(d.IssuedAt), show.Cell(cmp.Or(d.Member, d.By, trust.ShortKeyID(d.KeyID))),
				show.Cell(what), show.Cell(d.Ring), show.Cell(aboutText(d.Decision)), show.Cell(counts), show.Cell(d.Reason))
		}
	})
}

// aboutText is what a decision is about, for a cell of a table: a commit, or a revision of a workload.
func aboutText(d bundle.Decision) string {
	switch {
	case !d.IsContent():
		return d.BaseCommit[:min(len(d.BaseCommit), 12)]
	case d.Workload.Revision == "":
		return d.Workload.String() + " removed"
	}
	return d.Workload.String() + " " + shortRevision(d.Workload.Revision)
}
