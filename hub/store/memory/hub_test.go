//go:build unix

package memory_test

import (
	"flag"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// Whoever asks a hub gets the counts that a command without a hub makes of the same facts.
func TestAHubOverHTTPCountsContentByTheRules(t *testing.T) {
	for engine, fleets := range map[string][2]string{"sqlite": {"20", "500"}, "postgres": {"5", "100"}} {
		t.Run(engine, func(t *testing.T) {
			checks := fleets[0]
			if sweeptest.Full() {
				checks = fleets[1]
			}
			require.NoError(t, flag.Set("rapid.checks", checks))
			rapid.Check(t, func(rt *rapid.T) {
				w := drawContents(rt)
				c, end := w.hub(t, engine == "postgres", rt)
				defer end()
				want := w.count()
				require.Equal(rt, want, w.contentFrom(rt, c))
				require.Equal(rt, want, w.askContent(rt, w.inMemory(rt)))
			})
		})
	}
}

// hub serves the fleet, and returns a client whose token sees all clusters of the environment.
func (w *contents) hub(t *testing.T, inPostgres bool, rt *rapid.T) (c client.Client, end func()) {
	dir, o := t.TempDir(), hub.Options{Now: func() time.Time { return judged }}
	if inPostgres {
		o.Database = pgtest.URL(t)
	}
	h, err := hub.Open(dir, o)
	require.NoError(rt, err)
	now := func() time.Time { return w.clock }
	var db store.Store
	if inPostgres {
		db, err = postgres.Open(rt.Context(), o.Database, postgres.Options{Now: now})
	} else {
		db, err = sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{Now: now})
	}
	require.NoError(rt, err)
	w.fill(rt, db)
	require.NoError(rt, db.Close())
	token, _, err := h.Access().Create(rt.Context(), access.Request{Name: "ci", Role: access.Viewer, AccessScope: store.AccessScope{Environments: []string{"stage"}}})
	require.NoError(rt, err)
	server := httptest.NewServer(h.Handler())
	return client.Client{URL: server.URL, Token: token.Reveal()}, func() {
		server.Close()
		require.NoError(rt, h.Close())
	}
}
