// Package assignments holds an agent's record of each assignment, and decides which assignments may begin.
//
// A Record is the state of one assignment: its desired content, the content that an engine was given, and the result. Its
// methods are the transitions, such as Listed once a release lists it, Begun before an engine is called, and After once the
// engine has answered; they return the next record and change nothing. A Rollout has all records, and decides which may
// begin and which have to wait.
//
// The decisions are functions of values: they read no clock and no file. Reader, Save and Write keep records in the
// state file, and LedgerOf returns the ledger that engines keep there.
package assignments

import (
	"cmp"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Record is all that is known of one assignment. Its JSON is a record of the state file.
type Record struct {
	// Item is how it stands, as reported.
	Item bundle.Item `json:"item"`
	// Fault tells who can fix it, if Item has failed. It is empty in records of versions that did not save it.
	Fault reconcilers.Fault `json:"fault,omitempty"`
	// Spec is the assignment as a verified release listed it last.
	Spec bundle.Assignment `json:"spec"`
	// Values identifies the site values that it is to have, with their types; empty if it uses none. NoValues stands for
	// values of which one is missing.
	Values digest.Digest `json:"values,omitempty"`
	// Declared identifies what the release says about site values: the declaration, and the cluster's row. It is empty if
	// the assignment uses none.
	Declared digest.Digest `json:"declared,omitempty"`
	// Applied is Desired at the Apply that was begun last, and Adapter whose. Empty before the first.
	Applied digest.Digest `json:"applied,omitempty"`
	Adapter string        `json:"adapter,omitempty"`
	// AppliedAt is the beginning of the work in progress: an Apply of that content, also a repeated one after drift,
	// a failure or a wait, or the removal. Zero before that.
	AppliedAt time.Time `json:"appliedAt,omitzero"`
	// Late is true if it has failed only because the engine was progressing for too long. Another
	// attempt does not count as a new beginning then.
	Late bool `json:"late,omitempty"`
	// Reached is the last compliant content.
	Reached Reached `json:"reached,omitzero"`
	// HealthyAt is the time since which the engine has reported Compliant without a break.
	HealthyAt time.Time `json:"healthyAt,omitzero"`
	// Before is the state of Item before the step that was begun.
	Before *Standing `json:"before,omitempty"`
	// Ends are the agent's own ends while an engine was called for it.
	Ends Ends `json:"ends,omitzero"`
	// Removing is true once a newer verified release no longer lists it.
	Removing bool `json:"removing,omitempty"`
}

// Reached is the content that was compliant, and its dependencies. Desired is empty once other content was begun.
type Reached struct {
	Desired   digest.Digest `json:"desired,omitempty"`
	DependsOn []string      `json:"dependsOn,omitempty"`
	// Release is Record.release of that content, for an assignment that uses site values. It stays while nothing but the
	// site's own values change.
	Release digest.Digest `json:"release,omitempty"`
}

// NoValues is the value of Record.Values if a site value is missing or not valid.
const NoValues = digest.Digest("sha256:" + "0000000000000000000000000000000000000000000000000000000000000000")

// Standing is a state, and the time since which it holds.
type Standing struct {
	State bundle.State `json:"state"`
	Since time.Time    `json:"since"`
}

// Values of an assignment's annotations.
const (
	driftReport   = "report"
	removeOrphan  = "orphan"
	onFailureHold = "hold"
)

// Rules are the times by which results are judged.
type Rules struct {
	Settle   time.Duration // how long an engine must call it compliant
	Deadline time.Duration // how long it may be progressing
}

// Desired identifies all that the assignment is to have: the content that the release lists, and the site's values.
func (r Record) Desired() digest.Digest { return r.Spec.DesiredWith(r.Values) }

// release identifies all that the release gives to the assignment, and nothing that the site itself does.
func (r Record) release() digest.Digest { return r.Spec.DesiredWith(r.Declared) }

// Valued returns the record of an assignment that is to have other site values. A change of values is handled like one of
// content.
func (r Record) Valued(values, declared digest.Digest, now time.Time) Record {
	before := r.Desired()
	r.Values, r.Declared = values, declared
	if r.Reached.Release != "" && r.Reached.Desired == r.Desired() {
		r.Reached.Release = r.release()
	}
	if r.Item.SiteValues = values; values == NoValues {
		r.Item.SiteValues = ""
	}
	if r.Desired() == before || r.Desired() == r.Applied {
		return r
	}
	return r.to(bundle.Pending, "", "", now)
}

// Listed returns the record of an assignment that a verified release lists. It is pending if its desired content or its
// adapter differs from the applied one.
func (r Record) Listed(a bundle.Assignment, adapter string, now time.Time) Record {
	if r.Removing { // some of its objects may be gone already
		r.Applied, r.Reached.Desired, r.Reached.Release = "", "", ""
	}
	r.Spec, r.Removing = a, false
	if len(a.SiteValues) == 0 {
		r.Values, r.Declared = "", ""
	}
	if r.Reached.Desired == r.Desired() {
		r.Reached.DependsOn = a.DependsOn
	}
	state, since := r.Item.State, r.Item.Since
	old := r.Item
	r.Item = bundle.Item{
		Assignment: a.Name, Workspace: a.Workspace, Workload: a.Workload, Target: a.Target, Adapter: adapter,
		Version: a.Version, ConfigDigest: a.ConfigDigest, Content: a.Content, Failures: old.Failures,
	}
	if r.Values != NoValues {
		r.Item.SiteValues = r.Values
	}
	if r.Desired() == r.Applied && adapter == r.Adapter {
		r.Item.State, r.Item.Since = state, since
		r.Item.Reason, r.Item.Message, r.Item.Revision, r.Item.Floating = old.Reason, old.Message, old.Revision, old.Floating
		return r
	}
	return r.to(bundle.Pending, "", "", now)
}

// Dropped returns the record of an assignment that the newer release no longer lists.
func (r Record) Dropped(now time.Time) Record {
	if r.Removing {
		return r
	}
	r.Removing, r.AppliedAt = true, time.Time{}
	return r.to(bundle.Pending, ReasonRemoving, "", now)
}

// Begun returns the record as it is written before an engine is called to change something.
func (r Record) Begun(adapter string, now time.Time) Record {
	if r.Before == nil { // else a crash has kept it from an answer
		r.Before = &Standing{r.Item.State, r.Item.Since}
	}
	reason := ""
	switch {
	case r.Removing:
		reason = ReasonRemoving
		if r.AppliedAt.IsZero() {
			r.AppliedAt = now
		}
	case r.Adapter != "" && r.Adapter != adapter: // still with the engine before, which takes its own away first
		r.Applied, r.Reached.Desired, r.Reached.Release = "", "", ""
	case r.Applied != r.Desired():
		r.Reached.Desired, r.Item.Adapter = "", adapter
		if r.Reached.Release != r.release() {
			r.Reached.Release = ""
		}
		r.Applied, r.Adapter, r.AppliedAt, r.HealthyAt = r.Desired(), adapter, now, time.Time{}
	}
	return r.to(bundle.Applying, reason, "", now)
}

// After returns the record once an engine has answered. All judging of answers is here.
func (r Record) After(res reconcilers.Result, rules Rules, now time.Time) Record {
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
		r.Reached = Reached{Desired: r.Applied, DependsOn: r.Spec.DependsOn}
		if r.Values != "" {
			r.Reached.Release = r.release()
		}
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
func (r Record) stood() bool {
	state := r.Item.State
	if r.Before != nil {
		state = r.Before.State
	}
	return state == bundle.Drifted || state == bundle.Pending || state == bundle.Failed && !r.Late
}

// Pending returns the record of an assignment that is to be begun, or has to wait for what message says.
func (r Record) Pending(reason, message string, now time.Time) Record {
	return r.to(bundle.Pending, reason, message, now)
}

// Held returns the record of an assignment that has to wait.
func (r Record) Held(w Wait, now time.Time) Record {
	return r.to(w.State, w.Reason, reconcilers.Clip(w.Message), now)
}

// to changes the state, and the time since which it holds if it is another one.
func (r Record) to(next bundle.State, reason, message string, now time.Time) Record {
	if r.Item.State != next {
		r.Item.State, r.Item.Since = next, state.Stamp(now)
		if next == bundle.Failed {
			r.Item.Failures++
		}
	}
	r.Item.Reason, r.Item.Message, r.Fault = reason, message, ""
	return r
}

// Unsettled reports whether time alone may change how the assignment stands.
func (r Record) Unsettled() bool {
	switch r.Item.State {
	case bundle.Applying, bundle.Pulling, bundle.Progressing, bundle.Pending:
		return true
	}
	return false
}

// Waiting reports whether an engine has to be called again to get on.
func (r Record) Waiting() bool {
	return r.Item.State == bundle.Pending || r.Item.State == bundle.Applying
}

// Same reports whether r and o differ in nothing that an engine's answer changes.
func (r Record) Same(o Record) bool {
	return r.Item == o.Item && r.Fault == o.Fault && r.HealthyAt.Equal(o.HealthyAt) && r.Applied == o.Applied && r.AppliedAt.Equal(o.AppliedAt) &&
		r.Adapter == o.Adapter && r.Before == o.Before && r.Values == o.Values && r.Declared == o.Declared && r.Reached.Desired == o.Reached.Desired && r.Ends == o.Ends
}

// WaitsForValues reports whether the assignment waited for values of the site when its record was written.
func (r Record) WaitsForValues() bool {
	return r.Item.State == bundle.Pending && slices.Contains([]string{ReasonSiteValueMissing, ReasonSiteValuesInvalid, ReasonSiteFolderNotMade}, r.Item.Reason)
}

// Stale reports whether the engine's last content differs from the desired one.
func (r Record) Stale(adapter string) bool {
	return r.Applied != r.Desired() || r.Adapter != adapter
}

// needs returns the assignments on which r's content on the cluster depends.
func (r Record) needs() []string {
	if r.Applied == "" || r.Applied != r.Desired() {
		return r.Reached.DependsOn
	}
	return slices.Concat(r.Spec.DependsOn, r.Reached.DependsOn)
}

// Orphaned reports whether the applied objects stay when the assignment is removed.
func (r Record) Orphaned() bool { return r.Spec.OnRemove == removeOrphan }

// HoldsRelease reports whether a release stays although the assignment fails in it.
func (r Record) HoldsRelease() bool { return r.Spec.OnFailure == onFailureHold }

// Corrected reports whether drift is corrected.
func (r Record) Corrected() bool { return r.Spec.Drift != driftReport }

// OnlySeen reports whether engines only observe r: it was compliant, and drift since then is
// only reported.
func (r Record) OnlySeen() bool {
	return !r.Removing && !r.Corrected() && r.Applied != "" && r.Applied == r.Reached.Desired
}

// Blames reports whether an assignment fails by what the release has changed, as far as the assignment alone
// shows: if it was compliant with this content before, something else has changed since, such as the site's own values.
func (r Record) Blames() bool {
	reached := r.Reached.Desired == r.Desired() || r.Values != "" && r.Reached.Release == r.release()
	return !r.Removing && r.Item.State == bundle.Failed && !reached && r.fault() == reconcilers.FaultRelease
}

// Proved reports whether an assignment was compliant with its desired content.
func (r Record) Proved() bool { return r.Reached.Desired == r.Desired() }

// Proven reports whether an assignment is no reason to doubt its release. One that lacks a site value is none: only the
// site can help.
func (r Record) Proven(adapter string) bool {
	return r.Removing || r.Values == NoValues || !r.Stale(adapter) && (r.Reached.Desired == r.Applied || r.Item.State == bundle.Suspended)
}
