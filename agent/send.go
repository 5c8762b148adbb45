package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/reconcilers"
)

// sender takes reports to the hub. It deletes none but those that the hub's own key acknowledges.
type sender struct {
	*Agent
	sleep func(context.Context, time.Duration) error
	sent  uint64 // up to here, where without a key nothing is ever acknowledged

	refused  string    // why the hub has not enrolled the agent, as logged
	askAgain time.Time // when to ask it again
}

func newSender(a *Agent) *sender { return &sender{Agent: a, sleep: retry.Sleep} }

// run sends whenever there is something to send, until ctx ends.
func (s *sender) run(ctx context.Context) {
	if !s.placed(ctx) {
		return
	}
	hub := s.hub()
	if hub.key == nil {
		s.opts.Log.Warn("no hub key is pinned: reports are sent and none is ever deleted", "hub", hub.url)
	}
	c := &courier{Agent: s.Agent, to: hub.url, wake: s.queued, idle: func() time.Duration { return lastRetry }, round: s.sendRound, sleep: s.sleep}
	c.run(ctx)
}

// sendRound offers the hub every report once, in batches, each after the pause that the hub has asked for with the
// one before. It returns the pause that the last one is to be followed by.
func (s *sender) sendRound(ctx context.Context) (rest time.Duration, err error) {
	if err := s.enrollFirst(ctx); err != nil {
		return 0, err
	}
	if s.hub().key != nil {
		s.sent = 0 // what was sent before the hub was known is acknowledged now
	}
	var kept error // later ones may still be taken
	offered := map[digest.Digest]bool{}
	for {
		batch, ahead, err := s.next(offered)
		if err != nil || len(batch) == 0 {
			return rest, errors.Join(err, kept)
		}
		if err := s.sleep(ctx, rest); err != nil {
			return rest, fmt.Errorf("the hub asks for a pause of %s: %w", rest.Round(time.Second), err)
		}
		s.state.db.At("send: before")
		receipt, err := s.post(ctx, batch)
		if err != nil {
			return 0, s.hearError(err)
		}
		if err := s.hear(hintOf(receipt.Identity)); err != nil {
			return 0, err
		}
		s.state.db.At("send: answered")
		if again := s.settle(receipt, batch); again != nil {
			kept = again
		}
		for _, q := range batch {
			offered[q.ID] = true
		}
		if s.hub().key == nil && !ahead {
			s.sent = batch[len(batch)-1].seq
		}
		rest = retry.Spread(receipt.Pace.Pause(len(batch), maxPause))
	}
}

// sendAll makes one round.
func (s *sender) sendAll(ctx context.Context) error {
	_, err := s.sendRound(ctx)
	return err
}

// next returns the batch to send next: what was not offered in this round, and after that the dead letters that are
// due. A round begins with the newest report where one request does not hold all.
func (s *sender) next(offered map[digest.Digest]bool) (batch []queued, ahead bool, err error) {
	now := s.opts.Now()
	wanted := func(q queued) bool { return !offered[q.ID] && q.due(now) }
	if len(offered) == 0 {
		batch, ahead, err = s.state.nextBatch(s.sent, wanted)
	} else {
		batch, err = s.state.batch(s.sent, wanted)
	}
	if err != nil || len(batch) > 0 {
		return batch, ahead, err
	}
	batch, err = s.state.deadBatch(wanted)
	return batch, true, err
}

// settle acts on the hub's answer to batch. Its error says that something of it has to be sent again.
func (s *sender) settle(receipt hubapi.Receipt, batch []queued) error {
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
	if s.hub().key != nil && len(receipt.Ack) > 0 {
		ack, err := openAck(receipt.Ack, s.hub().key, s.cluster.UID)
		if err != nil {
			return errors.Join(problem, err)
		}
		v.acknowledged = ack.Reports
	}
	_, err := s.state.settle(batch, v, s.opts.Now())
	if n := v.of(batch); s.hub().key != nil && err == nil && problem == nil && n < len(batch) {
		problem = fmt.Errorf("hub acknowledged or rejected %d of %d reports", n, len(batch))
	}
	return errors.Join(problem, err)
}
