package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/reconcilers"
)

// puller is the half of a pass that brings a release here: resolve, learn, verify, fetch, stage. It takes nothing from the cluster
// and changes nothing there.
type puller struct {
	*Agent
	scope
	*earlier
}

// pull fetches the offered release, and the release that is to run if its files are missing. For an imported file, it also
// returns an error of the trust documents if the release is not new.
func (p puller) pull(ctx context.Context) (pulled, outcome) {
	got, out := p.take(ctx)
	if out.Verdict != Interrupted {
		var back outcome
		if got, back = p.bringBack(ctx, got); back.Verdict != Done && (out.Verdict == Done || out.Verdict == Idle) {
			out = back
			if back.Verdict == Refused || back.reason() == ReasonNotFound { // this is not about the offer
				out.Verdict, out.answered = Unreachable, got.offer.answered
			}
		}
	}
	if p.media && got.aside.Err != nil && (out.Verdict == Done || out.Verdict == Idle) {
		return got, got.aside
	}
	return got, out
}

// takeFrom brings the release here that one registry offers. It ends at the first step that is not done.
func (p puller) takeFrom(ctx context.Context, r source) (got pulled, out outcome) {
	p.enter("resolve")
	if got.offer, out = p.resolve(ctx, r); out.Verdict != Done {
		return got, out
	}
	if back := p.held.release(); p.media && back != nil && back.Digest() == got.offer.manifest.Digest { // judged when it was accepted
		got.target = back
		got.staged, out = p.fetchAndStage(ctx, []offer{got.offer}, verified{release: back})
		return got, out
	}
	if p.knownOlder(got.offer) {
		return got, older
	}
	p.enter("learn")
	if got.aside, out = p.learn(ctx, r, got.offer.manifest.Digest); out.Verdict != Done {
		return got, out
	}
	p.enter("verify")
	v, out := p.verify(ctx, got.offer)
	got.target, got.taken, got.recalled = v.release, v.taken, v.recalled
	switch {
	case r.several && p.noteOlder(got.offer, out):
		return got, older
	case out.Verdict != Done:
		return got, out
	case v.release.Digest() == r.tried:
		return got, older // from another registry, it could not be fetched
	}
	got.staged, out = p.fetchAndStage(ctx, p.others(got.offer), v)
	return got, out
}

// source is a registry that a pass asks, or a medium.
type source struct {
	registries.Registry
	place   int  // in the order of sources
	several bool // there are others
	// hurry is true if another one may be asked in place of a slow one.
	hurry bool
	// after is true if an earlier one offers a release that is refused, and tried is the release of an earlier one that
	// could not be fetched.
	after bool
	tried digest.Digest
}

// sources are those that the scope asks, in order.
func (s scope) sources() []source {
	all := []source{{Registry: registries.Registry{Releases: s.from, Trust: s.documents}}}
	for _, r := range s.further {
		all = append(all, source{Registry: r})
	}
	for i := range all {
		all[i].place, all[i].several = i, len(all) > 1
	}
	return all
}

// older is the outcome of an offer that is not newer than what the agent has, or had, from another registry.
var older = outcome{Verdict: Idle, older: true}

// take brings the release here that the scope's registries offer. The first answer that counts ends it: an answer does not
// count if it is an error, refused, or older than what another registry has brought. Order and trust are thus judged as if
// all were one registry.
func (p puller) take(ctx context.Context) (got pulled, out outcome) {
	all := p.sources()
	if len(all) == 1 {
		return p.takeFrom(ctx, all[0])
	}
	t := &taking{puller: p, answers: make([]registries.Answer, len(all))}
	for i, s := range all {
		t.answers[i].Place = s.Place
		if i == 0 {
			t.answers[i].Place = p.opts.Place
		}
	}
	due, resting := p.book.Due(len(all), p.opts.Now(), p.force)
	t.askEach(ctx, all, due, true)
	if !t.heard() {
		t.askEach(ctx, all, resting, true)
	}
	if !t.heard() {
		t.askEach(ctx, all, slices.Clone(t.cutShort), false)
	}
	return t.result()
}

// taking is what the registries of one pass have answered so far.
type taking struct {
	puller
	answers  []registries.Answer
	cutShort []int // places that did not answer in registries.Patience
	got      pulled
	out      outcome
	errs     []string
	refused  bool          // one of them offers a release that is refused
	tried    digest.Digest // a release that was accepted and could not be fetched
	answered bool          // one of them has said what the tag names
	settled  bool
}

