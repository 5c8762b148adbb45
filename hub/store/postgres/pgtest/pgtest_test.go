package pgtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
)

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	one, other := pgtest.URL(t), pgtest.URL(t)
	pgtest.Exec(t, one, "CREATE TABLE t (n INT)")
	pgtest.Exec(t, other, "CREATE TABLE t (n INT)")
	require.Equal(t, pgtest.Named(t, "x"), pgtest.Named(t, "x"))
}

func TestAKilledServerStartsAgainWithWhatItHas(t *testing.T) {
	s := pgtest.Start(t)
	url := s.URL(t)
	pgtest.Exec(t, url, "CREATE TABLE t AS SELECT 7 AS n")
	c := pgtest.Connect(t, url)
	s.Kill(t)
	require.Error(t, c.Ping(t.Context()))
	s.Restart(t)
	var n int
	require.NoError(t, pgtest.Connect(t, url).QueryRow(t.Context(), "SELECT n FROM t").Scan(&n))
	require.Equal(t, 7, n)
}

func TestAPausedServerAnswersLater(t *testing.T) {
	s := pgtest.Start(t)
	url := s.URL(t)
	c := pgtest.Connect(t, url)
	for range 20 {
		pgtest.Exec(t, url, "SELECT 1") // whose process ends while the others are paused
		resume := s.Pause(t)
		answered := make(chan error, 1)
		go func() { answered <- c.Ping(t.Context()) }()
		select {
		case <-answered:
			t.Fatal("a paused server has answered")
		case <-time.After(time.Millisecond):
		}
		resume()
		require.NoError(t, <-answered)
	}
}

func TestASmallDiskBecomesFull(t *testing.T) {
	s := pgtest.Start(t)
	c := pgtest.Connect(t, s.SmallDisk(t, 12<<20))
	_, err := c.Exec(t.Context(), "CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
	require.ErrorContains(t, err, "53100")
}
