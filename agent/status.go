package agent

import (
	"cmp"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// Status is how an agent stands. Its JSON is an interface that is only ever extended; docs/reference/agent.md
// describes it.
type Status struct {
	Cluster  ClusterStatus `json:"cluster"`
	Platform string        `json:"platform"`
	// State is the agent's as a whole; see bundle.AgentState. Reason and Message tell why nothing newer
	// runs, where that is so.
	State   bundle.State `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	// Binding is nil where the agent follows what its configuration says.
	Binding *Binding `json:"binding,omitempty"`
	// Bar is why the cluster must not be changed at this time; nil where it may, or where nothing waits for it.
	Freeze  *FreezeStatus `json:"bar,omitempty"`
	Release ReleaseStates `json:"release"`
	// Items is sorted by assignment.
	Items []bundle.Item `json:"items"`
	Queue outbox.Status `json:"queue"`
	// Artifacts are what engines fetch of assignments with embedded delivery, sorted by assignment.
	Artifacts []artifact.Status `json:"artifacts,omitempty"`
	// Trust is the trust document by which releases are judged. Nil where keys are pinned.
	Trust *trust.Status `json:"trust,omitempty"`
	// Memory is what the cluster keeps for this agent. Nil where it has no cluster.
	Memory *backup.Status `json:"memory,omitempty"`
	// Carry is how the artifacts stand that are brought to the content store. Nil if no assignment has any carried.
	Carry *carry.Status `json:"carry,omitempty"`
	// Streams are those that site packages have brought to the content store, sorted by environment and cluster type.
	Streams []intake.StreamStatus `json:"streams,omitempty"`
	// OlderMedium is the last release on a medium that was older than the accepted one; nil if none came since.
	OlderMedium *bundle.OlderMedium `json:"olderMedium,omitempty"`
	// ClockBehindSeconds is how far this machine's clock is behind the newest time of issue that was
	// verified, where that is more than a minute.
	ClockBehindSeconds int64 `json:"clockBehindSeconds,omitempty"`
	// LastContact is when the place where bundles come from said last what the moving tag names, or that there
	// is no such tag. NextTry is when a running agent asks again.
	LastContact *time.Time `json:"lastContact,omitempty"`
	NextTry     *time.Time `json:"nextTry,omitempty"`
	// Registries are those that are asked, in order, where there are several.
	Registries []registries.Status `json:"registries,omitempty"`
	// Step is what the agent is doing, empty between passes.
	Step string `json:"step,omitempty"`
	// Endpoint is where a running agent serves its content store. Nil where it serves nothing.
	Endpoint *serve.Status `json:"endpoint,omitempty"`
	// Relay is what the agent holds of the reports of other agents, and the acknowledgements for them. Nil if it holds none,
	// and takes none.
	Relay *relay.Status `json:"relay,omitempty"`
	// ReportKey is the public half of the key that signs reports, in PEM.
	ReportKey string        `json:"reportKey"`
	Identity  enroll.Status `json:"identity"`
	Version   string        `json:"version,omitempty"`
}

// ClusterStatus is the identity of the agent's cluster.
type ClusterStatus struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Type        string            `json:"type"`
	Environment string            `json:"environment"`
	Ring        string            `json:"ring,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// FreezeStatus is the reason why a cluster must not be changed.
type FreezeStatus struct {
	// State is Suspended if a person has paused the agent, else Pending.
	State   bundle.State `json:"state"`
	Reason  string       `json:"reason"`
	Message string       `json:"message,omitempty"`
	Since   time.Time    `json:"since"`
	// Until is when it ends by itself; nil where nobody knows.
	Until *time.Time `json:"until,omitempty"`
	// Holding is true where something is to be changed, and waits for it.
	Holding bool `json:"holding,omitempty"`
}

// ReleaseStates names the releases that matter. A nil one does not exist.
type ReleaseStates struct {
	// Running is the one whose content the items have, or are being given.
	Running *ReleaseStatus `json:"running,omitempty"`
	// Refused is the newest that was offered, where it was refused.
	Refused *RefusedStatus `json:"refused,omitempty"`
	// Desired is the newest that was offered, refused or not.
	Desired *ReleaseStatus `json:"desired,omitempty"`
	// Held is a person's rollback, if there is one.
	Held *HeldStatus `json:"held,omitempty"`
	// Quarantined are the releases that were given up here, the newest first.
	Quarantined []probation.Quarantined `json:"quarantined,omitempty"`
}

// ReleaseStatus names a release. For a refused one only the digest is known.
type ReleaseStatus struct {
	Digest    digest.Digest `json:"digest"` // of the manifest
	Epoch     int64         `json:"epoch"`
	Sequence  int64         `json:"sequence"`
	Number    int64         `json:"number,omitempty"` // see bundle.ReleaseName
	IssuedAt  *time.Time    `json:"issuedAt,omitempty"`
	ExpiresAt *time.Time    `json:"expiresAt,omitempty"`
	Expired   bool          `json:"expired,omitempty"`
	// AllowExpired is why a person has let it be accepted although it had expired; empty if it had not.
	AllowExpired string `json:"allowExpired,omitempty"`
	// AgeSeconds is the time since it was issued.
	AgeSeconds        int64         `json:"ageSeconds,omitempty"`
	BaseCommit        string        `json:"baseCommit,omitempty"`
	EnvironmentCommit string        `json:"environmentCommit,omitempty"`
	Content           digest.Digest `json:"content,omitempty"` // of the tree
	// Rings are those that the release is for; none is all.
	Rings []string `json:"rings,omitempty"`
}

// RefusedStatus names a refused release and says why.
type RefusedStatus struct {
	Digest  digest.Digest `json:"digest"`
	Reason  bundle.Reason `json:"reason"`
	Message string        `json:"message"`
	At      time.Time     `json:"at"`
	// AcceptedBefore is true where it is one of the releases that were accepted here before, to which RollBack leads.
	AcceptedBefore bool `json:"acceptedBefore,omitempty"`
}

// Name is the release's short name, such as "12 (68846e7d)".
func (r ReleaseStatus) Name() string { return bundle.ReleaseName(r.Number, r.Digest) }

// Tag is the release's own tag, such as s0-1795262400.
func (r ReleaseStatus) Tag() string {
	return bundle.Release{Epoch: r.Epoch, Sequence: r.Sequence}.Tag()
}

// Status returns how the agent stands at this moment, also while a pass runs.
func (a *Agent) Status() (Status, error) {
	s, err := a.state.Status(a.opts.Now())
	s.Version = a.opts.Version
	if s.Cluster.Type == "" { // no pass has written it down yet
		c := a.configured
		s.Cluster, s.Platform = ClusterStatus{c.UID, c.Name, c.Type, c.Environment, c.Ring, c.Labels}, c.Platform
	}
	if t := a.lastContact.Load(); t != nil {
		utc := state.Stamp(*t)
		s.LastContact = &utc
	}
	if t := a.nextTry.Load(); t != nil {
		utc := state.Stamp(*t)
		s.NextTry = &utc
	}
	if c := a.carrier.Status(); c != nil {
		s.Carry = c
	}
	s.Queue.Unsent = a.state.outbox.Unsent()
	if step := a.pulse.Step(); step != "" {
		s.Step = step
		s.State = a.during(s, step)
	}
	if why := a.unrecorded.Load(); why != nil {
		s.Reason, s.Message = outcome{Verdict: Broken}.reason(), *why
	}
	s.Endpoint = a.endpointStatus()
	if a.opts.Reports.AcceptOthers && s.Relay == nil {
		s.Relay = &relay.Status{}
	}
	if s.Trust != nil {
		s.Trust.PassedOver = trust.KeyIDs(a.pinned.Keys)
	}
	return s, err
}

// during folds the step that runs into the state, as the state of one item more.
func (a *Agent) during(s Status, step string) bundle.State {
	doing := map[string]bundle.State{"verify": bundle.Verifying, "fetch": bundle.Pulling, "stage": bundle.Pulling}[step]
	if doing == "" {
		return s.State
	}
	states := []bundle.State{doing}
	for _, item := range s.Items {
		states = append(states, item.State)
	}
	return bundle.AgentState(s.Release.Refused != nil, states)
}

// Status returns how the agent stood when it last wrote. It works on a State opened for reading.
func (s *State) Status(now time.Time) (st Status, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		st, err = s.status(tx, now)
		return err
	})
	if err == nil {
		st.ReportKey, err = s.who.ReportKey()
	}
	return st, err
}

