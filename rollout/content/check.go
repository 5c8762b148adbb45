package content

import (
	"slices"

	"github.com/wherry-dev/wherry/bundle/ledger"
)

// Checked is the answer of Decision.Check. The rendered workload may be published if nothing is missing. Else render it again at
// Take.Entry, once, and keep its files if that does not help.
type Checked struct {
	// Missing are artifacts that no proof of the workload has, and own does not have.
	Missing []ledger.Artifact
	// Outside counts artifacts without a known digest that below names without one, too, or that allowFloating lets in: what clusters get
	// is not known, and the gate's rule "pinned" decides.
	Outside int
	// From is the revision below that it is made of; nil if own's entry keeps the one that it has.
	From *ledger.Proof
}

// Passes reports whether the rendered workload may be published.
func (c Checked) Passes() bool { return len(c.Missing) == 0 }

// Check judges what was rendered of a workload that is taken. Every artifact has to be one that clusters below have proved with a revision
// of the same workload, or that own has, wherever the manifests came from. A workload at its head is free.
func (d *Decision) Check(rendered ledger.Revision, k ledger.Key) (c Checked) {
	t := d.Take(k)
	if t == nil { // nobody decided about it
		return Checked{Missing: rendered.Artifacts}
	}
	if t.Kind == Head {
		return c
	}
	proofs := t.proofs(d.Proofs[k])
	for _, a := range rendered.Artifacts {
		var known bool
		if a.Digest == "" {
			known = t.floats(a, proofs)
		} else {
			known = slices.ContainsFunc(proofs, func(p *ledger.Proof) bool { return hasArtifact(p.Artifacts, a) }) ||
				slices.ContainsFunc(t.own, func(r ledger.Revision) bool { return hasArtifact(r.Artifacts, a) })
		}
		switch {
		case a.Digest == "" && (known || d.floating):
			c.Outside++
		case !known:
			c.Missing = append(c.Missing, a)
		}
	}
	if t.Kind != Proved && t.Kind != Admitted {
		return c
	}
	if t.Proof != nil && shares(rendered, t.Proof) {
		c.From = t.Proof
		return c
	}
	if t.Entry != nil && slices.ContainsFunc(proofs, func(p *ledger.Proof) bool { return shares(rendered, p) }) {
		return c // it was made of what its entry says
	}
	for _, p := range proofs { // newest first
		if lists(p, rendered.Artifacts) {
			c.From = p
			break
		}
	}
	return c
}

// floats reports whether own has an artifact by the same reference without a known digest, or the newest proof that names it. One that was
// proved by its digest, and has none any more, may be anything.
func (t *Take) floats(a ledger.Artifact, proofs []*ledger.Proof) bool {
	same := func(b ledger.Artifact) bool { return b.Type == a.Type && b.Reference == a.Reference }
	bare := func(b ledger.Artifact) bool { return same(b) && b.Digest == "" }
	if slices.ContainsFunc(t.own, func(r ledger.Revision) bool { return slices.ContainsFunc(r.Artifacts, bare) }) {
		return true
	}
	i := slices.IndexFunc(proofs, func(p *ledger.Proof) bool { return slices.ContainsFunc(p.Artifacts, same) })
	return i >= 0 && !slices.ContainsFunc(proofs[i].Artifacts, func(b ledger.Artifact) bool { return same(b) && b.Digest != "" })
}

// proofs returns what was proved below, newest first: the revision that is taken, and proofs that were seen.
func (t *Take) proofs(kept []ledger.Proof) (all []*ledger.Proof) {
	if t.Proof != nil {
		all = append(all, t.Proof)
	}
	for i := range kept {
		if p := &kept[i]; !p.Proved.IsZero() && !p.Removal && (t.Proof == nil || !sameAs(*p, *t.Proof)) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *ledger.Proof) int { return b.Record.Compare(a.Record) })
	return all
}

// shares reports whether a revision was read from a repository and ref that one below was read from.
func shares(rendered ledger.Revision, p *ledger.Proof) bool {
	at := func(s ledger.Source) ledger.Source { return ledger.Source{Repo: s.Repo, Ref: s.Ref} }
	below := []ledger.Source{at(p.Source)}
	for _, t := range p.Targets {
		below = append(below, at(t.Source))
	}
	is := func(s ledger.Source) bool { return s.Repo != "" && slices.Contains(below, at(s)) }
	return is(rendered.Source) || slices.ContainsFunc(rendered.Targets, func(t ledger.Target) bool { return is(t.Source) })
}

// lists reports whether a proof has all artifacts whose digests are known.
func lists(p *ledger.Proof, all []ledger.Artifact) bool {
	return !slices.ContainsFunc(all, func(a ledger.Artifact) bool { return a.Digest != "" && !hasArtifact(p.Artifacts, a) })
}
