package giveup

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhen(t *testing.T) {
	value, err := When(t.Context(), func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, value)

	broken := errors.New("broken")
	_, err = When(t.Context(), func() (int, error) { return 0, broken })
	require.ErrorIs(t, err, broken)

	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	_, err = When(ctx, func() (int, error) {
		cancel()
		<-release
		return 7, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	close(release)

	_, err = When(ctx, func() (int, error) {
		t.Error("called after ctx has ended")
		return 0, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}
