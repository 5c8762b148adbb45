// Package content decides which revision of each workload enters an environment.
//
// Begin with [Decide]. It gets the ledgers of the environment that is published ("own") and of the one before it in the chain
// ("below"), how far below's clusters are, and the policy, and answers for each workload: what to read it at, why it waits, when to
// look again, and the proofs for own's next ledger. [Decision.Check] judges what was rendered from that.
//
// A workload enters own if clusters below have proved it, and stays as it is otherwise: nothing goes back. The functions are pure.
// They read no clock, no git and no registry, and trust what they are given: verify ledgers, reports and decisions first.
package content

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Question is what a decision is made from.
type Question struct {
	// Policy is own's. Its gate has the numbers, the soak, and the rule about content.
	Policy promotion.Policy
	// Own and Below are the ledgers of the newest verified records. Own is nil if there is none in the epoch in force: then nobody
	// knows what runs. Below is nil if there is none, or one that this version does not read: then nothing new is proved.
	Own, Below *ledger.Ledger
	// OwnRing is the first ring of own, and BelowRing the last one of below's record; empty without rings.
	OwnRing, BelowRing string
	// BaseCommit is the base commit that own will run.
	BaseCommit string
	// SameBase are further commits with the same base.
	SameBase []string
	// Counts say how far the clusters are with what below's record assigns to them. Nil means that nobody could count.
	Counts map[ledger.Key]Count
	// Workloads are further ones that own may have, from what below's newest commits list.
	Workloads []ledger.Key
	// Workspaces has the workspace of each registration; that of the platform's own workloads has the key "".
	Workspaces map[string]string
	// Decisions are the verified ones about workloads of own.
	Decisions []Decided
	// Again is the time of own's resume that lets come again what was undone before; zero for none.
	Again time.Time
	// Closed says why nothing new may come at all, such as a freeze, a pause or a batch under way; empty if it may. OpensAt is the end
	// of that, if time alone ends it.
	Closed  string
	OpensAt time.Time
	// Unproved reports whether a person takes a workload without a proof; may be nil. Where the policy has a group that may override its
	// gate, that takes the group's overrides of the rule "content" as well.
	Unproved func(ledger.Key) bool
	Now      time.Time
}

// Count is how far the clusters are that have a workload, and Required the same of those that the gate requires.
type Count struct {
	gate.Cohort
	Required *gate.Cohort
}

// Subject is what people decide about: a revision of the environment below, or with an empty Revision the removal of the workload there.
type Subject struct {
	ledger.Key
	Revision digest.Digest
}

// SubjectOf returns what a decision about a workload is about.
func SubjectOf(w bundle.DecisionWorkload) Subject {
	return Subject{ledger.Key{Registration: w.Registration, Workload: w.Name}, w.Revision}
}

// Decides returns s as a decision names it.
func (s Subject) Decides() bundle.DecisionWorkload {
	return bundle.DecisionWorkload{Registration: s.Registration, Name: s.Workload, Revision: s.Revision}
}

// Decided is a decision of a person. One about a removal counts if it was made after that.
type Decided struct {
	About Subject
	gate.Decided
}

// Kind says what a workload is read at.
type Kind string

// The kinds.
const (
	// Head means that nothing holds the workload: its sources are read at their heads.
	Head Kind = "head"
	// Proved means that shared sources are read at the commits of Take.Proof, and others at their heads.
	Proved Kind = "proved"
	// Admitted means that shared sources are read at the commits of Take.Entry, and others at their heads if Take.Open.
	Admitted Kind = "admitted"
	// FilesStay means that the workload keeps the files of the release that own's record names.
	FilesStay Kind = "filesStay"
	// LeftOut means that own has never had the workload, and does not get it.
	LeftOut Kind = "leftOut"
	// Refused means that nobody knows whether own has it, so that leaving it out could remove what runs: nothing may be published.
	Refused Kind = "refused"
)