// maxBehind is how far the clocks of agent and publisher may be apart before people are to know.
const maxBehind = time.Minute

// remark tells of what needs a person and stops nothing, where there is nothing more urgent to tell. Broken is why the
// site's own values cannot be read.
func (s *Status) remark(floor time.Time, broken string) {
	if s.Reason == "" { // what the hub says of the identity comes first
		s.Reason, s.Message = s.Identity.Reason, cmp.Or(s.Message, s.Identity.Message)
	}
	switch {
	case s.Reason != "":
	case s.Trust != nil && s.Trust.Reason != "":
		s.Reason, s.Message = s.Trust.Reason, s.Trust.Message
	case broken != "":
		s.Reason, s.Message = assignments.ReasonSiteValuesInvalid, broken
	case s.Memory != nil && s.Memory.Reason != "":
		s.Reason, s.Message = s.Memory.Reason, s.Memory.Message
	case s.ClockBehindSeconds > 0:
		s.Reason, s.Message = ReasonClockBehind, "this machine's clock is earlier than "+floor.Format(time.RFC3339)+", when a document that was verified was issued"
	}
}

func freezeStatus(b *freeze.Freeze) *FreezeStatus {
	s := &FreezeStatus{State: b.State, Reason: b.Reason, Message: b.Message, Since: b.Since, Holding: b.Holding}
	if !b.Until.IsZero() {
		s.Until = &b.Until
	}
	return s
}

func releaseStatus(r *state.Release, now time.Time) *ReleaseStatus {
	if r == nil {
		return nil
	}
	d := r.Release
	return &ReleaseStatus{
		Digest: r.Digest(), Epoch: d.Epoch, Sequence: d.Sequence, Number: d.Number, IssuedAt: &d.IssuedAt, ExpiresAt: &d.ExpiresAt,
		Expired: !now.Before(d.ExpiresAt), AgeSeconds: max(0, int64(now.Sub(d.IssuedAt)/time.Second)), BaseCommit: d.BaseCommit,
		EnvironmentCommit: d.EnvironmentCommit, Content: d.Content.DiffID,
		Rings: d.Rings, AllowExpired: r.AllowExpired,
	}
}
