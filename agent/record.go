package agent

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// refusal is the memory of a release that was refused, so that it is not judged again and again.
type refusal struct {
	Digest  digest.Digest `json:"digest"`
	Reason  bundle.Reason `json:"reason"`
	Message string        `json:"message"`
	At      time.Time     `json:"at"`
	// Trust identifies what it was judged by: the keys, and what and who this agent is.
	Trust string `json:"trust"`
	// Count is how often it has been judged, and NotBefore when a pass may do so again by itself.
	Count     int       `json:"count"`
	NotBefore time.Time `json:"notBefore"`
}

// final reports whether the reason lies in the signed release document, so that the same digest cannot be
// judged otherwise by the same trust. A signature may still be added, a damaged blob repaired, a clock put
// right, and the trust document of the release's epoch may still come.
func (r refusal) final() bool {
	switch r.Reason {
	case bundle.WrongPlatform, bundle.WrongEnvironment, bundle.WrongClusterType, bundle.WrongRing,
		bundle.OlderRelease, bundle.UnsupportedSchema:
		return true
	}
	return false
}

// journal is the step that was begun.
type journal struct {
	Step   string        `json:"step"`
	Digest digest.Digest `json:"digest,omitempty"` // of the release it works for
	At     time.Time     `json:"at"`
}

// contact is what is known of the place where bundles come from.
type contact struct {
	// Last is when it answered last; at most an hour older than the truth, to spare the disk.
	Last time.Time `json:"last,omitzero"`
	// Verdict, Reason and Message tell how the last pass that asked it ended.
	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}

// record is all that is known of one assignment.
type record struct {
	// Item is how it stands, as reported.
	Item bundle.Item `json:"item"`
	// Fault says who can mend it, if Item has failed. Versions that did not keep it leave it empty.
	Fault reconcilers.Fault `json:"fault,omitempty"`
	// Spec is the assignment as a verified release listed it last.
	Spec bundle.Assignment `json:"spec"`
	// Applied is Spec.Desired of the Apply that was begun last, and Adapter whose. Empty before the first.
	Applied digest.Digest `json:"applied,omitempty"`
	Adapter string        `json:"adapter,omitempty"`
	// AppliedAt is when what is in progress was begun: Apply of that content, also again where it had drifted,
	// had failed or was waiting, or the removal. Zero before that.
	AppliedAt time.Time `json:"appliedAt,omitzero"`
	// Late is true where it has failed only because the engine was progressing for too long. Another
	// attempt is no new beginning then.
	Late bool `json:"late,omitempty"`
	// Reached is what was compliant last.
	Reached reached `json:"reached,omitzero"`
	// HealthyAt is since when the engine has called it compliant without a break.
	HealthyAt time.Time `json:"healthyAt,omitzero"`
	// Before is how Item stood before the step that was begun.
	Before *standing `json:"before,omitempty"`
	// Removing is true once a newer verified release no longer lists it.
	Removing bool `json:"removing,omitempty"`
}

// reached is what was compliant, and what it depends on. Desired is empty once something else was begun.
type reached struct {
	Desired   digest.Digest `json:"desired,omitempty"`
	DependsOn []string      `json:"dependsOn,omitempty"`
}

type standing struct {
	State bundle.State `json:"state"`
	Since time.Time    `json:"since"`
}

// Values of an assignment's annotations.
const (
	driftReport  = "report"
	removeOrphan = "orphan"
)

// rules are the times by which results are judged.
type rules struct {
	Settle   time.Duration // how long an engine must call it compliant
	Deadline time.Duration // how long it may be progressing
}