// Take is what own takes of a workload.
type Take struct {
	ledger.Key
	Kind Kind `json:"kind"`
	// Removed is true if own is without the workload by this: it was removed below, or before.
	Removed bool `json:"removed,omitempty"`
	// Unproved is true if a person takes it without a proof.
	Unproved bool `json:"unproved,omitempty"`
	// Open is true if what nobody below can have is read at its head.
	Open bool `json:"open"`
	// Overridden says who let it in without a proof by overriding the rule "content", and why; empty if it needed none of that.
	Overridden string `json:"overridden,omitempty"`
	// Newer is what the environment below has or had that own may still get, newest first. Own is what own has, by the revision below that it was made
	// of, if its files stay unless people override that; else nil.
	Newer []Newer `json:"-"`
	Own   *Newer  `json:"-"`
	// Proof is the revision below that a proved one is made of, and Entry is what own has; nil if there is none.
	Proof *ledger.Proof    `json:"-"`
	Entry *ledger.Revision `json:"-"`
	// Moves is true if own would get something else than it has, by the proof or because the entry has met the numbers with the base
	// commit that own will run.
	Moves bool `json:"moves,omitempty"`
	// Rebased is true if own would get what it has beside another base commit than it has that with.
	Rebased bool `json:"-"`
	// Waits says why something newer, which below has, does not come, or that below undid what it had last, or own what below does not have;
	// empty if nothing waits.
	Waits string `json:"waits,omitempty"`
	// own are the revisions that rings of own have. Alone is true if below does not have the workload, nor its removal.
	own   []ledger.Revision
	alone bool
}

// IsElsewhere reports whether the revision below was read at another commit than the one that own has, which may have something of own's
// that nobody below has.
func (t *Take) IsElsewhere() bool {
	if t.Proof == nil || t.Entry == nil {
		return false
	}
	own := sourcesOf(t.Entry.Source, t.Entry.Targets)
	return slices.ContainsFunc(sourcesOf(t.Proof.Source, t.Proof.Targets), func(s ledger.Source) bool {
		return slices.ContainsFunc(own, func(o ledger.Source) bool { return placeOf("", o) == placeOf("", s) && o.Commit != s.Commit })
	})
}

// Newer is something that own may get.
type Newer struct {
	ledger.Proof
	Version string
	// Waits says why it does not come; empty if it does. Fails is true if waiting alone does not help.
	Waits string
	Fails bool
}

// Decision is the answer.
type Decision struct {
	// Takes are sorted by workload.
	Takes []Take
	// Proofs are those for own's next ledger, by workload, newest first.
	Proofs map[ledger.Key][]ledger.Proof
	// NewProofs are the workloads of which own's ledger lacks something of them that could be lost, sorted.
	NewProofs []ledger.Key
	// NextLook is the earliest time at which time alone lets something pass; zero if there is none.
	NextLook time.Time
	// free is that of the decider, floating the gate's allowFloating.
	free     func(ledger.Key) (free, unproved bool)
	floating bool
}

// Take returns the one of a workload. For a workload that neither own nor below has, it is nil unless nothing holds that.
func (d *Decision) Take(k ledger.Key) *Take {
	i, found := slices.BinarySearchFunc(d.Takes, k, func(t Take, k ledger.Key) int { return t.Compare(k) })
	if found {
		return &d.Takes[i]
	}
	if free, unproved := d.free(k); free {
		return &Take{Key: k, Kind: Head, Open: true, Unproved: unproved}
	}
	return nil
}

// StandsWith reports whether a later answer still has all that d lets in, and all proofs that d keeps.
func (d *Decision) StandsWith(later *Decision) bool {
	for _, t := range d.Takes {
		now := later.Take(t.Key)
		if t.Kind == Proved && (now == nil || now.Kind != Proved || !sameAs(*t.Proof, *now.Proof)) {
			return false
		}
	}
	for k, proofs := range d.Proofs {
		for _, p := range proofs {
			if !slices.ContainsFunc(later.Proofs[k], func(o ledger.Proof) bool { return sameAs(o, p) }) {
				return false
			}
		}
	}
	return true
}

// Refused returns the workloads that keep own from being published.
func (d *Decision) Refused() (all []Take) {
	for _, t := range d.Takes {
		if t.Kind == Refused {
			all = append(all, t)
		}
	}
	return all
}

// Decide decides about all workloads.
func Decide(q Question) *Decision {
	d := &decider{Question: q, works: map[ledger.Key]*work{}}
	d.gather()
	for _, w := range d.works {
		d.look(w)
	}
	d.together()
	out := &Decision{Proofs: map[ledger.Key][]ledger.Proof{}, free: d.free, floating: q.Policy.Gate.AllowFloating}
	for _, k := range slices.SortedFunc(maps.Keys(d.works), ledger.Key.Compare) {
		w := d.works[k]
		if t, is := d.take(w); is {
			out.Takes = append(out.Takes, t)
		}
		if kept := d.keep(w); len(kept) > 0 {
			out.Proofs[k] = kept
			if hasNew(w.had, kept) {
				out.NewProofs = append(out.NewProofs, k)
			}
		}
	}
	out.NextLook = d.nextLook
	return out
}

