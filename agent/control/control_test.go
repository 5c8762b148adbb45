package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

var errSleepy = errors.New("asleep")

func TestACommandIsAnsweredAndItsErrorHasItsKind(t *testing.T) {
	dir := t.TempDir()
	server, err := Listen(dir)
	require.NoError(t, err)
	server.Kind = func(err error) string {
		if errors.Is(err, errSleepy) {
			return "sleepy"
		}
		return ""
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ctx, Commands{
			"POST add":  With(func(n [2]int) (any, error) { return n[0] + n[1], nil }),
			"POST wake": With(func(struct{}) (any, error) { return nil, fmt.Errorf("too early: %w", errSleepy) }),
			"POST else": With(func(struct{}) (any, error) { return nil, errors.New("something else") }),
			"GET half": With(func(struct{}) (any, error) {
				return Stream{"text/plain", func(w io.Writer) error {
					_, _ = w.Write(bytes.Repeat([]byte("half"), 1<<20))
					return errors.New("the rest is missing")
				}}, nil
			}),
		})
	}()
	c := Dial(dir, map[string]error{"sleepy": errSleepy})
	var sum int
	require.NoError(t, c.Call(ctx, "POST add", [2]int{1, 2}, &sum))
	require.Equal(t, 3, sum)
	require.NoError(t, c.Call(ctx, "POST add", nil, &sum), "no arguments are the zero ones")
	require.Zero(t, sum)

	err = c.Call(ctx, "POST wake", nil, &sum)
	require.EqualError(t, err, "too early: asleep")
	require.ErrorIs(t, err, errSleepy)
	err = c.Call(ctx, "POST else", nil, &sum)
	require.EqualError(t, err, "something else")
	require.NotErrorIs(t, err, errSleepy)
	require.Error(t, c.Call(ctx, "POST add", "not numbers", &sum))
	require.Error(t, c.Call(ctx, "POST unknown", nil, &sum))
	require.Error(t, c.Stream(ctx, "GET half", io.Discard), "half a file is not taken for a whole one")

	cancel()
	<-ended
	require.ErrorIs(t, c.Call(t.Context(), "POST add", nil, &sum), ErrNotRunning)
}