// listed returns the record of an assignment that a verified release lists. What is desired, or an
// adapter, that differs from what was applied makes it pending.
func (r record) listed(a bundle.Assignment, adapter string, now time.Time) record {
	if r.Removing { // something of it may be gone already
		r.Applied, r.Reached.Desired = "", ""
	}
	r.Spec, r.Removing = a, false
	if r.Reached.Desired == a.Desired() {
		r.Reached.DependsOn = a.DependsOn
	}
	state, since := r.Item.State, r.Item.Since
	old := r.Item
	r.Item = bundle.Item{
		Assignment: a.Name, Workspace: a.Workspace, Workload: a.Workload, Target: a.Target, Adapter: adapter,
		Version: a.Version, ConfigDigest: a.ConfigDigest, Content: a.Content, Failures: old.Failures,
	}
	if a.Desired() == r.Applied && adapter == r.Adapter {
		r.Item.State, r.Item.Since = state, since
		r.Item.Reason, r.Item.Message, r.Item.Revision, r.Item.Floating = old.Reason, old.Message, old.Revision, old.Floating
		return r
	}
	return r.to(bundle.Pending, "", "", now)
}

// dropped returns the record of an assignment that the newer release no longer lists.
func (r record) dropped(now time.Time) record {
	if r.Removing {
		return r
	}
	r.Removing, r.AppliedAt = true, time.Time{}
	return r.to(bundle.Pending, ReasonRemoving, "", now)
}

// begun returns the record as it is written before an engine is called to change something.
func (r record) begun(adapter string, now time.Time) record {
	if r.Before == nil { // else a crash has kept it from an answer
		r.Before = &standing{r.Item.State, r.Item.Since}
	}
	reason := ""
	switch {
	case r.Removing:
		reason = ReasonRemoving
		if r.AppliedAt.IsZero() {
			r.AppliedAt = now
		}
	case r.Adapter != "" && r.Adapter != adapter: // still with the engine before; see pass.change
		r.Applied, r.Reached.Desired = "", ""
	case r.Applied != r.Spec.Desired():
		r.Reached.Desired, r.Item.Adapter = "", adapter
		r.Applied, r.Adapter, r.AppliedAt, r.HealthyAt = r.Spec.Desired(), adapter, now, time.Time{}
	}
	return r.to(bundle.Applying, reason, "", now)
}

// after returns the record once an engine has answered. All judging of answers is here.
func (r record) after(res reconcilers.Result, rules rules, now time.Time) record {
	state, reason := res.State, res.Reason
	if state == bundle.Compliant {
		if r.HealthyAt.IsZero() || now.Before(r.HealthyAt) { // a clock may be set back
			r.HealthyAt = now
		}
		if now.Sub(r.HealthyAt) < rules.Settle {
			state, reason = bundle.Progressing, ReasonSettling
		}
	} else {
		if state == bundle.Progressing && (!r.HealthyAt.IsZero() || r.stood() || now.Before(r.AppliedAt)) {
			r.AppliedAt = now // something else is in progress, or the clock was set back
		}
		r.HealthyAt = time.Time{}
		r.Late = state == bundle.Progressing && rules.Deadline > 0 && now.Sub(r.AppliedAt) > rules.Deadline
		if r.Late {
			state, reason = bundle.Failed, ReasonDeadlineExceeded
		}
	}
	if state == bundle.Compliant {
		r.Reached = reached{r.Applied, r.Spec.DependsOn}
	}
	if r.Before != nil { // a step that leads back to where it began has not changed anything
		r.Item.State, r.Item.Since, r.Before = r.Before.State, r.Before.Since, nil
	}
	r.Item.Revision, r.Item.Floating = res.Revision, res.Floating
	r = r.to(state, reason, reconcilers.Clip(res.Message), now)
	if state == bundle.Failed {
		r.Fault = cmp.Or(res.Fault, reconcilers.FaultRelease) // which is also that of a deadline
	}
	return r
}

// stood reports whether nothing was in progress before the answer that is being judged: what had drifted or
// failed, or was waiting for something, has its whole deadline before it when it begins.
func (r record) stood() bool {
	state := r.Item.State
	if r.Before != nil {
		state = r.Before.State
	}
	return state == bundle.Drifted || state == bundle.Pending || state == bundle.Failed && !r.Late
}

