package agent

import (
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Enroller has a hub register the agent.
func (a *Agent) Enroller() *enroll.Enroller {
	return &enroll.Enroller{
		Store: a.state.who, Outbox: a.state.outbox, Cluster: &a.cluster, HubURL: a.opts.HubURL, HubKey: a.opts.HubKey,
		Version: a.opts.Version, Client: a.opts.HTTPClient, Now: a.opts.Now, Log: a.opts.Log,
	}
}

// hub is where reports go.
func (a *Agent) hub() outbox.Hub { return a.Enroller().Hub() }

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
		Heard: func(said *hubapi.IdentityHint) error { return a.state.who.Hear(said, a.opts.Log) },
	}
}

// registrySink takes reports to Options.ReportStore.
func (a *Agent) registrySink() *outbox.RegistrySink {
	return &outbox.RegistrySink{
		Outbox: a.state.outbox, Sender: a.sender(), Store: a.opts.ReportStore, Place: a.opts.ReportPlace, AckStored: a.opts.AckStored,
	}
}

func (a *Agent) sender() outbox.Sender {
	return outbox.Sender{
		UID: func() string { return a.cluster.UID }, Incarnation: func() int64 { return a.state.who.Identity().Incarnation },
		Hub: a.hub, Now: a.opts.Now, Log: a.opts.Log,
	}
}

// Acknowledge deletes the reports that the hub's acknowledgements name; see outbox.Outbox.Acknowledge.
func (a *Agent) Acknowledge(envelopes [][]byte) (outbox.Acknowledged, error) {
	return a.state.outbox.Acknowledge(envelopes, a.hub().Key, a.cluster.UID)
}
