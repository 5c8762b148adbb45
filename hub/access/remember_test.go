package access

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
)

// While the database is away, tokens that it knew read, and change nothing. Once it answers, it counts alone.
func TestTokensAreRememberedWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &memory{}
		remember := &Memory{Access: kept}
		g := &gate{kept: kept, Tokens: Tokens{Store: remember}}
		var noted int
		g.Guard = NewGuard(Options{Sources: []Source{g.Tokens}, Away: remember.Away, SignedIn: func(context.Context, Identity, string, error) error { noted++; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = remember.Run(ctx) }()
		used := g.create(t, Request{Name: "ann", Role: Operator})
		idle := g.create(t, Request{Name: "bob", Role: Viewer, ExpiresAt: time.Now().Add(2 * time.Hour)})
		time.Sleep(rememberEvery + time.Second)
		late := g.create(t, Request{Name: "eve", Role: Viewer})
		require.Equal(t, 200, g.ask(Operate, "POST", bearer(used)).Code)
		require.Equal(t, 1, noted)

		kept.fail(store.ErrUnavailable)
		asked := kept.asked
		for range 100 {
			require.Equal(t, 200, g.ask(Read, "GET", bearer(used)).Code)
		}
		require.Equal(t, asked+1, kept.asked, "the others do not wait for it")
		require.Equal(t, 200, g.ask(Read, "GET", bearer(idle)).Code, "nobody has used it before")
		require.Equal(t, 503, g.ask(Operate, "POST", bearer(used)).Code)
		require.Equal(t, 403, g.ask(Operate, "POST", bearer(idle)).Code)
		require.Equal(t, 503, g.ask(Read, "GET", bearer(late)).Code, "the memory does not have it")
		forged := used
		forged.secret[0] ^= 1
		require.Equal(t, 401, g.ask(Read, "GET", bearer(forged)).Code)
		time.Sleep(2 * time.Hour)
		require.Equal(t, 401, g.ask(Read, "GET", bearer(idle)).Code, "it has expired meanwhile")
		time.Sleep(MaxRemembered - 3*time.Hour)
		require.Equal(t, 200, g.ask(Read, "GET", bearer(used)).Code)
		time.Sleep(2 * time.Hour)
		require.Equal(t, 503, g.ask(Read, "GET", bearer(used)).Code, "it is too long ago")

		_, err := kept.RevokeAccess(t.Context(), "ann") // by another hub of the database
		require.NoError(t, err)
		kept.fail(nil)
		time.Sleep(retryEvery)
		require.Equal(t, 401, g.ask(Read, "GET", bearer(used)).Code)
		require.False(t, remember.Away())

		// What the database itself says is no reason to ask the memory.
		kept.fail(store.ErrCorrupt)
		require.Equal(t, 503, g.ask(Read, "GET", bearer(late)).Code)
		cancel()
		synctest.Wait()
	})
}