// decider is a question that is being answered.
type decider struct {
	Question
	works    map[ledger.Key]*work
	nextLook time.Time
}

// work is what is known of a workload.
type work struct {
	ledger.Key
	free     bool // nothing holds it
	asked    bool // a person asks to have it without a proof
	unproved bool // and needs nobody for that
	// mine is what own has in its first ring, and stay its stay there; gone means that own has removed it.
	mine *ledger.Revision
	stay ledger.Stay
	gone bool
	had  []ledger.Proof // of own's ledger
	// rings are what all rings of own have.
	rings []ledger.Revision
	// candidates are newest first.
	candidates []candidate
	pick       *candidate
	marks      []ledger.Undone // of own, in force
	mark       *ledger.Undone  // the newest of below in force
	decided    []Decided
	names      []string // of assignments, as far as they are known
	taken      bool
}

// candidate is a revision of the environment below, or a removal there.
type candidate struct {
	ledger.Proof
	now     bool // below has it now
	version string
	stay    ledger.Stay
	// verdict is that on the present one.
	verdict gate.Verdict
	// blocked says why it does not come; ends is when time alone ends that.
	blocked string
	ends    time.Time
	fails   bool // and waiting alone does not help
	past    bool // own has it, or something newer
	// overridden says who overrode the rule content for it; unproved is true if it needs that.
	overridden string
	unproved   bool
}

func (d *decider) work(k ledger.Key) *work {
	w := d.works[k]
	if w == nil {
		w = &work{Key: k}
		d.works[k] = w
	}
	return w
}

// gather collects the workloads of own and below.
func (d *decider) gather() {
	for _, k := range d.Workloads {
		d.work(k)
	}
	if own := d.Own; own != nil {
		for i := range own.Workloads {
			w := d.work(own.Workloads[i].Key)
			w.mine, w.stay = own.Workloads[i].In(d.OwnRing)
			w.had, w.rings = own.Workloads[i].Proofs, own.Workloads[i].Revisions
			if w.mine != nil {
				w.addNames(w.mine.Targets)
			}
		}
		for i := range own.Removed {
			w, stay := d.work(own.Removed[i].Key), stayIn(own.Removed[i].In, d.OwnRing)
			if stay != nil && w.mine == nil {
				w.gone, w.stay = true, *stay
			}
		}
		for _, u := range own.Rejected(d.OwnRing, d.Again) {
			if w := d.works[u.Key]; w != nil {
				w.marks = append(w.marks, u)
			}
		}
	}
	if below := d.Below; below != nil {
		for i := range below.Workloads {
			r, stay := below.Workloads[i].In(d.BelowRing)
			if r == nil {
				continue
			}
			w := d.work(below.Workloads[i].Key)
			w.addNames(r.Targets)
			w.candidates = append(w.candidates, candidate{now: true, version: r.Version, stay: stay, Proof: ledger.Proof{
				Revision: r.Revision, Record: stay.Record, Object: r.Object, Source: r.Source, Targets: r.Targets, Artifacts: r.Artifacts,
			}})
		}
		for i := range below.Removed {
			w, stay := d.work(below.Removed[i].Key), stayIn(below.Removed[i].In, d.BelowRing)
			if stay != nil && len(w.candidates) == 0 {
				for _, names := range below.Removed[i].Assignments {
					w.names = append(w.names, names...)
				}
				w.candidates = append(w.candidates, candidate{now: true, stay: *stay, Proof: ledger.Proof{Record: stay.Record, Removal: true}})
			}
		}
		for _, u := range below.Rejected(d.BelowRing, time.Time{}) {
			if w := d.works[u.Key]; w != nil {
				w.mark = &u
			}
		}
	}
	for _, o := range d.Decisions {
		if w := d.works[o.About.Key]; w != nil {
			w.decided = append(w.decided, o)
		}
	}
	for _, w := range d.works {
		w.asked = d.Unproved != nil && d.Unproved(w.Key)
		w.free, w.unproved = d.free(w.Key)
	}
}

// free reports whether nothing holds a workload, and whether that is because a person takes it without a proof, for which nobody else is
// needed.
func (d *decider) free(k ledger.Key) (free, unproved bool) {
	held := d.Policy.Below() != "" && d.Policy.Gate.Content.Held
	unproved = d.Unproved != nil && d.Unproved(k) && d.Policy.Gate.Override.Required == 0
	return !held || unproved || d.Policy.Gate.Content.Exempt.Has(d.Workspaces[k.Registration], k.Registration, k.Workload), unproved
}

