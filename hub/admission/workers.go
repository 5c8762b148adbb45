package admission

import (
	"context"
	"sync"
)

// workers bounds the requests whose reports are being verified, which takes only processor time: as many as there are processors
// that run this process, less those that are left to questions. Without a bound, dozens of requests would divide the
// processors among them, and each question would wait for all of them.
type workers struct {
	mu      sync.Mutex
	total   int
	spared  int             // at most so many are left to questions
	busy    int             // verify
	asked   int             // questions that are being answered
	waiting []chan struct{} // closed when one may begin, oldest first
}

// newWorkers leaves at most half of the processors to questions, so that neither stops the other.
func newWorkers(processors int) *workers {
	return &workers{total: processors, spared: processors / 2}
}

// room reports whether one more may begin. The caller holds mu.
func (w *workers) room() bool { return w.busy < w.total-min(w.asked, w.spared) }

// wake lets those begin for whom there is room. The caller holds mu.
func (w *workers) wake() {
	for len(w.waiting) > 0 && w.room() {
		w.busy++
		close(w.waiting[0])
		w.waiting = w.waiting[1:]
	}
}

// begin waits until there is room. The caller calls end afterwards. The error is that of ctx.
func (w *workers) begin(ctx context.Context) (end func(), err error) {
	w.mu.Lock()
	mine := make(chan struct{})
	w.waiting = append(w.waiting, mine)
	w.wake()
	w.mu.Unlock()
	select {
	case <-mine:
		return w.end, nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.waiting {
		if other == mine {
			w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
			return nil, ctx.Err()
		}
	}
	w.busy-- // it could have begun meanwhile
	w.wake()
	return nil, ctx.Err()
}

func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.wake()
}

// ask notes that a question is being answered, until done is called.
func (w *workers) ask() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked--
		w.wake()
	}
}
