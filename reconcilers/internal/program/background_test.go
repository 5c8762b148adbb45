package program

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// until is work that goes on until its context ends, and says so.
func until(ended *[]string, name string) func(context.Context) {
	return func(ctx context.Context) { <-ctx.Done(); *ended = append(*ended, name) }
}

func TestANewerTaskEndsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		var order []string
		require.NoError(t, g.Start("shop", "first", until(&order, "first ended")))
		require.NoError(t, g.Start("shop", "second", func(ctx context.Context) {
			order = append(order, "second began")
			<-ctx.Done()
		}))
		synctest.Wait()
		require.Equal(t, []string{"first ended", "second began"}, order)
		about, running := g.Latest("shop")
		require.Equal(t, "second", about)
		require.True(t, running)
		require.True(t, g.Working())

		g.Close()
		about, running = g.Latest("shop")
		require.Equal(t, "second", about, "which is kept")
		require.False(t, running)
		require.False(t, g.Working())
		require.True(t, g.Closed())
		require.ErrorIs(t, g.Start("shop", "third", nil), context.Canceled)
	})
}

func TestATaskIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		require.NoError(t, g.Start("shop", "done", func(context.Context) {}))
		synctest.Wait()
		g.Forget("shop", "another")
		about, _ := g.Latest("shop")
		require.Equal(t, "done", about)
		g.Forget("shop", "done")
		about, running := g.Latest("shop")
		require.Empty(t, about)
		require.False(t, running)

		var ended []string
		require.NoError(t, g.Start("shop", "long", until(&ended, "long")))
		g.Stop("shop")
		g.Stop("shop")
		require.Equal(t, []string{"long"}, ended)
		about, _ = g.Latest("shop")
		require.Empty(t, about)
		g.Close()
	})
}
