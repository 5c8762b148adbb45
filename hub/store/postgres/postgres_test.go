package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func TestConformance(t *testing.T) {
	pgtest.Require(t)
	storetest.Run(t, func(t testing.TB, dir string, now func() time.Time) store.Store {
		t.Helper()
		d, err := postgres.Open(t.Context(), pgtest.Named(t, dir), postgres.Options{Now: now})
		require.NoError(t, err)
		return d
	})
}
