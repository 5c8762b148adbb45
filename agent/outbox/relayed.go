package outbox

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// handed are the reports that a relay has taken, which are offered again only seldom. They are not on the disk: a process
// that has just begun offers everything once. The zero value is empty.
type handed struct {
	ids map[digest.Digest]bool
	// again is when all of them are offered once more; zero while there are none.
	again time.Time
}

func (h *handed) add(id digest.Digest, now time.Time) {
	if h.ids == nil {
		h.ids = map[digest.Digest]bool{}
	}
	if h.again.IsZero() {
		h.again = now.Add(retry.Jitter(hubapi.OfferAgain))
	}
	h.ids[id] = true
}

// lapse forgets all of them once they are to be offered again. After the clock was set back, they wait no longer than they
// would have without.
func (h *handed) lapse(now time.Time) {
	if h.again.IsZero() || now.Before(h.again) && h.again.Sub(now) <= 2*hubapi.OfferAgain {
		return
	}
	*h = handed{}
}

// idle is how long nothing has to be sent.
func (h *handed) idle(now time.Time) time.Duration {
	if h.again.IsZero() {
		return queue.LongestRetry
	}
	return min(max(h.again.Sub(now), time.Second), 2*hubapi.OfferAgain)
}

// handOver notes the reports of batch that the relay has taken, and deletes what the hub has signed for. A relay is believed
// nothing: an acknowledgement that the hub's key has not signed deletes nothing.
func (s *HubSink) handOver(receipt hubapi.Receipt, batch []queued) error {
	refused := map[digest.Digest]bool{}
	for _, r := range receipt.Rejected {
		refused[r.ID] = true
	}
	now := s.Now()
	for _, q := range batch {
		if !refused[q.ID] {
			s.handed.add(q.ID, now)
		}
	}
	var problem error
	for _, envelope := range receipt.Acks {
		problem = errors.Join(problem, s.takeRelayed(envelope))
	}
	return problem
}

func (s *HubSink) takeRelayed(envelope json.RawMessage) error {
	hub := s.Hub()
	if hub.Key == nil {
		return nil
	}
	ack, err := queue.OpenAck(envelope, hub.Key, s.UID())
	if err != nil {
		s.Log.Warn("an acknowledgement of a relay is not believed", "relay", hub.URL, "err", err)
		return nil
	}
	n, err := s.settleAll(ack.Reports)
	if err != nil {
		return err
	}
	if n > 0 {
		s.Log.Info("the hub has acknowledged reports by way of a relay", "relay", hub.URL, "reports", n)
	}
	for _, id := range ack.Reports {
		delete(s.handed.ids, id)
	}
	return nil
}