func (w *work) addNames(targets []ledger.Target) {
	for _, t := range targets {
		w.names = append(w.names, w.Workload+"-"+t.Name)
	}
}

func stayIn(in []ledger.Stay, ring string) *ledger.Stay {
	if i := slices.IndexFunc(in, func(s ledger.Stay) bool { return s.Ring == ring }); i >= 0 {
		return &in[i]
	}
	return nil
}

// Open returns what decisions may be about that matter for an answer, sorted.
func Open(q Question) (all []Subject) {
	d := &decider{Question: q, works: map[ledger.Key]*work{}}
	d.gather()
	for _, k := range slices.SortedFunc(maps.Keys(d.works), ledger.Key.Compare) {
		w := d.works[k]
		if w.free {
			continue
		}
		w.addProofs()
		var open []Subject
		for _, c := range w.candidates {
			about := Subject{k, c.Revision}
			if w.has(&c) && !d.stays(w) || d.isPast(w, &c) && !d.isOfUse(w, &c) || slices.Contains(open, about) {
				continue
			}
			open = append(open, about)
		}
		all = append(all, open...)
	}
	return all
}

// look judges the candidates of a workload, and picks the newest good one.
func (d *decider) look(w *work) {
	if w.free {
		return
	}
	if len(w.candidates) > 0 {
		d.count(w, &w.candidates[0])
	}
	w.addProofs()
	for i := range w.candidates {
		c := &w.candidates[i]
		d.judge(w, c)
		if c.blocked == "" && !c.past && w.pick == nil {
			w.pick = c
		}
	}
}

// addProofs adds what own's ledger has proofs of to the candidates, newest first.
func (w *work) addProofs() {
	below := len(w.candidates) > 0 && !w.candidates[0].Removal
	for _, p := range w.had {
		if p.Removal && below {
			continue // it has come back
		}
		if i := slices.IndexFunc(w.candidates, func(c candidate) bool { return sameAs(c.Proof, p) }); i < 0 {
			w.candidates = append(w.candidates, candidate{Proof: p})
		}
	}
	slices.SortStableFunc(w.candidates, func(a, b candidate) int { return b.Record.Compare(a.Record) })
}

// sameAs reports whether two proofs are about the same: a revision that comes again is another one.
func sameAs(a, b ledger.Proof) bool {
	return a.Revision == b.Revision && a.Record == b.Record && a.Removal == b.Removal
}

// count judges what below has now, and notes what its clusters prove.
func (d *decider) count(w *work, c *candidate) {
	if i := slices.IndexFunc(w.had, func(p ledger.Proof) bool { return sameAs(p, c.Proof) }); i >= 0 {
		c.Proved, c.Met = w.had[i].Proved, slices.Clone(w.had[i].Met)
	}
	n := d.Counts[w.Key]
	c.verdict = gate.Content(gate.ContentQuestion{
		Policy: d.Policy, Workload: w.String(), Cohort: n.Cohort, Required: n.Required, Since: c.stay.Since, Now: d.Now,
	})
	if !c.verdict.NumbersHold() || len(c.stay.Unlike) > 0 || c.stay.Since.After(d.Now) {
		return
	}
	base := c.stay.BaseCommit
	is := func(commit string) bool { return commit == base }
	if d.isBase(base) { // own knows it by this commit
		base, is = d.BaseCommit, d.isBase
	}
	if !metWith(c.Proof, is) {
		c.Met = append(c.Met, ledger.Met{BaseCommit: base, At: d.Now, By: strings.TrimSpace(n.From + " " + n.Source), Clusters: n.Clusters, Compliant: n.Compliant})
		c.Met = c.Met[max(0, len(c.Met)-ledger.MaxEarlier):]
	}
	if c.Proved.IsZero() && c.verdict.Rule(gate.RuleSoak).Result == gate.Pass {
		c.Proved = d.Now
	}
}

// about returns the decisions about a candidate. A workload that is removed once more is another question.
func (w *work) about(c *candidate) (all []gate.Decided) {
	for _, o := range w.decided {
		if o.About.Revision == c.Revision && (!c.Removal || !o.IssuedAt.Before(c.stay.Since)) {
			all = append(all, o.Decided)
		}
	}
	return all
}

