package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// Admission says which content of workloads enters an environment; package rollout/content decides it.
type Admission struct {
	// Record is the digest of the environment's record that the decision was made from; empty if there was none.
	Record digest.Digest
	// IsKnown is true if that record says what the environment has. Else nothing is published while a workload waits: left out, it could be
	// removed from clusters that run it. The error wraps ErrUnproved.
	IsKnown bool
	// Below is the environment below.
	Below string
	// Unproved is the reason of the person who takes the base commit without a proof; empty if its gate has passed.
	Unproved string
	// Moves are the proofs by which workloads get something else than they have.
	Moves map[ledger.Key]ledger.Proof
	// Waits says what workloads wait for that are rendered as the environment has them.
	Waits map[ledger.Key]string
	// Waiting returns the workloads whose assignments keep the files that they have, each with what it waits for. Those that are in no
	// release are left out. Rendered has what was read of each workload.
	Waiting func(rendered map[ledger.Key]ledger.Revision) map[ledger.Key]string
	// Override returns those of Waiting's answer that wait all the same: people may have let in what no proof can. Nil is all of them.
	Override func(ctx context.Context, rendered map[ledger.Key]ledger.Revision, waiting map[ledger.Key]string) (map[ledger.Key]string, error)
	// Decided returns the places of a rendered workload that the environment below does not read, and that it does not have like this: its
	// team has decided on them, and nobody has proved them.
	Decided func(ledger.Key, ledger.Revision) []string
	// From returns the revision of the environment below that a rendered workload is made of, the zero value if that is not known, and the
	// reason for which it comes without a proof; empty if it is proved.
	From func(ledger.Key, ledger.Revision) (ledger.From, string)
	// Proofs are those of the next ledger.
	Proofs map[ledger.Key][]ledger.Proof
	// Stands reports whether what was chosen is still good: people may have rejected it meanwhile, or the environment below taken it back. It
	// is asked once, before the first push. Nil stands.
	Stands func(ctx context.Context) (bool, error)
}

// ErrDecideAgain means that the environment's record is another one than the decision of PublishOptions.Admission was made from, or that
// something of it was rejected or undone since. Nothing was published.
var ErrDecideAgain = errors.New("which content may enter it has to be decided again, since it was published meanwhile, or something was rejected or undone")

// ErrUnproved means that an environment cannot be published before its workloads are proved in the one below.
var ErrUnproved = errors.New("not proved")

