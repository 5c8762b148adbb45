package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/reconcilers"
)

// busy is an engine that runs something between calls.
type busy struct {
	reconcilers.Reconciler
	closed bool
	err    error
}

func (b *busy) Close() error {
	b.closed = true
	return b.err
}

func TestEveryEngineIsClosed(t *testing.T) {
	first, second := &busy{err: errors.New("it does not listen")}, &busy{}
	err := closeAll(map[string]reconcilers.Reconciler{"ansible": first, "directory": struct{ reconcilers.Reconciler }{}, "zarf": second})
	require.EqualError(t, err, "end what the adapter ansible runs: it does not listen")
	require.True(t, first.closed && second.closed)
}

func TestAnAgentThatIsTooOldSaysWhatToDo(t *testing.T) {
	c := &Config{Program: Program{Version: "v1.0.0"}}
	err := c.stateError(fmt.Errorf("state /x/agent.db: %w: v2.0.0, schema 2; this one reads up to schema 1", state.ErrNewer))
	var said *Error
	require.ErrorAs(t, err, &said)
	require.Equal(t, Unusable, said.Kind)
	require.Contains(t, said.Hint, "this agent is version v1.0.0: use the newer agent again")
}