// rank orders the outcomes that do not end it: the highest one is the outcome of the whole.
func rank(o outcome) int {
	switch {
	case o.Verdict == Refused:
		return 3
	case o.older:
		return 2
	case o.Verdict == Unreachable && o.reason() != ReasonNotFound:
		return 1
	}
	return 0
}

// askEach asks the registries at these places until one has an answer that counts.
func (t *taking) askEach(ctx context.Context, all []source, places []int, hurry bool) {
	for _, place := range places {
		if t.settled {
			return
		}
		s := all[place]
		s.hurry, s.after, s.tried = hurry, t.refused, t.tried
		got, out := t.takeFrom(ctx, s)
		t.note(s, got, out)
		t.weigh(got, out)
	}
}

// note records how a registry has answered.
func (t *taking) note(s source, got pulled, out outcome) {
	t.answered = t.answered || got.offer.answered
	a := &t.answers[s.place]
	*a = registries.Answer{Place: a.Place, Asked: true, Reason: out.reason()}
	var refusal *bundle.Refusal
	switch {
	case errors.As(out.Err, &refusal):
		a.Message = reconcilers.Clip(refusal.Message)
	case out.older:
		a.Reason = string(bundle.OlderRelease)
		a.Message = "its release " + bundle.ReleaseName(0, got.offer.manifest.Digest) + " is not newer than what is here"
	case out.Err != nil:
		a.Message = reconcilers.Clip(out.Err.Error())
	}
	if out.Verdict != Interrupted && out.Verdict != Broken {
		t.book.Note(s.place, out.Verdict != Unreachable || out.reason() == ReasonNotFound, t.opts.Now())
	}
	if out.Verdict == Unreachable {
		t.errs = append(t.errs, a.Message)
	}
	if s.hurry && errors.Is(out.Err, errHurried) {
		t.cutShort = append(t.cutShort, s.place)
	}
}

// weigh makes an answer the outcome of the whole if it says more than those before.
func (t *taking) weigh(got pulled, out outcome) {
	t.settled = !out.older && out.Verdict != Unreachable && out.Verdict != Refused
	switch {
	case t.settled && out.Verdict == Idle && t.refused: // nothing is newer than the refused release
	case t.settled, t.out.Verdict == "", t.tried == "" && rank(out) > rank(t.out):
		t.got, t.out = got, out
	}
	t.refused = t.refused || out.Verdict == Refused
	if !t.settled && !out.older && got.target != nil {
		t.tried = got.target.Digest()
	}
}

// heard reports whether one of them has said that nothing is new, so that those that were left out need not be asked.
func (t *taking) heard() bool { return t.settled || t.out.older }

// result is that of the whole.
func (t *taking) result() (pulled, outcome) {
	t.got.answers, t.got.offer.answered = t.answers, t.answered
	if t.out.Verdict == Unreachable && len(t.errs) > 1 {
		t.out.Err = &noneError{t.out.Err, slices.Compact(t.errs)}
	}
	return t.got, t.out
}

// noneError is the error of registries none of which has an answer that counts. It wraps the one that says most.
type noneError struct {
	error
	all []string
}

func (e *noneError) Error() string { return strings.Join(e.all, "; ") }
func (e *noneError) Unwrap() error { return e.error }

// errHurried means that a registry was not given the time that a single one has.
var errHurried = fmt.Errorf("%w: no answer in %v", oci.ErrUnreachable, registries.Patience)

// knownOlder reports whether the offer was verified before and is older than what the agent has from another registry.
func (p puller) knownOlder(o offer) bool {
	k := p.book.Of(o.place)
	return !p.force && k.Older != "" && k.Older == o.manifest.Digest && k.OlderBy == p.judgedBy()
}

// noteOlder reports whether verify found the offer older than the accepted release, and remembers such an offer.
func (p puller) noteOlder(o offer, out outcome) bool {
	if out.reason() != string(bundle.OlderRelease) {
		return false
	}
	k := p.book.Of(o.place)
	k.Older, k.OlderBy = o.manifest.Digest, p.judgedBy()
	return true
}

// others returns o, and then the other registries of the scope as places of the same release, which is named by digests.
func (p puller) others(o offer) []offer {
	all := []offer{o}
	for _, s := range p.sources() {
		if repo, ok := s.Releases.(oci.Target); ok && s.place != o.place {
			all = append(all, offer{place: s.place, documents: p.onePerManifest(repo, bundle.TooLarge), layers: repo})
		}
	}
	return all
}