// to changes the state, and the time since which it holds if it is another one.
func (r record) to(next bundle.State, reason, message string, now time.Time) record {
	if r.Item.State != next {
		r.Item.State, r.Item.Since = next, state.Stamp(now)
		if next == bundle.Failed {
			r.Item.Failures++
		}
	}
	r.Item.Reason, r.Item.Message, r.Fault = reason, message, ""
	return r
}

// unsettled reports whether time alone may change how the assignment stands.
func (r record) unsettled() bool {
	switch r.Item.State {
	case bundle.Applying, bundle.Pulling, bundle.Progressing, bundle.Pending:
		return true
	}
	return false
}

// waiting reports whether an engine has to be called again to get on.
func (r record) waiting() bool {
	return r.Item.State == bundle.Pending || r.Item.State == bundle.Applying
}

// same reports whether r and o differ in nothing that an engine's answer changes.
func (r record) same(o record) bool {
	return r.Item == o.Item && r.Fault == o.Fault && r.HealthyAt.Equal(o.HealthyAt) && r.Applied == o.Applied && r.AppliedAt.Equal(o.AppliedAt) &&
		r.Adapter == o.Adapter && r.Before == o.Before && r.Reached.Desired == o.Reached.Desired
}

// stale reports whether what the engine was given last differs from what it should have.
func (r record) stale(adapter string) bool {
	return r.Applied != r.Spec.Desired() || r.Adapter != adapter
}

// needs are the assignments on which what the cluster has of r depends.
func (r record) needs() []string {
	if r.Applied == "" || r.Applied != r.Spec.Desired() {
		return r.Reached.DependsOn
	}
	return slices.Concat(r.Spec.DependsOn, r.Reached.DependsOn)
}

// corrected reports whether drift is to be put right.
func (r record) corrected() bool { return r.Spec.Drift != driftReport }

// onlySeen reports whether engines are to leave r as it is: it was as it should be, and what has become of
// it since is only to be reported.
func (r record) onlySeen() bool {
	return !r.Removing && !r.corrected() && r.Applied != "" && r.Applied == r.Reached.Desired
}

// memo holds the records that were read last, by assignment, with what they were decoded from.
type memo struct {
	sync.Mutex
	records map[string]*decoded
	// all are those of the transaction with that number, which is another one after each commit.
	all []record
	id  int
}

type decoded struct {
	from []byte
	record
}

// records returns the assignments by name. Only what has changed since they were read last is decoded. The slice
// belongs to all who ask: it is to be read only.
func (s *State) records(tx *bbolt.Tx) ([]record, error) {
	b := tx.Bucket([]byte(bucketItems))
	if b == nil {
		return nil, nil
	}
	s.memo.Lock()
	defer s.memo.Unlock()
	committed := !tx.Writable()
	if committed && s.memo.records != nil && s.memo.id == tx.ID() {
		return s.memo.all, nil
	}
	rs, read := make([]record, 0, len(s.memo.records)), make(map[string]*decoded, len(s.memo.records))
	err := b.ForEach(func(k, v []byte) error {
		d := s.memo.records[string(k)]
		if d == nil || !bytes.Equal(d.from, v) {
			r, err := state.Load[record](tx, bucketItems, string(k))
			if err != nil {
				return err
			}
			d = &decoded{bytes.Clone(v), r}
		}
		read[string(k)] = d
		rs = append(rs, d.record)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.memo.records = read
	if rs = slices.Clip(rs); committed {
		s.memo.all, s.memo.id = rs, tx.ID()
	}
	return rs, nil
}

// recordsByName returns the assignments under their names. The map is the caller's.
func (s *State) recordsByName(tx *bbolt.Tx) (map[string]record, error) {
	rs, err := s.records(tx)
	byName := make(map[string]record, len(rs))
	for _, r := range rs {
		byName[r.Spec.Name] = r
	}
	return byName, err
}

func saveRecord(tx *bbolt.Tx, r record) error { return state.Save(tx, bucketItems, r.Spec.Name, r) }
