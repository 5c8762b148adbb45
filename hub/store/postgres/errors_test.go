package postgres_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/postgres"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
	"github.com/wherry-dev/wherry/hub/store/relational"
)

func open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	d, err := postgres.Open(t.Context(), url, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func token(id string) store.TokenScope {
	return store.TokenScope{Type: "drone", Uses: 1, ExpiresAt: time.Now().Add(time.Hour), Labels: map[string]string{"id": id}}
}

func TestAURLThatIsNotAcceptable(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"another scheme", "mysql://hub:s3cret@db/hub", "looks like postgres://USER@HOST/DATABASE"},
		{"no URL", "host=db password=s3cret", "looks like postgres://USER@HOST/DATABASE"},
		{"a password that is not escaped", "postgres://hub:s3cret/%zz@db/hub", "escaped"},
		{"a setting that is not one", "postgres://hub:s3cret@db/hub?sslmode=s3cret", "cannot be read"},
		{"commits that are not on disk", "postgres://hub:s3cret@db/hub?synchronous_commit=off", "acknowledged that are not on disk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := postgres.Open(t.Context(), tt.url, postgres.Options{})
			require.ErrorIs(t, err, store.ErrInvalid)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestAPasswordIsInNoError(t *testing.T) {
	s := pgtest.Start(t)
	good := s.URL(t)
	for _, tt := range []struct {
		name, url string
		want      error
	}{
		{"the server is away", strings.Replace(good, "host=", "password=s3cret&host=/nowhere", 1), store.ErrUnavailable},
		{"the server is away, on an address that is tried with TLS and without", "postgres://hub:s3cret@127.0.0.1:1/hub", store.ErrUnavailable},
		{"the database is not there", strings.Replace(good, "/t", "/other", 1) + "&password=s3cret", store.ErrUnavailable},
		{"the user is not there", strings.Replace(good, pgtest.User+"@", "nobody:s3cret@", 1), fs.ErrPermission},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := postgres.Open(t.Context(), tt.url, postgres.Options{})
			require.ErrorIs(t, err, tt.want)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "\n")
		})
	}
	require.Equal(t, "postgres://db.example:5433/hub", postgres.Name("postgres://db.example:5433/hub"))
	require.NotContains(t, postgres.Name("postgres://hub:s3cret@db.example:5432/hub?password=s3cret"), "s3cret")
	require.Equal(t, "postgres://db.example/hub", postgres.Name("postgres://hub:s3cret@db.example:5432/hub"))
}

func TestANewerSchemaIsRefused(t *testing.T) {
	url := pgtest.URL(t)
	require.NoError(t, open(t, url).Close())
	pgtest.Exec(t, url, "UPDATE schema_version SET version = version + 1")
	_, err := postgres.Open(t.Context(), url, postgres.Options{})
	require.ErrorIs(t, err, store.ErrNewer)
}

// A store is closed also where its connections have broken.
func TestAServerThatIsGoneAtTheEnd(t *testing.T) {
	s := pgtest.Start(t)
	d, err := postgres.Open(t.Context(), s.URL(t), postgres.Options{})
	require.NoError(t, err)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { _, _ = d.Tokens(t.Context()) })
	}
	asking.Wait()
	require.NoError(t, d.AddToken(t.Context(), "x", key(), token("x")))
	s.Kill(t)
	require.NoError(t, d.Close())
}

// A server that was killed and started again costs the calls in between, and nothing after.
func TestAServerThatIsRestarted(t *testing.T) {
	s := pgtest.Start(t)
	d := open(t, s.URL(t))
	ctx := t.Context()
	require.NoError(t, d.AddToken(ctx, "before", key(), token("before")))
	s.Kill(t)
	require.ErrorIs(t, d.AddToken(ctx, "away", key(), token("away")), store.ErrUnavailable)
	_, err := d.Tokens(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, d.Ready(ctx), store.ErrUnavailable)

	s.Restart(t)
	require.NoError(t, d.Ready(ctx))
	require.NoError(t, d.AddToken(ctx, "after", key(), token("after")))
	require.Equal(t, []string{"after", "before"}, ids(t, d))
	size, err := d.Size(ctx)
	require.NoError(t, err)
	require.Positive(t, size)

	// A connection that was lost while nobody used it costs no call.
	s.Restart(t)
	require.NoError(t, d.AddToken(ctx, "again", key(), token("again")))
	require.Len(t, ids(t, d), 3)
}

func ids(t *testing.T, d *postgres.DB) (all []string) {
	t.Helper()
	tokens, err := d.Tokens(t.Context())
	require.NoError(t, err)
	for _, one := range tokens {
		all = append(all, one.ID)
	}
	return all
}

