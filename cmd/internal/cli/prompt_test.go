package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestOnlyAYesIsAYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "y": true, "n\n": false, "\n": false, "": false, "yeah\n": false} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(&out)
		yes, err := AskYes(cmd, strings.NewReader(answer), "Sign it?")
		require.NoError(t, err)
		require.Equal(t, want, yes, "%q", answer)
		require.Equal(t, "Sign it? [y/N] ", strings.TrimSuffix(out.String(), "\n"))
	}
}

func TestAnInterruptEndsAQuestion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	silent, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	_, err := AskYes(cmd, silent, "Sign it?")
	require.ErrorIs(t, err, context.Canceled)
}
