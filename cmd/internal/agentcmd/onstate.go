package agentcmd

import (
	"context"
	"errors"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/control"
)

// lookTime bounds the wait for a running agent's answer to a question that changes nothing.
const lookTime = 10 * time.Second

// look asks the running agent, or else reads what the last one left.
func look[T any](ctx context.Context, c *config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, err := running(ctx, agent.NewClient(c.stateDir))
	if !errors.Is(err, control.ErrNotRunning) {
		return found, err
	}
	state, err := agent.ReadState(c.stateDir)
	if err != nil {
		return found, stateError(err)
	}
	found, err = resting(state)
	return found, errors.Join(err, state.Close())
}

// change tells the running agent to do something, or else does it to the state that the last one left. It never makes a
// state folder of one that is none.
func change[T any](ctx context.Context, c *config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (T, error) {
	done, err := running(ctx, agent.NewClient(c.stateDir))
	if !errors.Is(err, control.ErrNotRunning) {
		return done, err
	}
	state, err := agent.ReadState(c.stateDir)
	if err == nil {
		err = state.Close()
	}
	if err == nil {
		state, err = agent.OpenState(c.stateDir, nil)
	}
	if err != nil {
		return done, stateError(err)
	}
	done, err = resting(state)
	return done, errors.Join(err, state.Close())
}
