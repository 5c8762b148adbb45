package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
)

// Three hubs serve one PostgreSQL database. While agents send to all of them, one hub after another is killed, and in between
// PostgreSQL itself. Each report that a hub has acknowledged is stored once, and the hubs go on.
func TestAKilledHubOfSeveralAndAKilledPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	url := server.URL(t)
	folder := func(i int) string { return filepath.Join(t.TempDir(), fmt.Sprint("hub-", i)) }
	first := folder(0)
	h, err := hub.Open(first, hub.Options{Database: url})
	require.NoError(t, err)
	require.NoError(t, h.Close())
	folders := []string{first, folder(1), folder(2)}

	k := newKilling(t, func() (store.Store, error) { return postgres.Open(t.Context(), url, postgres.Options{}) })
	k.start = func(i int) (*hubload.Hub, error) {
		return hubload.Serve("wherry", folders[i], append([]string{"--database", url, "--key", filepath.Join(first, hub.KeyFile)}, hubload.Lifted...)...)
	}
	k.run(len(folders), *hubKills, func(random *rand.Rand) {
		switch i := random.IntN(len(folders) + 1); i {
		case len(folders):
			server.Kill(t)
			server.Restart(t)
			k.check(false)
		default:
			k.kill(i)
		}
	})
	k.verify("--data", first, "--database", url)
}
