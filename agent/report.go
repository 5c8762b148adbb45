package agent

import (
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// report queues a compliance report if anything has changed since the last one, or if that one is old.
func (a *Agent) report(now time.Time) error {
	var due bool
	err := a.state.db.View(func(tx *bbolt.Tx) error {
		r, _, _, err := a.next(tx, now)
		due = r.Kind != ""
		return err
	})
	if err != nil || !due {
		return err
	}
	made := false
	err = a.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		r, last, shown, err := a.next(tx, now)
		if err != nil || r.Kind == "" {
			return false, err
		}
		id, keys, err := enroll.Signers(tx)
		if err != nil {
			return false, err
		}
		last.Seq, last.Shown, last.At = last.Seq+1, shown, state.Stamp(now)
		r.Agent.Incarnation, r.Agent.Seq, r.Agent.Instance = id.Incarnation, last.Seq, a.instance
		if r.Agent.Oldest, err = outbox.OldestTag(tx, id.Incarnation, last.Seq); err != nil {
			return false, err
		}
		body, err := json.Marshal(r)
		if err != nil {
			return false, err
		}
		envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, keys...)
		if err != nil {
			return false, err
		}
		if len(envelope) > bundle.MaxReportBytes { // a site of thousands of items; reports never stop a pass
			a.opts.Log.Error("report is too large to be sent", "items", len(r.Items), "bytes", len(envelope))
			return false, nil
		}
		made = true
		return true, outbox.Append(tx, outbox.Entry{Report: r, Body: body, Envelope: envelope, Last: last}, a.opts.Reports.Queue)
	})
	if made && err == nil {
		a.state.outbox.Wake()
	}
	return err
}

// next returns the due report, with the identity of its content and the memory of the last report. If the report has no
// kind, none is due.
func (a *Agent) next(tx *bbolt.Tx, now time.Time) (r bundle.Report, last outbox.Last, shown string, err error) {
	if last, err = outbox.LoadLast(tx); err != nil {
		return r, last, "", err
	}
	if r, err = a.compose(tx, now); err != nil {
		return r, last, "", err
	}
	shown = shownBy(r)
	switch {
	case last.Seq == 0:
		r.Kind = bundle.Snapshot
	case shown != last.Shown:
		r.Kind = bundle.Event
	case now.Sub(last.At).Abs() >= a.opts.Reports.Heartbeat:
		r.Kind = bundle.Heartbeat
	}
	return r, last, shown, nil
}

// compose returns a report of the cluster's present state.
func (a *Agent) compose(tx *bbolt.Tx, now time.Time) (bundle.Report, error) {
	s, err := a.state.status(tx, now)
	if err != nil {
		return bundle.Report{}, err
	}
	r := bundle.Report{
		Schema:     bundle.ReportSchema,
		Cluster:    a.cluster,
		Agent:      bundle.ReportAgent{Version: a.opts.Version},
		OccurredAt: state.Stamp(now),
		State:      s.State, Reason: s.Reason, Message: s.Message,
		Items: s.Items,
	}
	named := func(s *ReleaseStatus) *bundle.ReportRelease {
		if s == nil {
			return nil
		}
		r := &bundle.ReportRelease{Digest: s.Digest, Epoch: s.Epoch, Sequence: s.Sequence, Number: s.Number, BaseCommit: s.BaseCommit, EnvironmentCommit: s.EnvironmentCommit, Expired: s.Expired, AllowExpired: s.AllowExpired}
		if s.IssuedAt != nil {
			r.IssuedAt = *s.IssuedAt
		}
		return r
	}
	r.OlderMedium = s.OlderMedium
	r.Desired, r.Observed = named(s.Release.Desired), named(s.Release.Running)
	r.SiteValues, err = a.state.reportedValues(tx)
	return r, err
}

