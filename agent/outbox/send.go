package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Sender is the identity for which a sink sends. Its functions are called before each request, since enrolling an agent
// changes their results.
type Sender struct {
	UID         func() string // of the cluster
	Incarnation func() int64  // of the agent
	Hub         func() queue.Hub
	Now         func() time.Time
	Log         *slog.Logger
}

// HubSink sends reports to a hub. It deletes only reports that the hub's key has acknowledged.
type HubSink struct {
	*Outbox
	Sender
	Client *http.Client
	// First is called before each round. With an error the round ends.
	First func(context.Context) error
	// Heard is called with what the hub says of the agent's identity; nil is that all is well. Nobody has signed it.
	Heard func(*hubapi.IdentityHint) error
	// Sleep waits, and returns an error where ctx ends first. Nil is retry.Sleep.
	Sleep func(context.Context, time.Duration) error

	sent   uint64 // up to here, where without a key nothing is ever acknowledged
	handed handed
}

// Run sends whenever there is something to send, until ctx ends. It waits for a hub that is not known yet.
func (s *HubSink) Run(ctx context.Context) {
	for s.Hub().URL == "" {
		select {
		case <-ctx.Done():
			return
		case <-s.hubKnown:
		}
	}
	hub := s.Hub()
	if hub.Key == nil {
		s.Log.Warn("no hub key is pinned: reports are sent and none is ever deleted", "hub", hub.URL)
	}
	c := &courier{box: s.Outbox, log: s.Log, to: hub.URL, wake: s.forHub, idle: func() time.Duration { return s.handed.idle(s.Now()) }, round: s.round, sleep: s.sleep}
	c.run(ctx)
}

func (s *HubSink) sleep(ctx context.Context, d time.Duration) error {
	if s.Sleep != nil {
		return s.Sleep(ctx, d)
	}
	return retry.Sleep(ctx, d)
}

// Send offers the hub every report once.
func (s *HubSink) Send(ctx context.Context) error {
	_, err := s.round(ctx)
	return err
}

// round offers the hub every report once, in batches, each after the pause that the hub has asked for with the
// one before. It returns the pause that the last one is to be followed by.
func (s *HubSink) round(ctx context.Context) (rest time.Duration, err error) {
	if err := s.First(ctx); err != nil {
		return 0, err
	}
	if s.Hub().Key != nil {
		s.sent = 0 // send again the reports from before the hub was known, for their acknowledgement
	}
	s.handed.lapse(s.Now())
	var kept error // later ones may still be taken
	offered := map[digest.Digest]bool{}
	for {
		batch, ahead, err := s.next(offered)
		if err != nil || len(batch) == 0 {
			return rest, errors.Join(err, kept)
		}
		if err := s.sleep(ctx, rest); err != nil {
			return rest, fmt.Errorf("the hub asks for a pause of %s: %w", duration.Text(rest), err)
		}
		s.db.At("send: before")
		var envelopes []json.RawMessage
		for _, q := range batch {
			envelopes = append(envelopes, q.envelope)
		}
		receipt, err := s.Hub().Send(ctx, s.Client, s.UID(), envelopes)
		if err != nil {
			return 0, s.failed(err)
		}
		if !receipt.Relayed { // a relay knows nothing of identities
			if err := s.Heard(receipt.Identity); err != nil {
				return 0, err
			}
		}
		s.db.At("send: answered")
		if again := s.act(receipt, batch); again != nil {
			kept = again
		}
		for _, q := range batch {
			offered[q.ID] = true
		}
		if s.Hub().Key == nil && !ahead && !receipt.Relayed {
			s.sent = batch[len(batch)-1].seq
		}
		rest = retry.Spread(receipt.Pace.Pause(len(batch), maxPause))
	}
}

// failed keeps what a hub says of the agent's identity where it takes no report.
func (s *HubSink) failed(err error) error {
	var refused *queue.HubError
	if errors.As(err, &refused) && (refused.Code == hubapi.CodeRetired || refused.Code == hubapi.CodeKeyReplaced) {
		return errors.Join(err, s.Heard(&hubapi.IdentityHint{Reason: refused.Code, Message: refused.Message}))
	}
	return err
}

// next returns the batch to send next: reports that were not offered in this round, and after these the dead letters that
// are due. If one request does not hold all, a round begins with the newest report.
func (s *HubSink) next(offered map[digest.Digest]bool) (batch []queued, ahead bool, err error) {
	now := s.Now()
	wanted := func(q queued) bool { return !offered[q.ID] && !s.handed.ids[q.ID] && q.due(now) }
	if len(offered) == 0 {
		batch, ahead, err = s.Outbox.nextBatch(s.sent, wanted)
	} else {
		batch, err = s.Outbox.batch(s.sent, wanted)
	}
	if err != nil || len(batch) > 0 {
		return batch, ahead, err
	}
	batch, err = s.Outbox.deadBatch(wanted)
	return batch, true, err
}

// act does what the hub answers to batch. Its error says that something of it has to be sent again.
func (s *HubSink) act(receipt hubapi.Receipt, batch []queued) error {
	v := verdicts{rejected: map[digest.Digest]string{}}
	var problem error
	for _, r := range receipt.Rejected {
		why := string(r.Reason)
		if r.Message != "" {
			why += ": " + r.Message
		}
		if !r.Permanent {
			problem = fmt.Errorf("hub did not take report %s: %s", r.ID, why)
			continue
		}
		v.rejected[r.ID] = reconcilers.Clip(why)
	}
	if s.Hub().Key != nil && len(receipt.Ack) > 0 {
		ack, err := queue.OpenAck(receipt.Ack, s.Hub().Key, s.UID())
		if err != nil {
			return errors.Join(problem, err)
		}
		v.acknowledged = ack.Reports
	}
	_, err := s.Outbox.settle(batch, v, s.Now())
	if receipt.Relayed {
		return errors.Join(problem, err, s.handOver(receipt, batch))
	}
	if n := v.of(batch); s.Hub().Key != nil && err == nil && problem == nil && n < len(batch) {
		problem = fmt.Errorf("hub acknowledged or rejected %d of %d reports", n, len(batch))
	}
	return errors.Join(problem, err)
}
