package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/hub/store/relational"
)

// Statements that are sent together fail with their own unit of work, and with no other of the same transaction.
func TestAStatementThatFailsLater(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	pgtest.Exec(t, url, "CREATE TABLE n (n BIGINT PRIMARY KEY)")
	insert := func(c *relational.Conn, n int64) error {
		return c.Later(t.Context(), "INSERT INTO n VALUES ($1)", n)
	}
	refused := errors.New("refused")
	// The first holds the writer up until all others wait, so that they share a transaction.
	begun, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	run := func(work func(context.Context, *relational.Conn) error, check func(error)) {
		all.Go(func() { check(d.Do(t.Context(), work)) })
	}
	var once sync.Once
	run(func(_ context.Context, c *relational.Conn) error {
		once.Do(func() { close(begun); <-goOn })
		return insert(c, 1)
	}, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	for n := range int64(30) {
		run(func(ctx context.Context, c *relational.Conn) error {
			switch n % 3 {
			case 0: // it fails with the statements that end the unit of work
				return errors.Join(insert(c, 100+n), insert(c, 1))
			case 1: // it fails before anything is sent
				return errors.Join(insert(c, 200+n), refused)
			}
			err := insert(c, 300+n)
			_, execErr := c.Exec(ctx, "UPDATE n SET n = n WHERE n = $1", 300+n)
			return errors.Join(err, execErr)
		}, func(err error) {
			switch {
			case n%3 == 0 && err == nil, n%3 == 1 && !errors.Is(err, refused), n%3 == 2 && err != nil:
				t.Errorf("unit of work %d: %v", n, err)
			}
		})
	}
	close(goOn)
	all.Wait()
	var count int
	require.NoError(t, pgtest.Connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM n").Scan(&count))
	require.Equal(t, 1+10, count)
}
