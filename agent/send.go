package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Bounds of one exchange with the hub.
const (
	maxSendReports = 500
	maxSendBytes   = 1 << 20 // of envelopes; a single larger one goes alone
	maxReplyBytes  = 4 << 20
	firstRetry     = 5 * time.Second
	lastRetry      = time.Hour
	// skipTime is how long reports that the hub will not take are not offered again. The refusal is not
	// signed, so it must not silence an agent for ever.
	skipTime = 24 * time.Hour
)

// sender takes reports to the hub. It deletes none but those that the hub's own key acknowledges.
type sender struct {
	*Agent
	sent    uint64                      // up to here, where without a key nothing is ever acknowledged
	skipped map[digest.Digest]time.Time // until when
	silent  bool                        // the fault was logged

	refused  string    // why the hub has not enrolled the agent, as logged
	askAgain time.Time // when to ask it again
}

func newSender(a *Agent) *sender { return &sender{Agent: a, skipped: map[digest.Digest]time.Time{}} }

// run sends whenever there is something to send, and backs off while that fails.
func (s *sender) run(ctx context.Context) {
	if !s.placed(ctx) {
		return
	}
	if hub := s.hub(); hub.key == nil {
		s.opts.Log.Warn("no hub key is pinned: reports are sent and none is ever deleted", "hub", hub.url)
	}
	failures := 0
	for ctx.Err() == nil {
		wait := lastRetry
		err := s.sendAll(ctx)
		if failures++; err == nil {
			failures = 0
		} else {
			wait = jitter(max(backoff(firstRetry, lastRetry, failures-1), retryAfter(err)))
		}
		s.say(ctx, err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.mayHurry(failures):
		}
		timer.Stop()
	}
}

// mayHurry is the signal for new reports, which does not cut a back-off short.
func (s *sender) mayHurry(failures int) <-chan struct{} {
	if failures > 0 {
		return nil
	}
	return s.queued
}

// say logs that the hub is out of reach once, and once that it is back.
func (s *sender) say(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !s.silent:
		s.opts.Log.Warn("reports stay in the queue", "err", err)
		s.silent = true
	case err == nil && s.silent:
		s.opts.Log.Info("reports are taken again")
		s.silent = false
	}
}

// sendAll offers the hub every report once. The newest, which is the whole present, goes before the others where
// one request does not hold all; those follow oldest first.
func (s *sender) sendAll(ctx context.Context) error {
	if err := s.enrolFirst(ctx); err != nil {
		return err
	}
	if s.hub().key != nil {
		s.sent = 0 // what was sent before the hub was known is acknowledged now
	}
	batch, err := s.state.batch(s.sent, maxSendReports, maxSendBytes, s.skips)
	if err != nil || len(batch) == 0 {
		return err
	}
	newest, err := s.state.last(s.skips)
	if err != nil {
		return err
	}
	var kept error // later ones may still be taken
	var first digest.Digest
	if len(newest) > 0 && newest[0].seq > batch[len(batch)-1].seq {
		first = newest[0].ID
		var failed error
		if kept, failed = s.offer(ctx, newest); failed != nil {
			return failed
		}
	}
	for after := s.sent; ; {
		batch, err := s.state.batch(after, maxSendReports, maxSendBytes, func(id digest.Digest) bool { return id == first || s.skips(id) })
		if err != nil || len(batch) == 0 {
			return errors.Join(err, kept)
		}
		again, err := s.offer(ctx, batch)
		if err != nil {
			return err
		}
		if after = batch[len(batch)-1].seq; again != nil {
			kept = again
		}
		if s.hub().key == nil {
			s.sent = after
		}
	}
}

// offer sends one batch and acts on the answer. Its error is that of a hub which does not answer; again says that
// something of the batch has to be sent once more.
func (s *sender) offer(ctx context.Context, batch []queued) (again, err error) {
	reply, err := s.post(ctx, batch)
	if err != nil {
		return nil, s.hearError(err)
	}
	if err := s.hear(reply.Identity); err != nil {
		return nil, err
	}
	return s.settle(reply, batch), nil
}

// skips says whether the hub said lately that it will never take the report.
func (s *sender) skips(id digest.Digest) bool {
	until, ok := s.skipped[id]
	return ok && s.opts.Now().Before(until)
}

// settle acts on the hub's answer to batch. Its error says that something of it has to be sent again.
func (s *sender) settle(reply hubReply, batch []queued) error {
	rejected := map[digest.Digest]string{}
	var problem error
	for _, r := range reply.Rejected {
		why := r.Reason
		if r.Message != "" {
			why += ": " + r.Message
		}
		if r.Permanent != nil && !*r.Permanent {
			problem = fmt.Errorf("hub did not take report %s: %s", r.ID, why)
			continue
		}
		rejected[r.ID] = reconcilers.Clip(why)
		s.skipped[r.ID] = s.opts.Now().Add(skipTime)
	}
	if s.hub().key == nil {
		_, err := s.state.settle(batch, nil, rejected)
		return errors.Join(problem, err)
	}
	var acknowledged []digest.Digest
	if len(reply.Ack) > 0 {
		ack, err := openAck(reply.Ack, s.hub().key, s.cluster.UID)
		if err != nil {
			return errors.Join(problem, err)
		}
		acknowledged = ack.Reports
	}
	_, err := s.state.settle(batch, acknowledged, rejected)
	if n := settled(batch, acknowledged, rejected); err == nil && problem == nil && n < len(batch) {
		problem = fmt.Errorf("hub acknowledged or rejected %d of %d reports", n, len(batch))
	}
	return errors.Join(problem, err)
}

// settled counts the reports of batch that the hub has an answer to.
func settled(batch []queued, acknowledged []digest.Digest, rejected map[digest.Digest]string) (n int) {
	acked := map[digest.Digest]bool{}
	for _, id := range acknowledged {
		acked[id] = true
	}
	for _, q := range batch {
		if _, refused := rejected[q.ID]; refused || acked[q.ID] {
			n++
		}
	}
	return n
}
