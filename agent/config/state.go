package config

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/state"
)

// Look asks the running agent, or reads the state that the last one has left.
func Look[T any](ctx context.Context, c *Config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (T, error) {
	found, err := running(ctx, agent.NewClient(c.StateDir))
	if !errors.Is(err, control.ErrNotRunning) {
		return found, err
	}
	st, err := c.ReadState()
	if err != nil {
		return found, err
	}
	found, err = resting(st)
	return found, errors.Join(err, st.Close())
}

// Change has the running agent do something, or does it to the state that the last one has left. It makes no state
// where there is none.
func Change[T any](ctx context.Context, c *Config, running func(context.Context, agent.Client) (T, error), resting func(*agent.State) (T, error)) (T, error) {
	done, err := running(ctx, agent.NewClient(c.StateDir))
	if !errors.Is(err, control.ErrNotRunning) {
		return done, err
	}
	st, err := c.ReadState()
	if err != nil {
		return done, err
	}
	if err := st.Close(); err != nil {
		return done, c.stateError(err)
	}
	if st, err = c.openState(); err != nil {
		return done, err
	}
	done, err = resting(st)
	return done, errors.Join(err, st.Close())
}

// Status returns the status of the running agent, or how the last one has left its state.
func (c *Config) Status(ctx context.Context) (agent.Status, error) {
	return Look(ctx, c, func(ctx context.Context, a agent.Client) (agent.Status, error) { return a.Status(ctx) },
		func(s *agent.State) (agent.Status, error) { return s.Status(time.Now()) })
}

// ReadState opens the state that an agent has left, to be read only. The caller closes it.
func (c *Config) ReadState() (*agent.State, error) {
	st, err := agent.ReadState(c.StateDir)
	if err != nil {
		return nil, c.stateError(err)
	}
	return st, nil
}

func (c *Config) openState() (*agent.State, error) {
	st, err := agent.OpenState(c.StateDir, nil)
	if err != nil {
		return nil, c.stateError(err)
	}
	return st, nil
}

// stateError adds a hint to the error of a state folder that cannot be used.
func (c *Config) stateError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, state.ErrBusy):
		hint = "an agent is running with this state folder: use sync, status or import, or give another --state-dir"
	case errors.Is(err, state.ErrDamaged):
		hint = "move the file away to begin anew: the next pass adopts what is applied, no older release is taken than the signed ones in store/, and the hub has to be given the new report key and uid, which \"status -o json\" shows"
	case errors.Is(err, state.ErrNewer):
		hint = "this agent is version " + c.Program.Version + ": use the newer agent again, or a newer one still; what runs here stays as it is meanwhile"
	case errors.Is(err, state.ErrNoState):
		hint = "begin with once or run, or name its folder with --state-dir"
	case errors.Is(err, fs.ErrPermission):
		hint = "use sudo, or give --state-dir a folder of this user"
	case errors.As(err, new(*fs.PathError)):
		hint = "give --state-dir a folder that this user may write, on a disk with free space"
	}
	return &Error{Unusable, err, hint}
}