// shownBy identifies what r says of the cluster. Messages are left out: they may hold what differs each
// time, and a report for each would fill the queue.
func shownBy(r bundle.Report) string {
	r.Message, r.OccurredAt = "", time.Time{}
	items := make([]bundle.Item, len(r.Items))
	for i, item := range r.Items {
		item.Message, item.Since = "", time.Time{}
		items[i] = item
	}
	r.Items = items
	data, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Enroller has a hub register the agent.
func (a *Agent) Enroller() *enroll.Enroller {
	return &enroll.Enroller{
		Store: a.state.who, Outbox: a.state.outbox, Cluster: &a.cluster, HubURL: a.opts.Hub.URL, HubKey: a.opts.Hub.Key,
		Version: a.opts.Version, Client: a.opts.HTTPClient, Now: a.opts.Now, Log: a.opts.Log,
	}
}

// hub is where reports go.
func (a *Agent) hub() queue.Hub { return a.Enroller().Hub() }

// logOtherHub warns if the configuration pins the key of another hub than the one that has enrolled this agent.
func (a *Agent) logOtherHub() {
	if a.Enroller().OtherHub() {
		a.opts.Log.Warn("the configured hub key is not that of the hub that has enrolled this agent: the configuration counts")
	}
}

// hubSink takes reports to the hub.
func (a *Agent) hubSink() *outbox.HubSink {
	first := &enroll.First{Enroller: a.Enroller(), Token: a.opts.EnrollToken}
	return &outbox.HubSink{
		Outbox: a.state.outbox, Sender: a.sender(), Client: a.opts.HTTPClient, First: first.Do,
		Heard: func(hint *hubapi.IdentityHint) error { return a.state.who.Hear(hint, a.opts.Log) },
	}
}

// registrySink takes reports to Options.ReportStore.
func (a *Agent) registrySink() *outbox.RegistrySink {
	return &outbox.RegistrySink{
		Outbox: a.state.outbox, Sender: a.sender(), Store: a.opts.Reports.Store, Place: a.opts.Reports.Place, AckStored: a.opts.Reports.AckStored,
	}
}

func (a *Agent) sender() outbox.Sender {
	return outbox.Sender{
		UID: func() string { return a.cluster.UID }, Incarnation: func() int64 { return a.state.who.Identity().Incarnation },
		Hub: a.hub, Now: a.opts.Now, Log: a.opts.Log,
	}
}

// Acknowledge deletes the reports that the hub's acknowledgements name: its own, and those of other agents that it holds for
// them. It keeps the acknowledgements for other agents if it takes their reports, or holds any. Other acknowledgements for
// other clusters are passed over; but if one of the envelopes is not the hub's, or none of them is of use here, nothing is
// deleted. The error wraps bundle.ErrUntrusted, queue.ErrForeignAck or outbox.ErrNoHubKey.
func (a *Agent) Acknowledge(envelopes [][]byte) (outbox.Acknowledged, error) {
	return a.state.acknowledge(envelopes, a.hub().Key, a.cluster.UID, a.opts.Reports.AcceptOthers)
}

func (s *State) acknowledge(envelopes [][]byte, hubKey crypto.PublicKey, uid string, relays bool) (outbox.Acknowledged, error) {
	held, err := s.relay.Status()
	if err != nil {
		return outbox.Acknowledged{}, err
	}
	if !relays && held.Reports == 0 || hubKey == nil {
		return s.outbox.Acknowledge(envelopes, hubKey, uid)
	}
	var own [][]byte
	var others []relay.Ack
	for _, e := range envelopes {
		ack, err := queue.OpenAck(e, hubKey, "")
		if err != nil {
			return outbox.Acknowledged{}, err
		}
		if ack.Cluster == uid {
			own = append(own, e)
		} else {
			others = append(others, relay.Ack{Ack: ack, Envelope: e})
		}
	}
	passed, err := s.relay.Acknowledge(others)
	if err != nil {
		return outbox.Acknowledged{}, err
	}
	var done outbox.Acknowledged
	if len(own) > 0 {
		done, err = s.outbox.Acknowledge(own, hubKey, uid)
	} else {
		var st outbox.Status
		st, err = s.outbox.Status()
		done.Left = st.Length
	}
	done.DeletedOfOthers, done.Waiting = passed.Deleted, passed.Kept
	return done, err
}

// WriteReports writes a file of all reports that wait, its own first and then those of other agents by cluster; see
// airgap.WriteReports.
func (s *State) WriteReports(w io.Writer) error {
	own, err := s.outbox.Reports()
	if err != nil {
		return err
	}
	return s.relay.View(func(others []relay.Stored) error {
		var all []airgap.Document
		for _, envelope := range own {
			all = append(all, airgap.DocumentOf(envelope))
		}
		for _, o := range others {
			all = append(all, airgap.Document{Digest: o.Digest, Size: o.Size, Content: o.Envelope})
		}
		return airgap.WriteReportsFrom(w, all)
	})
}