func TestADatabaseThatMayNotBeWritten(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	path, _, _ := strings.Cut(url, "?")
	name := path[strings.LastIndex(path, "/")+1:]
	pgtest.Exec(t, url, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", name))
	require.NoError(t, d.Close())
	// A database that exists can be opened, and read.
	d = open(t, url)
	require.ErrorIs(t, d.AddToken(t.Context(), "x", key(), token("x")), fs.ErrPermission)
	require.Empty(t, ids(t, d))
}

func TestAFullDisk(t *testing.T) {
	s := pgtest.Start(t)
	url := s.SmallDisk(t, 12<<20)
	d := open(t, url)
	require.NoError(t, d.AddToken(t.Context(), "before", key(), token("before")))
	c := pgtest.Connect(t, url)
	_, err := c.Exec(t.Context(), "CREATE TABLE filler (x TEXT)")
	require.NoError(t, err)
	for size := 1 << 20; size > 100; {
		if _, err := c.Exec(t.Context(), "INSERT INTO filler SELECT repeat('x', 100) FROM generate_series(1, $1 / 100)", size); err != nil {
			size /= 2
		}
	}
	full := token("full")
	for i := range 60 {
		full.Labels[fmt.Sprint(i)] = strings.Repeat("x", 200)
	}
	for i := range 100 {
		if err = d.AddToken(t.Context(), fmt.Sprint("full-", i), key(), full); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, d.Ready(t.Context()), syscall.ENOSPC)
	require.Contains(t, ids(t, d), "before")
	_, err = c.Exec(t.Context(), "DROP TABLE filler")
	require.NoError(t, err)
	require.NoError(t, d.AddToken(t.Context(), "after", key(), full))
}

// Another session holds a lock on a table that a unit of work needs.
func TestATableThatIsLocked(t *testing.T) {
	at := pgtest.URL(t)
	parsed, err := url.Parse(at)
	require.NoError(t, err)
	q := parsed.Query()
	q.Set("lock_timeout", "50")
	parsed.RawQuery = q.Encode()
	d := open(t, parsed.String())
	holder := pgtest.Connect(t, at)
	_, err = holder.Exec(t.Context(), "BEGIN; LOCK TABLE token")
	require.NoError(t, err)
	require.ErrorIs(t, d.AddToken(t.Context(), "x", key(), token("x")), store.ErrUnavailable)
	_, err = holder.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, d.AddToken(t.Context(), "x", key(), token("x")))
}

// A server that does not answer holds up no caller for longer than it wants to wait.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	s := pgtest.Start(t)
	d := open(t, s.URL(t))
	resume := s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := d.AddToken(ctx, "x", key(), token("x"))
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	_, err = d.Tokens(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	resume()
	require.NoError(t, d.AddToken(t.Context(), "y", key(), token("y")))
}

// A connection that is lost while PostgreSQL commits: what became of it is not known, and not reported as written.
func TestACommitWhoseOutcomeIsNotKnown(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	c := pgtest.Connect(t, url)
	// A trigger that runs at COMMIT ends the session there.
	_, err := c.Exec(t.Context(), `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER die AFTER INSERT ON token DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
	require.NoError(t, err)
	require.ErrorIs(t, d.AddToken(t.Context(), "x", key(), token("x")), store.ErrUnavailable)
	_, err = c.Exec(t.Context(), `DROP TRIGGER die ON token`)
	require.NoError(t, err)
	require.NoError(t, d.AddToken(t.Context(), "x", key(), token("x")), "it was not committed, and not run again")
	require.Equal(t, []string{"x"}, ids(t, d))
}

// A connection that is lost before the end of a transaction: it is run again.
func TestAConnectionThatIsLostInAUnitOfWork(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	c := pgtest.Connect(t, url)
	_, err := c.Exec(t.Context(), `CREATE SEQUENCE tries;
		CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); END IF; RETURN NEW; END $$;
		CREATE TRIGGER die BEFORE INSERT ON token FOR EACH ROW EXECUTE FUNCTION die()`)
	require.NoError(t, err)
	require.NoError(t, d.AddToken(t.Context(), "x", key(), token("x")))
	require.Equal(t, []string{"x"}, ids(t, d))
}

func key() ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
}

// A process that stands still in the middle of a transaction does not keep the others from writing for ever.
func TestAProcessThatStandsStill(t *testing.T) {
	at := pgtest.URL(t)
	parsed, err := url.Parse(at)
	require.NoError(t, err)
	q := parsed.Query()
	q.Set("idle_in_transaction_session_timeout", "1000") // milliseconds; opening takes more than a moment under load
	parsed.RawQuery = q.Encode()
	still, other := open(t, parsed.String()), open(t, at)
	begun, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	tries := 0
	go func() {
		ended <- still.Do(context.Background(), func(ctx context.Context, c *relational.Conn) error {
			if tries++; tries == 1 {
				close(begun)
				<-goOn
			}
			_, err := c.Exec(ctx, "UPDATE token SET uses = uses + 1")
			return err
		})
	}()
	<-begun
	require.NoError(t, other.AddToken(t.Context(), "x", key(), token("x")))
	close(goOn)
	require.NoError(t, <-ended, "it is run again")
	require.Equal(t, 2, tries)
	tokens, err := other.Tokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, tokens[0].Uses, "once")
}
