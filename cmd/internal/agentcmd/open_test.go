package agentcmd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

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
