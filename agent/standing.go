package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/relay"
	values "github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// known is what the state file has of how an agent stands.
type known struct {
	cluster           bundle.ReportCluster
	records           []assignments.Record
	running, accepted *state.Release
	refused           *refusal
	contact           contact
	floor             time.Time // of the epoch in force
	queue             outbox.Status
	asked             trust.Asked
	freeze            *freeze.Freeze
	decisions         decisions
	binding           *Binding
	note              *backup.Note
	history           []*state.Release
	registries        []registries.Status
	carry             *carry.Status
	awaited           string // why nothing of the stream runs that is followed; empty where something does
}

func (s *State) known(tx *bbolt.Tx, now time.Time) (k known, err error) {
	var errs [16]error
	k.cluster, errs[0] = enroll.LoadCluster(tx)
	k.records, errs[1] = s.records.All(tx)
	k.running, errs[2] = state.Load[*state.Release](tx, state.Meta, keyRunning)
	k.accepted, errs[3] = state.Load[*state.Release](tx, state.Meta, keyAccepted)
	k.refused, errs[4] = state.Load[*refusal](tx, state.Meta, keyRefused)
	k.contact, errs[5] = state.Load[contact](tx, state.Meta, keyContact)
	k.floor, errs[6] = trust.LoadFloor(tx, s.trust.Chain().Current().Epoch)
	k.queue, errs[7] = outbox.ReadStatus(tx)
	k.asked, errs[8] = trust.LoadAsked(tx)
	k.freeze, errs[9] = freeze.At(tx, now)
	k.decisions, errs[10] = loadDecisions(tx, k.accepted, k.running)
	k.binding, errs[11] = state.Load[*Binding](tx, state.Meta, keyBinding)
	k.note, errs[12] = backup.LoadNote(tx)
	k.history, errs[13] = state.Load[[]*state.Release](tx, state.Meta, keyHistory)
	k.registries, errs[14] = registries.Load(tx)
	k.carry, errs[15] = carry.ReadStatus(tx)
	k.awaited = awaits(k.running, k.cluster)
	if k.decisions.wentBackTo(k.refused) && k.refused.Digest == k.running.Digest() {
		k.refused = nil // it runs as a person has decided
	}
	return k, errors.Join(errs[:]...)
}

func (s *State) status(tx *bbolt.Tx, now time.Time) (Status, error) {
	k, err := s.known(tx, now)
	if err != nil {
		return Status{Items: []bundle.Item{}}, err
	}
	c := k.cluster
	st := Status{
		Cluster:  ClusterStatus{cmp.Or(c.UID, s.who.Identity().UID), c.Name, c.Type, c.Environment, c.Ring, c.Labels},
		Platform: c.Platform, Binding: k.binding.orNone(), Items: k.items(), Queue: k.queue, Memory: k.note.Status(), Carry: k.carry,
	}
	if k.freeze != nil {
		st.Freeze = freezeStatus(k.freeze)
	}
	if behind := k.floor.Sub(now); behind > maxBehind {
		st.ClockBehindSeconds = int64(behind / time.Second)
	}
	if !k.contact.Last.IsZero() {
		st.LastContact = &k.contact.Last
	}
	now = latest(now, k.floor)
	st.Registries = k.registries
	st.Trust = k.asked.Of(s.trust.Chain()).Status(now)
	st.Release = k.releases(now)
	st.State, st.Reason, st.Message = k.summary()
	if st.Identity, err = enroll.ReadStatus(tx); err != nil {
		return st, err
	}
	if st.Artifacts, err = artifact.List(tx); err != nil {
		return st, err
	}
	held, err := relay.ReadStatus(tx)
	if err != nil {
		return st, err
	}
	if held != (relay.Status{}) {
		st.Relay = &held
	}
	if st.Streams, err = intake.ReadStatus(tx); err != nil {
		return st, err
	}
	if st.OlderMedium, err = state.Load[*bundle.OlderMedium](tx, state.Meta, keyOlderMedium); err != nil {
		return st, err
	}
	own, err := values.Load(tx)
	st.remark(k.floor, own.Broken)
	return st, err
}

// Floor returns the newest time of issue of a document that was verified in the epoch in force; zero if there is none. No clock is
// right that is earlier.
func (s *State) Floor() (floor time.Time, err error) {
	err = s.db.View(func(tx *bbolt.Tx) (err error) {
		floor, err = trust.LoadFloor(tx, s.trust.Chain().Current().Epoch)
		return err
	})
	return floor, err
}

// items are sorted by assignment, as the records are.
func (k known) items() []bundle.Item {
	items := make([]bundle.Item, 0, len(k.records))
	for _, r := range k.records {
		r.Item.Application = r.Spec.Application
		items = append(items, r.Item)
	}
	return items
}

func (k known) releases(now time.Time) ReleaseStates {
	rs := ReleaseStates{Running: releaseStatus(k.running, now), Desired: releaseStatus(k.accepted, now), Held: k.decisions.held.status(now), Quarantined: k.decisions.quarantine}
	if k.accepted == nil && k.awaited == "" {
		rs.Desired = rs.Running
	}
	if r := k.refused; r != nil {
		before := slices.ContainsFunc(k.history, func(h *state.Release) bool { return h.Digest() == r.Digest })
		rs.Refused = &RefusedStatus{r.Digest, r.Reason, r.Message, r.At, before}
		if k.accepted.Digest() != r.Digest {
			rs.Desired = &ReleaseStatus{Digest: r.Digest}
		}
	}
	return rs
}

// state is that of the agent as a whole.
func (k known) state() bundle.State {
	if k.running == nil && k.refused == nil {
		return bundle.Pending
	}
	states := k.decisions.states()
	for _, r := range k.records {
		states = append(states, r.Item.State)
	}
	if k.contact.Verdict == Deferred || k.awaited != "" {
		states = append(states, bundle.Pending)
	}
	if k.freeze != nil {
		states = append(states, k.freeze.State)
	}
	return bundle.AgentState(k.refused != nil, states)
}

// summary is the state, with the reason that is most urgent for people.
func (k known) summary() (state bundle.State, reason, message string) {
	if k.contact.Verdict != Refused { // which ends with refused, and not with the next pass alone
		reason, message = k.contact.Reason, k.contact.Message
	}
	switch {
	case k.refused != nil:
		reason, message = string(k.refused.Reason), k.refused.Message
	case k.contact.Verdict == Broken: // what cannot be fetched could not be applied either
	case k.decisions.given != nil:
		reason, message = ReasonQuarantined, k.decisions.given.Message
	case k.freeze != nil:
		reason, message = k.freeze.Reason, k.freeze.Describe()
	case k.awaited != "" && k.contact.Verdict != Deferred:
		message = k.awaited
		if reason != "" {
			message += " (" + reason + ": " + k.contact.Message + ")"
		}
		reason, message = ReasonRebinding, bundle.Clip(message)
	case k.decisions.held != nil:
		reason, message = ReasonHeldByOperator, k.decisions.held.message(k.running, k.contact)
	case reason == "":
		reason, message = k.decisions.probation.Reason, k.decisions.probation.Message
	}
	if k.running == nil && k.refused == nil {
		reason = cmp.Or(reason, ReasonNoRelease)
	}
	return k.state(), reason, message
}
