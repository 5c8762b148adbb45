//go:build unix

// Package pgtest starts PostgreSQL for tests.
//
// Begin with URL, which returns a new database on a server that all tests of the process share. A test that kills its
// server, or takes its disk away, gets one of its own from Start.
//
// The server is this machine's, as in Debian's package postgresql. It runs as an unprivileged user, in a folder in
// memory or of temporary files, and listens on a Unix socket there; it ends with the process of the tests, even one that
// is killed. If PostgreSQL is not installed the test is skipped, or fails if $WHERRY_REQUIRE names postgres.
package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// startTime bounds the wait for a server that starts, or recovers after a crash.
const startTime = time.Minute

// User is the server's superuser, who needs no password.
const User = "wherry"

// Require skips the test if PostgreSQL is not installed.
func Require(t testing.TB) {
	t.Helper()
	if _, err := programs(); err == nil {
		return
	}
	const why = "PostgreSQL is not installed: there is no /usr/lib/postgresql/*/bin/postgres, and none in $PATH"
	if Installed() {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Installed reports whether PostgreSQL is installed, or has to be, for $WHERRY_REQUIRE.
func Installed() bool {
	_, err := programs()
	return err == nil || slices.Contains(strings.Split(os.Getenv("WHERRY_REQUIRE"), ","), "postgres")
}

// URL returns the URL of a new, empty database on the shared server. It is dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return Named(t, unique())
}

// Named is URL, but the same name is the same database within a test.
func Named(t testing.TB, name string) string {
	t.Helper()
	Require(t)
	s, err := shared()
	require.NoError(t, err)
	return s.named(t, name)
}

// shared starts the server of this process. It ends with the process.
var shared = sync.OnceValues(func() (*Server, error) { return newServer(nil) })

// template makes a folder with an empty cluster, which is copied for each server.
var template = sync.OnceValues(func() (*keeper, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	// Nothing is synced: a test ends processes, and never the machine.
	out, err := command(filepath.Join(bin, "initdb"), "--pgdata", filepath.Join(dir, "data"), "--username", User,
		"--no-sync", "--encoding", "UTF8", "--locale", "C", "--auth", "trust").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	return keep(dir)
})

// programs returns the folder of PostgreSQL's programs, of the newest version that is installed.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err == nil && len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int {
			if len(a) != len(b) {
				return len(a) - len(b)
			}
			return strings.Compare(a, b)
		})), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", err
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}

// Server is a PostgreSQL server of one test.
type Server struct {
	dir      string // of the socket, the log and the folder data
	settings []string
	keeper   *keeper

	mu   sync.Mutex
	made map[string]bool // databases
}

// Start starts a server of the test's own, with settings such as "max_connections=20", and ends it with the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Require(t)
	s, err := newServer(settings)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Kill(t)
		require.NoError(t, os.RemoveAll(s.dir))
	})
	return s
}

func newServer(settings []string) (*Server, error) {
	from, err := template()
	if err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	if out, err := command("cp", "-a", filepath.Join(from.dir, "data"), dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy an empty cluster: %w: %s", err, out)
	}
	s := &Server{dir: dir, settings: settings, made: map[string]bool{}}
	return s, s.start()
}

// start starts the server on its folder, and returns once it answers.
func (s *Server) start() error {
	bin, err := programs()
	if err != nil {
		return err
	}
	args := []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(s.dir, "data")}
	for _, setting := range append([]string{
		"listen_addresses=", "unix_socket_directories=" + s.dir, "max_connections=200", "shared_buffers=32MB",
		"fsync=off", "full_page_writes=off", // what a killed process has written is the kernel's
		"max_wal_size=64MB", "max_parallel_workers_per_gather=0", "log_min_messages=warning",
	}, s.settings...) {
		args = append(args, "-c", setting)
	}
	if s.keeper, err = keep(s.dir, args...); err != nil {
		return err
	}
	return s.await()
}

// await returns once the server answers.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&sslmode=disable", User, database, s.dir)
}

// URL returns the URL of a new, empty database on the server.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	return s.named(t, unique())
}

// named makes the database of this name, unless it is there, and drops it when the test ends.
func (s *Server) named(t testing.TB, name string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(name))
	database := "t" + hex.EncodeToString(sum[:8])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[database] {
		return s.url(database)
	}
	require.NoError(t, s.exec("postgres", "CREATE DATABASE "+database))
	s.made[database] = true
	t.Cleanup(func() {
		// Without it where the server has ended before.
		_ = s.exec("postgres", "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.made, database)
	})
	return s.url(database)
}

// unique returns a name that no other call returns.
func unique() string { return rand.Text() }

// exec runs statements, which may not have parameters, as the superuser.
func (s *Server) exec(database, statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	c, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, statements)
	return err
}

// Exec runs statements in the database of this URL, on a connection of its own.
func Exec(t testing.TB, url, statements string) {
	t.Helper()
	c := Connect(t, url)
	_, err := c.Exec(t.Context(), statements)
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
}

// Connect returns a connection to the database of this URL. It ends with the test.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(log)
}
