package agent

import (
	"context"
	"net/http"

	"github.com/wherry-dev/wherry/agent/outbox"
)

// What the control socket does with dead letters.
const (
	deadRetry = "retry"
	deadDrop  = "drop"
)

// howMany says how many were meant.
type howMany struct {
	Count int `json:"count"`
}

func (c *control) getDead(w http.ResponseWriter, _ *http.Request) {
	letters, err := c.agent.state.outbox.DeadLetters()
	if err != nil {
		say(w, http.StatusInternalServerError, answer{Error: err.Error()})
		return
	}
	say(w, http.StatusOK, letters)
}

func (c *control) postDead(w http.ResponseWriter, r *http.Request) {
	cmd, ok := hear(w, r)
	if !ok {
		return
	}
	var n int
	var err error
	switch cmd.Dead {
	case deadRetry:
		n, err = c.agent.state.outbox.RetryDeadLetters()
	case deadDrop:
		n, err = c.agent.state.outbox.DropDeadLetters()
	default:
		say(w, http.StatusBadRequest, answer{Error: "dead letters can be retried or dropped"})
		return
	}
	if err != nil {
		say(w, http.StatusInternalServerError, answer{Error: err.Error()})
		return
	}
	say(w, http.StatusOK, howMany{n})
}

// DeadLetters is outbox.Outbox.DeadLetters.
func (c Client) DeadLetters(ctx context.Context) (all []outbox.DeadLetter, err error) {
	err = c.call(ctx, http.MethodGet, "dead", nil, &all)
	return all, err
}

// RetryDeadLetters is outbox.Outbox.RetryDeadLetters.
func (c Client) RetryDeadLetters(ctx context.Context) (int, error) { return c.dead(ctx, deadRetry) }

// DropDeadLetters is outbox.Outbox.DropDeadLetters.
func (c Client) DropDeadLetters(ctx context.Context) (int, error) { return c.dead(ctx, deadDrop) }

func (c Client) dead(ctx context.Context, what string) (int, error) {
	var n howMany
	err := c.call(ctx, http.MethodPost, "dead", command{Dead: what}, &n)
	return n.Count, err
}