// has reports whether what own has was made of a candidate.
func (w *work) has(c *candidate) bool {
	return c.Revision == w.stay.From.Revision && c.Record == w.stay.From.Record && c.Record != (ledger.Record{})
}

func metWith(p ledger.Proof, is func(baseCommit string) bool) bool {
	return slices.ContainsFunc(p.Met, func(m ledger.Met) bool { return is(m.BaseCommit) })
}

// isBase reports whether a commit has the base that own will run.
func (d *decider) isBase(commit string) bool {
	return commit == d.BaseCommit || slices.Contains(d.SameBase, commit)
}

// judge says why a candidate does not come.
func (d *decider) judge(w *work, c *candidate) {
	if c.past = d.isPast(w, c); c.past && !w.mayBeOf(c) {
		return
	}
	var why []string
	add := func(is bool, format string, args ...any) {
		if is {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	below := d.Policy.Below()
	if u := d.undoneBelow(w, c); u != nil {
		add(true, "%s", undoneIn(below, u))
	}
	if u := d.undoneHere(w, c); u != nil {
		add(true, "%s", undoneIn(d.Policy.Environment, u))
	}
	about := w.about(c)
	no, rejected := gate.Rejected(d.Policy, about)
	if rejected {
		add(true, "rejected by %s%s", no.Member, because(no.Reason))
	}
	c.fails = len(why) > 0
	var proof []string
	if c.Proved.IsZero() {
		if c.now {
			proof = d.numbers(c)
		} else {
			proof = []string{below + " had it for too short a time"}
		}
	} else if !c.Removal && !metWith(c.Proof, d.isBase) {
		proof = []string{fmt.Sprintf("%s has not run it well with base commit %s", below, short(d.BaseCommit))}
	}
	c.unproved, c.overridden = len(proof) > 0, gate.ContentOverridden(d.Policy, about, d.Now)
	if c.overridden == "" {
		why = append(why, proof...)
		c.fails = c.fails || c.now && c.Proved.IsZero() && c.verdict.Result == gate.Fail
		if r := c.verdict.Rule(gate.RuleSoak); c.now && c.Proved.IsZero() && r.Result == gate.Wait {
			c.ends = r.Ends
		}
	}
	if r := gate.ContentApprovals(d.Policy, w.String(), about, d.Now); r.Result != gate.Pass && !rejected {
		add(true, "approved by %s, wants %s", r.Has, r.Wants)
	}
	c.blocked = strings.Join(why, ", ")
	c.past = c.past && c.blocked != ""
}

// mayBeOf reports whether it is not known of what own's entry was made, and a candidate has its content: once that is proved, it is what
// the entry was made of, however old it is.
func (w *work) mayBeOf(c *candidate) bool {
	return w.mine != nil && w.stay.From == (ledger.From{}) && covers(c.Proof, w.mine)
}

// isPast reports whether own has a candidate, or something newer. What ran before there was a chain is as new as its own record.
func (d *decider) isPast(w *work, c *candidate) bool {
	switch {
	case w.mine == nil && !w.gone:
		return c.Removal
	case w.gone && c.Removal:
		return true
	case w.stay.From == (ledger.From{}):
		return c.Record.Compare(w.stay.Record) <= 0
	case c.Record == w.stay.From.Record && c.Revision == w.stay.From.Revision: // perhaps at another commit
		return false
	}
	return c.Record.Compare(w.stay.From.Record) <= 0
}

// undoneBelow returns the mark of the environment below that a candidate came before.
func (d *decider) undoneBelow(w *work, c *candidate) *ledger.Undone {
	if d.Below == nil || c.Removal {
		return nil
	}
	for i := range d.Below.Undone {
		if u := &d.Below.Undone[i]; u.Key == w.Key && u.Revision == c.Revision && c.Record.Compare(u.Record) <= 0 {
			return u
		}
	}
	return nil
}

// undoneHere returns own's mark of what was made of a candidate; nil if there is none in force. Where own still has content that is made of it,
// own's part alone was taken back: that revision of own stays out, and the next one of own may come.
func (d *decider) undoneHere(w *work, c *candidate) *ledger.Undone {
	if w.mine != nil && w.stay.From.Revision == c.Revision {
		return nil
	}
	i := slices.IndexFunc(w.marks, func(u ledger.Undone) bool { return !c.Removal && u.From == c.Revision })
	if i < 0 {
		return nil
	}
	return &w.marks[i]
}

// numbers says what is missing for the proof of what below has now.
func (d *decider) numbers(c *candidate) (why []string) {
	below := d.Policy.Below()
	if d.Counts == nil {
		return []string{"the clusters of " + below + " were not counted"}
	}
	v := c.verdict
	soak := v.Rule(gate.RuleSoak)
	if soak.Result != gate.Pass {
		why = append(why, "soak "+length(soak.Ends.Sub(d.Now))+" left")
	}
	if len(c.stay.Unlike) > 0 {
		why = append(why, fmt.Sprintf("%s of %s has other content", strings.Join(c.stay.Unlike, ", "), below))
	}
	if v.Rule(gate.RuleCohort).Result != gate.Pass {
		return append(why, fmt.Sprintf("no cluster of %s that was registered before %s has it", below, c.stay.Since.UTC().Format(time.RFC3339)))
	}
	if r, m := v.Rule(gate.RuleReported), v.Rule(gate.RuleCompliant); r.Result != gate.Pass || m.Result != gate.Pass || soak.Result != gate.Pass {
		text := fmt.Sprintf("%d of %d clusters", v.Cohort.Compliant, v.Cohort.Clusters)
		if r.Result != gate.Pass {
			text += v.Cohort.TooOld(d.Policy.Gate.MaxReportAge, d.Now)
		}
		why = append(why, text)
	}
	for _, name := range []string{gate.RuleFailed, gate.RuleQuarantine} {
		if r := v.Rule(name); r.Result != gate.Pass {
			why = append(why, r.String())
		}
	}
	if r := v.Rule(gate.RuleRequired); r.Result != gate.Pass {
		why = append(why, r.Has+" required clusters")
	}
	if len(why) == 0 { // the record is ahead of the clock
		why = append(why, "its time is ahead of the clock")
	}
	return why
}

// together holds back new workloads and removals that belong together until all of them are proved: those of one registration that
// came with one record, and those with an assignment name in common. Else a renaming would stop a workload, or run it twice.
func (d *decider) together() {
	groups := map[string]*group{}
	var all []*group
	for _, k := range slices.SortedFunc(maps.Keys(d.works), ledger.Key.Compare) {
		w := d.works[k]
		c := w.comes()
		if w.free || c == nil || c.Removal == (w.mine == nil) {
			continue // nothing comes, or a workload that own has gets another revision
		}
		g := &group{works: []*work{w}, added: !c.Removal, removed: c.Removal}
		all = append(all, g)
		names := []string{"record " + k.Registration + " " + c.Record.String()}
		for _, name := range w.names {
			names = append(names, "assignment "+name)
		}
		for _, name := range names {
			if other := groups[name]; other != nil {
				g.join(other)
			}
			groups[name] = g
		}
	}
	for _, g := range all {
		if g.into == nil {
			g.hold()
		}
	}
}

// comes returns what a workload is about to get.
func (w *work) comes() *candidate {
	if w.pick != nil {
		return w.pick
	}
	for i := range w.candidates {
		if !w.candidates[i].past {
			return &w.candidates[i]
		}
	}
	return nil
}

// group is workloads that pass together.
type group struct {
	into           *group // nil, or the one that it has become part of
	works          []*work
	added, removed bool
}

func (g *group) whole() *group {
	for g.into != nil {
		if g.into.into != nil {
			g.into = g.into.into
		}
		g = g.into
	}
	return g
}

func (g *group) join(other *group) {
	g, other = g.whole(), other.whole()
	if g == other {
		return
	}
	if len(g.works) > len(other.works) {
		g, other = other, g
	}
	other.works, other.added, other.removed = append(other.works, g.works...), g.added || other.added, g.removed || other.removed
	g.into = other
}

// hold lets the group wait for what is not proved of it, if it adds and removes workloads.
func (g *group) hold() {
	if !g.added || !g.removed {
		return
	}
	slices.SortFunc(g.works, func(a, b *work) int { return a.Compare(b.Key) })
	i := slices.IndexFunc(g.works, func(w *work) bool { return w.pick == nil })
	if i < 0 {
		return
	}
	for _, w := range g.works {
		if w.pick != nil {
			w.pick.blocked = "waits for " + g.works[i].String() + ", which belongs to the same change"
			w.pick = nil
		}
	}
}

// take says what own takes of a workload. It returns false for one that own does not have and is not to get.
func (d *decider) take(w *work) (Take, bool) {
	t := Take{Key: w.Key, Open: d.Closed == "", Entry: w.mine, Unproved: w.unproved, own: w.rings, alone: len(w.candidates) == 0}
	newest := w.comes()
	byHand := w.asked && w.pick != nil && w.pick.overridden != "" // also where nothing new may come
	for _, c := range w.candidates {
		switch n := (Newer{c.Proof, c.version, c.blocked, c.fails}); {
		case c.past:
		case !w.has(&c):
			t.Newer = append(t.Newer, n)
		case d.stays(w):
			n.Version = w.mine.Version
			t.Own = &n
		}
	}
	switch {
	case w.free:
		t.Kind, t.Open = Head, true
		return t, true
	case w.pick != nil && t.Open, w.pick != nil && byHand:
		t.Kind, t.Proof, t.Removed, w.taken = Proved, &w.pick.Proof, w.pick.Removal, true
		t.Moves = w.mine == nil || w.pick.Removal || w.pick.Revision != w.stay.From.Revision || w.pick.Record != w.stay.From.Record
		t.Rebased = !t.Moves && !d.isBase(w.stay.BaseCommit)
		if w.pick.unproved || !t.Open {
			t.Overridden = w.pick.overridden
		}
	case w.gone:
		t.Kind, t.Removed = Admitted, true
	case w.mine != nil && d.runs(w):
		t.Kind, t.Moves = Admitted, !d.isBase(w.stay.BaseCommit)
	case w.mine != nil:
		t.Kind = FilesStay
	case newest == nil && !slices.Contains(d.Workloads, w.Key):
		return t, false
	case d.Own != nil:
		t.Kind = LeftOut
	default:
		t.Kind = Refused
	}
	if t.Waits = d.waits(w, t, newest); t.Waits == "" && w.mark != nil {
		verb := "waits for " + d.Policy.Below()
		if w.mark.Revision == w.stay.From.Revision && w.mine != nil {
			verb = "runs in " + d.Policy.Environment
		}
		t.Waits = fmt.Sprintf("%s %s: %s", strings.TrimSpace(w.Workload+" "+w.mark.Version), verb, undoneIn(d.Policy.Below(), w.mark))
	}
	if n := len(w.marks); t.Waits == "" && !t.Moves && n > 0 { // of what below does not have
		t.Waits = fmt.Sprintf("%s stays out: %s", strings.TrimSpace(w.Workload+" "+w.marks[n-1].Version), undoneIn(d.Policy.Environment, &w.marks[n-1]))
	}
	return t, true
}

// undoneIn says since when a revision was undone in an environment, and why.
func undoneIn(environment string, u *ledger.Undone) string {
	return fmt.Sprintf("undone in %s since %s%s", environment, clock(u.At), because(u.Reason))
}

// runs reports whether own's entry runs with the base already, or what it was made of has met the numbers with it.
func (d *decider) runs(w *work) bool {
	if d.isBase(w.stay.BaseCommit) {
		return true
	}
	from := w.stay.From
	return slices.ContainsFunc(w.candidates, func(c candidate) bool {
		if !metWith(c.Proof, d.isBase) {
			return false
		}
		if from == (ledger.From{}) {
			return covers(c.Proof, w.mine)
		}
		return c.Revision == from.Revision && c.Record == from.Record && !c.Removal
	})
}

// stays reports whether the files of what own has stay beside the base that it will run, unless people override that.
func (d *decider) stays(w *work) bool { return w.mine != nil && !d.runs(w) }

// covers reports whether a revision of the environment below has the content of one that own has, of which it is not known from what it
// was made: the same object, each artifact, and the same folders where both read the same.
func covers(below ledger.Proof, own *ledger.Revision) bool {
	if below.Removal || below.Object != own.Object {
		return false
	}
	for _, a := range own.Artifacts {
		if !hasArtifact(below.Artifacts, a) {
			return false
		}
	}
	for _, t := range own.Targets {
		for _, other := range below.Targets {
			if t.Source.Repo == other.Source.Repo && t.Source.Ref == other.Source.Ref && t.Path == other.Path && t.ID != other.ID {
				return false
			}
		}
	}
	return true
}

func hasArtifact(all []ledger.Artifact, a ledger.Artifact) bool {
	return slices.ContainsFunc(all, func(b ledger.Artifact) bool { return a.Type == b.Type && a.Digest == b.Digest })
}

// waits says why something newer does not come, and notes when to look again.
func (d *decider) waits(w *work, t Take, newest *candidate) string {
	below := d.Policy.Below()
	label := w.Workload
	var why string
	switch {
	case newest == nil && (t.Kind == LeftOut || t.Kind == Refused):
		why = lacks(below, w.Key)
	case newest == nil && t.Kind == FilesStay:
		why = fmt.Sprintf("%s has not run it well with base commit %s", below, short(d.BaseCommit))
	case newest == nil:
		return ""
	default:
		first := newest // of all that is not past, the newest
		for i := range w.candidates {
			if c := &w.candidates[i]; !c.past {
				first = c
				break
			}
		}
		if v := first.version; v != "" {
			label += " " + v
		}
		switch {
		case w.taken && t.Proof == &first.Proof:
			return ""
		case first.Revision == w.stay.From.Revision && first.Record == w.stay.From.Record && w.mine != nil && t.Kind != FilesStay:
			return "" // own has it
		case first.blocked == "":
			why = d.Closed
			d.lookAt(d.OpensAt)
		default:
			why = first.blocked
			d.lookAt(first.ends)
		}
		if first.Removal {
			label += ", removed in " + below + ","
		}
	}
	return fmt.Sprintf("%s waits for %s: %s", label, below, why)
}

// lacks says that the environment below does not have a workload, and what lets it in then.
func lacks(below string, k ledger.Key) string {
	return fmt.Sprintf("%s does not have it; if it never will, exempt %s in the PromotionPolicy, or publish with --unproved REASON --unproved-workload %s", below, k, k)
}

// lookAt notes a time at which something may pass.
func (d *decider) lookAt(at time.Time) {
	if at.After(d.Now) && (d.nextLook.IsZero() || at.Before(d.nextLook)) {
		d.nextLook = at
	}
}

// keep returns the proofs of a workload for own's next ledger: of what own has, and of what may come.
func (d *decider) keep(w *work) []ledger.Proof {
	if w.free {
		return nil
	}
	from := w.stay.From
	if w.taken {
		from = ledger.From{Revision: w.pick.Revision, Record: w.pick.Record}
	}
	var kept []ledger.Proof
	proved := false
	rank := map[ledger.Record]int{}
	for _, c := range w.candidates { // newest first
		isFrom := c.Revision == from.Revision && c.Record == from.Record
		_, rejected := gate.Rejected(d.Policy, w.about(&c))
		old := c.past || w.taken && c.Record.Compare(from.Record) <= 0
		switch {
		case len(c.Met) == 0, isFrom && c.Removal:
			continue
		case isFrom:
			rank[c.Record] = 0
		case d.undoneBelow(w, &c) != nil, rejected, old && !d.isOfUse(w, &c):
			continue
		case !c.Proved.IsZero() && !old && !proved:
			rank[c.Record], proved = 1, true
		case !old:
			rank[c.Record] = 2
		default:
			rank[c.Record] = 3
		}
		kept = append(kept, c.Proof)
	}
	slices.SortStableFunc(kept, func(a, b ledger.Proof) int { return cmp.Compare(rank[a.Record], rank[b.Record]) })
	kept = kept[:min(len(kept), ledger.MaxProofs)]
	slices.SortFunc(kept, func(a, b ledger.Proof) int { return b.Record.Compare(a.Record) })
	return kept
}

// isOfUse reports whether the proof of something older than what own has may still matter: own reads its manifests elsewhere, and may
// name any artifact that was proved, or it is not known of what own's entry was made.
func (d *decider) isOfUse(w *work, c *candidate) bool {
	if w.mine == nil || c.Removal {
		return false
	}
	return !shares(*w.mine, &c.Proof) || w.mayBeOf(c)
}

// hasNew reports whether one of the proofs that are kept says something that is not written yet.
func hasNew(had, kept []ledger.Proof) bool {
	for _, p := range kept {
		i := slices.IndexFunc(had, func(o ledger.Proof) bool { return sameAs(o, p) })
		if i < 0 || had[i].Proved.IsZero() != p.Proved.IsZero() || !slices.EqualFunc(had[i].Met, p.Met, func(a, b ledger.Met) bool { return a.BaseCommit == b.BaseCommit }) {
			return true
		}
	}
	return false
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// clock writes a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// length writes how long something takes: 3h12m, or 40s.
func length(d time.Duration) string {
	if d >= time.Minute {
		d = (d + time.Minute - 1).Truncate(time.Minute)
	}
	v := duration.Value(max(d, time.Second).Round(time.Second))
	return v.String()
}

func short(commit string) string { return commit[:min(len(commit), 7)] }
