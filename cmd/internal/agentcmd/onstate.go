package agentcmd

import (
	"context"
	"errors"
	"time"

	"github.com/wherry-dev/wherry/agent"
)

// lookTime bounds the wait for a running agent's answer to a question that changes nothing.
const lookTime = 10 * time.Second

// look asks the running agent, or else reads what the last one has left.
func look[T any](ctx context.Context, c *config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (found T, err error) {
	err = c.look(ctx,
		func(ctx context.Context, a agent.Client) (err error) { found, err = running(ctx, a); return err },
		func(s *agent.State) (err error) { found, err = resting(s); return err })
	return found, err
}

// change has the running agent do something, or else does it to the state that the last one has left. A folder that is
// no agent's stays none.
func change[T any](ctx context.Context, c *config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (done T, err error) {
	err = c.change(ctx,
		func(ctx context.Context, a agent.Client) (err error) { done, err = running(ctx, a); return err },
		func(s *agent.State) (err error) { done, err = resting(s); return err })
	return done, err
}

// look and change of config are compiled once, and not for each type of answer.

func (c *config) look(ctx context.Context, running func(context.Context, agent.Client) error, resting func(*agent.State) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	err := running(ctx, agent.NewClient(c.stateDir))
	if !errors.Is(err, agent.ErrNotRunning) {
		return err
	}
	state, err := agent.ReadState(c.stateDir)
	if err != nil {
		return stateError(err)
	}
	return errors.Join(resting(state), state.Close())
}

func (c *config) change(ctx context.Context, running func(context.Context, agent.Client) error, resting func(*agent.State) error) error {
	err := running(ctx, agent.NewClient(c.stateDir))
	if !errors.Is(err, agent.ErrNotRunning) {
		return err
	}
	state, err := agent.ReadState(c.stateDir)
	if err == nil {
		err = state.Close()
	}
	if err == nil {
		state, err = agent.OpenState(c.stateDir, nil)
	}
	if err != nil {
		return stateError(err)
	}
	return errors.Join(resting(state), state.Close())
}
