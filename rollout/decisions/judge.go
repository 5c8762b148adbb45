package decisions

import (
	"cmp"
	"crypto"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Trust says whose decisions count.
type Trust struct {
	Platform string
	// Policy is that of the environment which the decisions are about, as it runs now.
	Policy promotion.Policy
	// Releases are the release keys in force. They may pause and resume; the zero value lets nobody.
	Releases published.Signers
	Now      time.Time
}

// Listed is a decision, and whether it counts. Its JSON form is an interface.
type Listed struct {
	bundle.Decision
	KeyID string `json:"keyId"` // as the envelope says, where Valid is false
	// Member is the person who decided; empty if nobody is known to have.
	Member string `json:"member,omitempty"`
	Valid  bool   `json:"valid"`
	// Why says why it does not count.
	Why    string `json:"why,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Source string `json:"source,omitempty"`
	// Envelope is the signed decision.
	Envelope []byte `json:"-"`
}

// Pause is why automation is off in an environment.
type Pause struct {
	// By is the member of a group, or the release key, that paused.
	By       string    `json:"by"`
	KeyID    string    `json:"keyId"`
	Reason   string    `json:"reason,omitempty"`
	IssuedAt time.Time `json:"issuedAt"`
}

// Of returns those of found that count, oldest first: of each member the newest approval or rejection and the newest override on
// each subject, and of all the newest pause or resume. They may be about any commit; see [bundle.Decision.IsAbout].
func Of(found []Found, t Trust) []gate.Decided {
	var all []gate.Decided
	for _, l := range List(found, t) {
		if l.Valid {
			all = append(all, gate.Decided{Decision: l.Decision, Member: l.Member, KeyID: l.KeyID})
		}
	}
	slices.Reverse(all)
	return all
}

// Paused returns the pause that is in force, and whether there is one. Of pauses and resumes the newest counts, and of two in the
// same second the pause.
func Paused(found []Found, t Trust) (Pause, bool) {
	for _, l := range List(found, t) {
		if l.Valid && l.Action == bundle.Pause {
			return Pause{By: l.Member, KeyID: l.KeyID, Reason: l.Reason, IssuedAt: l.IssuedAt}, true
		}
	}
	return Pause{}, false
}

// Again returns the moment until which what was undone may be released again: that of the newest pause or resume, if it is a resume that
// says so; else the zero time.
func Again(found []Found, t Trust) time.Time {
	for _, l := range List(found, t) {
		if l.Valid && l.Action == bundle.Resume && l.Again {
			return l.IssuedAt
		}
	}
	return time.Time{}
}

// List returns all of found, newest first, each with whether it counts and why not. The same decision from two sources is listed
// once.
func List(found []Found, t Trust) []Listed {
	list := []Listed{}
	seen := map[string]bool{}
	for _, f := range found {
		l := t.judge(f)
		id := string(f.Envelope) + "\x00" + f.Tag
		if f.Tag == "" || l.Decision.HasTag(f.Tag, l.KeyID, f.Envelope) {
			id = string(f.Envelope) + "\x00" + l.Decision.Tag(l.KeyID)
		}
		if !seen[id] {
			seen[id] = true
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, newestFirst)
	superseded(list)
	expired(list, t.Now)
	return list
}

// newestFirst orders decisions by their time; in the same second one that forbids is before one that allows.
func newestFirst(a, b Listed) int {
	forbids := func(l Listed) int {
		if l.Action == bundle.Reject || l.Action == bundle.Pause {
			return 0
		}
		return 1
	}
	return cmp.Or(b.IssuedAt.Compare(a.IssuedAt), cmp.Compare(forbids(a), forbids(b)),
		cmp.Compare(a.Member, b.Member), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Source, b.Source))
}

// superseded marks those after which the same member has decided on the same subject, and pauses and resumes after which anybody
// has. A rejection also takes the member's earlier override back. List is newest first.
func superseded(list []Listed) {
	later := map[string]*Listed{}
	for i := range list {
		l := &list[i]
		if !l.Valid {
			continue
		}
		subject := strings.Join([]string{l.Member, contentOf(l.Decision)}, "\x00")
		switch l.Action {
		case bundle.Pause, bundle.Resume:
			subject = string(bundle.Pause)
		case bundle.Override:
			if by := later[subject+"\x00"+string(bundle.Reject)]; by != nil {
				l.Valid, l.Why = false, fmt.Sprintf("%s rejected at %s", l.Member, by.IssuedAt.Format(time.RFC3339))
				continue
			}
			subject += "\x00" + string(bundle.Override)
		case bundle.Reject:
			later[subject+"\x00"+string(bundle.Reject)] = cmp.Or(later[subject+"\x00"+string(bundle.Reject)], l)
		}
		if by := later[subject]; by != nil {
			l.Valid, l.Why = false, fmt.Sprintf("later, at %s: %s by %s", by.IssuedAt.Format(time.RFC3339), by.Action, by.Member)
			continue
		}
		later[subject] = l
	}
}

// contentOf is the content that a decision is about.
func contentOf(d bundle.Decision) string {
	parts := []string{d.Ring, d.From, d.BaseCommit, d.Workload.String(), d.Workload.Revision.String()}
	for _, typ := range slices.Sorted(maps.Keys(d.Contents)) {
		parts = append(parts, typ, d.Contents[typ].String())
	}
	return strings.Join(parts, "\x00")
}

// expired marks those that have ended. It comes after superseded: what an approval took the place of does not come back.
func expired(list []Listed, now time.Time) {
	for i := range list {
		if l := &list[i]; l.Valid && !l.ExpiresAt.IsZero() && !now.Before(l.ExpiresAt) {
			l.Valid, l.Why = false, fmt.Sprintf("expired at %s", l.ExpiresAt.Format(time.RFC3339))
		}
	}
}

// judge verifies one decision on its own.
func (t Trust) judge(f Found) Listed {
	d, id, err := bundle.ReadDecision(f.Envelope)
	l := Listed{Decision: d, KeyID: id, Tag: f.Tag, Source: f.Source, Envelope: f.Envelope}
	switch {
	case err != nil:
		l.Why = err.Error()
	case d.Platform != t.Platform:
		l.Why = fmt.Sprintf("it is for platform %q", d.Platform)
	case d.Environment != t.Policy.Environment:
		l.Why = fmt.Sprintf("it is for environment %q", d.Environment)
	case f.Tag != "" && !d.HasTag(f.Tag, id, f.Envelope):
		l.Why = "it is under the tag of another decision"
	case d.IssuedAt.Sub(t.Now) > MaxAhead:
		l.Why = fmt.Sprintf("it is issued in the future, at %s", d.IssuedAt.Format(time.RFC3339))
	default:
		l.Member, l.Why = t.member(d, id, f.Envelope)
		l.Valid = l.Why == ""
	}
	return l
}

// member returns the person for whom a decision speaks, or the reason why it speaks for nobody.
func (t Trust) member(d bundle.Decision, keyID string, envelope []byte) (name, why string) {
	people := t.deciders(d)
	if people.who == "" {
		return "", fmt.Sprintf("the policy asks nobody to %s", d.Action)
	}
	public, name := people.of(keyID, d.By)
	switch {
	case public == nil && d.By != "" && people.isHub(keyID) && people.hasMember(d.By):
		return "", fmt.Sprintf("a hub signed it for %q, who has a key: %s does not say hubSpeaksForKeys: true", d.By, people.who)
	case public == nil && d.By != "" && people.isHub(keyID):
		return "", fmt.Sprintf("a hub signed it for %q, who is not in %s", d.By, people.who)
	case public == nil:
		return "", fmt.Sprintf("its key %s is not in %s", trust.ShortKeyID(keyID), people.who)
	}
	if _, _, err := bundle.OpenDecision(envelope, public); err != nil {
		return "", "its signature is not by the key that it names"
	}
	return name, ""
}

// deciders are the keys that may decide.
type deciders struct {
	who    string // for people; empty if nobody may decide
	groups []promotion.Group
	keys   []namedKey // that belong to no group
}

type namedKey struct {
	name string
	key  crypto.PublicKey
}

// deciders returns those who may make the decision d.
func (t Trust) deciders(d bundle.Decision) deciders {
	g := t.Policy.Gate
	if d.Ring != "" {
		g = t.Policy.RingGate
	}
	switch {
	case d.Action == bundle.Override:
		return decidersOf(g.Override)
	case d.IsContent(): // anybody of the policy may reject a revision, and take that back
		return deciders{who: "a group of the policy", groups: t.groups()}
	case d.Action == bundle.Approve, d.Action == bundle.Reject:
		return decidersOf(g.Approvals)
	}
	all := deciders{who: "the release keys or a group of the policy", groups: t.groups()}
	for _, key := range t.Releases.Keys {
		id, err := bundle.KeyID(key)
		if err != nil {
			continue
		}
		name := "release key " + trust.ShortKeyID(id)
		for _, k := range t.Releases.Document.Release.Keys {
			if k.ID == id && k.Name != "" {
				name = k.Name
			}
		}
		all.keys = append(all.keys, namedKey{name, key})
	}
	return all
}

// groups are those that the policy has or asks.
func (t Trust) groups() []promotion.Group {
	all := slices.Clone(t.Policy.Groups)
	for _, a := range []promotion.Approvals{
		t.Policy.Gate.Approvals, t.Policy.Gate.Content.Approvals, t.Policy.Gate.Override, t.Policy.RingGate.Approvals, t.Policy.RingGate.Override,
	} {
		if len(a.Members)+len(a.Hubs) > 0 {
			all = append(all, a.Of())
		}
	}
	return all
}

// contentTags returns the tags of all decisions that anybody may have made about revisions of the environment from.
func (t Trust) contentTags(from string, about []bundle.DecisionWorkload) map[string]bool {
	type signer struct{ id, by string }
	signers := map[signer]bool{}
	for _, g := range t.groups() {
		for _, m := range g.Members {
			if id, err := bundle.KeyID(m.Key); m.Key != nil && err == nil {
				signers[signer{id, m.Name}] = true
			}
			for _, hub := range g.Hubs {
				if id, err := bundle.KeyID(hub); err == nil && g.HubMaySpeakFor(m.Name) {
					signers[signer{id, m.Name}] = true
				}
			}
		}
	}
	tags := map[string]bool{}
	for _, w := range about {
		for s := range signers {
			for _, action := range []bundle.Action{bundle.Approve, bundle.Override} { // a rejection has the tag of an approval
				d := bundle.Decision{Action: action, Platform: t.Platform, Environment: t.Policy.Environment, From: from, Workload: w, By: s.by}
				tags[d.Tag(s.id)] = true
			}
		}
	}
	return tags
}

func decidersOf(a promotion.Approvals) deciders {
	if a.Required == 0 {
		return deciders{}
	}
	return deciders{who: fmt.Sprintf("group %q", a.Group), groups: []promotion.Group{a.Of()}}
}

// of returns the key with that id and the person for whom it speaks: its owner, or for a hub's key the member called by.
func (p deciders) of(keyID, by string) (crypto.PublicKey, string) {
	for _, g := range p.groups {
		for _, m := range g.Members {
			if m.Key != nil && hasID(m.Key, keyID) {
				return m.Key, m.Name
			}
		}
	}
	for _, k := range p.keys {
		if hasID(k.key, keyID) {
			return k.key, k.name
		}
	}
	for _, g := range p.groups {
		for _, hub := range g.Hubs {
			if !hasID(hub, keyID) {
				continue
			}
			if by != "" && g.HubMaySpeakFor(by) {
				return hub, by
			}
		}
	}
	return nil, ""
}

// hasMember reports whether somebody of that name may decide.
func (p deciders) hasMember(name string) bool {
	return slices.ContainsFunc(p.groups, func(g promotion.Group) bool {
		return slices.ContainsFunc(g.Members, func(m promotion.Member) bool { return m.Name == name })
	})
}

// isHub reports whether the key with that id is a hub's.
func (p deciders) isHub(keyID string) bool {
	return slices.ContainsFunc(p.groups, func(g promotion.Group) bool {
		return slices.ContainsFunc(g.Hubs, func(k crypto.PublicKey) bool { return hasID(k, keyID) })
	})
}

func hasID(key crypto.PublicKey, id string) bool {
	got, err := bundle.KeyID(key)
	return err == nil && got == id
}