// Unproved returns an error that wraps ErrUnproved. Waits says of one workload what it waits for, and more counts the others.
func Unproved(environment, waits string, more int) error {
	if more > 0 {
		waits += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Errorf("%s has no record that says what it runs, and a workload that is left out would be removed from it: %w: %s", environment, ErrUnproved, waits)
}

// refused returns an error if a workload that was rendered waits, it is not known whether the environment has it, and nobody drops it. The
// workloads of a registration that could not be read wait, too.
func (p *publication) refused(plans []*plan) error {
	a := p.opts.Admission
	if a == nil || a.IsKnown {
		return nil
	}
	for _, u := range p.unknowns.unread {
		unread := ledger.Key{Registration: u.Registration}
		if a.Waiting(map[ledger.Key]ledger.Revision{unread: {}})[unread] != "" {
			return Unproved(p.Environment, fmt.Sprintf("registration %s cannot be read: %v", u.Registration, u.Err), 0)
		}
	}
	if len(p.unknowns.waiting) == 0 {
		return nil
	}
	open := map[string]bool{}
	for _, pl := range plans {
		for _, f := range pl.waiting {
			open[f.Error] = true
		}
	}
	all := slices.DeleteFunc(p.awaitingProof(), func(w diff.AwaitingProof) bool { return !open[w.Reason] })
	if len(all) == 0 {
		return nil
	}
	return Unproved(p.Environment, all[0].Reason, len(all)-1)
}

// mayKeep returns an error if what an environment has is not to be signed again: nobody vouches for what was let in before the present epoch, and
// a record of this one would. Last is the ledger of record; nil if it is lost, which may have held content.
func (p *publication) mayKeep(record state.Record, last *ledger.Ledger) error {
	isHeld := last == nil || last.IsHeld() || p.opts.Admission != nil
	if record.Verified.Record.Epoch == p.Trust.Epoch || !isHeld {
		return nil
	}
	return fmt.Errorf("%s: what it has was let in before epoch %d began: %w", p.Environment, p.Trust.Epoch, ErrUnproved)
}

// isDecided returns ErrDecideAgain if the admission was decided on from another record than at.
func (p *publication) isDecided(at state.Record) error {
	if p.opts.Admission == nil {
		return nil
	}
	var now digest.Digest
	if at.Verified != nil {
		now = at.Verified.Descriptor.Digest
	}
	if now != p.opts.Admission.Record {
		return fmt.Errorf("environment %s: %w", p.Environment, ErrDecideAgain)
	}
	return nil
}

// stillStands returns ErrDecideAgain if something that plans release was rejected, or undone below, since it was decided on.
func (p *publication) stillStands(ctx context.Context, plans []*plan) error {
	a := p.opts.Admission
	if a == nil || a.Stands == nil || !slices.ContainsFunc(plans, (*plan).wouldChange) {
		return nil
	}
	stands, err := a.Stands(ctx)
	if err == nil && !stands {
		err = fmt.Errorf("environment %s: %w", p.Environment, ErrDecideAgain)
	}
	return err
}

// holdWaiting returns plans in which the workloads that wait for a proof, and those that would come again as they were undone, keep what
// they have. Last is the ledger of record, or nil.
func (p *publication) holdWaiting(ctx context.Context, result *scheduler.Result, plans []*plan, record state.Record, last *ledger.Ledger) ([]*plan, error) {
	a := p.opts.Admission
	if a == nil && (last == nil || len(last.Undone) == 0) || p.undone(plans, record) != nil { // then nothing new comes at all
		return plans, nil
	}
	rendered := map[ledger.Key]ledger.Revision{}
	for key, h := range readingOf(result, plans).heads {
		rendered[key] = h.Revision
	}
	if a != nil {
		p.unknowns.waiting = a.Waiting(rendered)
		if a.Override != nil {
			waiting, err := a.Override(ctx, rendered, p.unknowns.waiting)
			if err != nil {
				return nil, err
			}
			p.unknowns.waiting = waiting
		}
		maps.DeleteFunc(p.unknowns.waiting, func(k ledger.Key, _ string) bool { return p.isUnread(k.Registration) }) // which holds all of it
	}
	p.unknowns.undone = p.comingAgain(rendered, p.aimedRings(plans, record), last)
	if len(p.unknowns.waiting)+len(p.unknowns.undone) == 0 {
		return plans, nil
	}
	held := slices.Clone(plans)
	err := p.each(len(plans), func(p *publication, i int) (err error) {
		waits := func(a bundle.Assignment) bool {
			_, undone := p.unknowns.undone[keyOf(a)]
			return undone || p.unknowns.waiting[keyOf(a)] != ""
		}
		if slices.ContainsFunc(plans[i].hadAssigned(), waits) || slices.ContainsFunc(plans[i].assigned(), waits) {
			held[i], err = p.plan(ctx, plans[i].asked, record)
		}
		return err
	})
	return held, err
}

// comingAgain returns the workloads that were rendered as a revision which one of these rings does not have because it was undone, each
// with the mark. What a person lets in without a proof is not among them.
func (p *publication) comingAgain(rendered map[ledger.Key]ledger.Revision, rings map[string]bool, last *ledger.Ledger) map[ledger.Key]ledger.Undone {
	again := map[ledger.Key]ledger.Undone{}
	if last == nil {
		return again
	}
	for _, ring := range slices.Sorted(maps.Keys(rings)) {
		for _, u := range last.Rejected(ring, p.opts.Again) {
			r, is := rendered[u.Key]
			if !is || r.Revision != u.Revision {
				continue
			}
			if a := p.opts.Admission; a != nil {
				if from, unproved := a.From(u.Key, r); unproved != "" && from == (ledger.From{}) { // what a group overrode is not meant
					continue
				}
			}
			again[u.Key] = u
		}
	}
	return again
}

// staysOut says of a workload that is not brought again.
func staysOut(u ledger.Undone) string { return u.String() + "; it was not published again" }

func keyOf(a bundle.Assignment) ledger.Key {
	return ledger.Key{Registration: a.Registration, Workload: a.Workload}
}

// awaitingProof lists the workloads that wait for a proof, and those that were undone.
func (p *publication) awaitingProof() (all []diff.AwaitingProof) {
	waits := map[ledger.Key]string{}
	for k, u := range p.unknowns.undone {
		waits[k] = staysOut(u)
	}
	if p.opts.Admission != nil {
		maps.Copy(waits, p.opts.Admission.Waits)
		maps.Copy(waits, p.unknowns.waiting)
	}
	for _, k := range slices.SortedFunc(maps.Keys(waits), ledger.Key.Compare) {
		all = append(all, diff.AwaitingProof{Registration: k.Registration, Workload: k.Workload, Reason: waits[k]})
	}
	return all
}

// notHeld counts the workloads of which no proof says what clusters get, because something of them follows a branch or a tag.
func (p *publication) notHeld(read reading) (n int) {
	if p.opts.Admission == nil {
		return 0
	}
	for _, h := range read.heads {
		if slices.ContainsFunc(h.Artifacts, func(a ledger.Artifact) bool { return a.Digest == "" }) {
			n++
		}
	}
	return n
}

// decidedOf returns the workloads that come with something of which their teams have decided.
func (p *publication) decidedOf(read reading) (all []diff.Decided) {
	if p.opts.Admission == nil {
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(read.heads), ledger.Key.Compare) {
		h := read.heads[k]
		if p.unknowns.waiting[k] != "" || len(h.types) == 0 {
			continue
		}
		if places := p.opts.Admission.Decided(k, h.Revision); len(places) > 0 {
			all = append(all, diff.Decided{Registration: k.Registration, Workload: k.Workload, Below: p.opts.Admission.Below, Places: places, Ring: ringsOf(p.rings)[0]})
		}
	}
	return all
}

// provedOf returns the workloads that come by proof with what was read. Last is the ledger of the record that stands, or nil.
func (p *publication) provedOf(read reading, last *ledger.Ledger) (all []diff.Proved) {
	a := p.opts.Admission
	if a == nil {
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(a.Moves), ledger.Key.Compare) {
		proof, h := a.Moves[k], read.heads[k]
		switch {
		case p.unknowns.waiting[k] != "", proof.Removal != (h == nil), h != nil && len(h.types) == 0, proof.Removal && read.held[k]:
			continue
		case h != nil:
			if from, unproved := a.From(k, h.Revision); from.Record != proof.Record || unproved != "" { // made of something else, or by a person's word
				continue
			}
		}
		one := diff.Proved{
			Registration: k.Registration, Workload: k.Workload, Removed: proof.Removal,
			Below: a.Below, Record: proof.Record.String(), Revision: proof.Revision, ProvedAt: proof.Proved,
		}
		if h != nil {
			one.Version = h.Version
		}
		if last != nil {
			if w := last.Find(k); w != nil {
				if had, _ := w.In(ringsOf(p.rings)[0]); had != nil {
					one.OldVersion = had.Version
				}
			}
		}
		if n := len(proof.Met); n > 0 { // the newest
			met := proof.Met[n-1]
			one.BaseCommit, one.CountedBy, one.Clusters, one.Compliant = met.BaseCommit, met.By, met.Clusters, met.Compliant
		}
		all = append(all, one)
	}
	return all
}

// messageOf returns the message of a release that plan makes: that of the person, else what comes by proof.
func (ps *pusher) messageOf(pl *plan) string {
	if ps.message != "" || len(ps.proved) == 0 {
		return ps.message
	}
	has := map[ledger.Key]bool{}
	for _, a := range pl.rendered {
		has[ledger.Key{Registration: a.Registration, Workload: a.Workload}] = true
	}
	for _, a := range pl.hadAssigned() {
		has[keyOf(a)] = true
	}
	var here []diff.Proved
	for _, one := range ps.proved {
		if has[ledger.Key{Registration: one.Registration, Workload: one.Workload}] {
			here = append(here, one)
		}
	}
	text := diff.ProvedText(here, bundle.MaxReleaseMessageBytes)
	if bundle.CheckMessage(text) != nil {
		return ""
	}
	return text
}

// admitted returns the stay of a workload's revision that is published, by the one that was there if it is the same revision.
func (p *publication) admitted(k ledger.Key, r ledger.Revision, stay ledger.Stay) ledger.Stay {
	a := p.opts.Admission
	if a == nil {
		return stay
	}
	from, unproved := a.From(k, r)
	switch {
	case from != (ledger.From{}) && from != stay.From:
		stay.From, stay.Unproved = from, unproved
		stay.Record = ledger.Record{} // it came again
	case from == (ledger.From{}) && stay.Since.IsZero():
		stay.Unproved = unproved
	}
	return stay
}
