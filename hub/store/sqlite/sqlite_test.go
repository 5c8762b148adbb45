package sqlite

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/relational"
	"github.com/wherry-dev/wherry/hub/store/storetest"
	"github.com/wherry-dev/wherry/hub/store/timeline"
)

var update = flag.Bool("update", false, "write the databases in testdata that are missing")

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, path string) *DB {
	t.Helper()
	d, err := Open(path, Options{Now: func() time.Time { return epoch }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// fixedKey is the same in each run, since fixtures hold it.
func fixedKey() ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
}

func plant7() store.Cluster {
	return store.Cluster{Identity: store.Identity{UID: "uid-plant-7", Name: "plant-7", Platform: "shop", Type: "drone", Environment: "dev"}, Key: fixedKey()}
}

func batch(seq int64, items ...bundle.Item) store.Batch {
	r := bundle.Report{
		Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster{UID: "uid-plant-7"}, Agent: bundle.ReportAgent{Incarnation: 1, Seq: seq},
		Kind: bundle.Snapshot, OccurredAt: epoch, State: bundle.Compliant, Items: items,
	}
	return store.Batch{UID: r.Cluster.UID, Via: store.ViaHTTP, Reports: []store.Report{{ID: digest.FromString(fmt.Sprint(seq)), KeyID: "k", Body: r}}}
}

func items(n int) (all []bundle.Item) {
	for i := range n {
		name := fmt.Sprintf("workload-%d", i)
		all = append(all, bundle.Item{Assignment: name + "-main", Workload: name, Target: "main", State: bundle.Compliant, Since: epoch})
	}
	return all
}

func count(t *testing.T, d *DB, table string) (n int) {
	t.Helper()
	require.NoError(t, d.read.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// What this version has written is opened, and gone on with, by all that follow: testdata has a database of each version of the
// schema that was ever released.
func TestADatabaseOfEachVersionIsOpened(t *testing.T) {
	for i := range schema {
		version := i + 1
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			fixture := filepath.Join("testdata", fmt.Sprintf("version%d.db.gz", version))
			if _, err := os.Stat(fixture); *update && os.IsNotExist(err) {
				require.Equal(t, len(schema), version, "only this version's can be written")
				writeFixture(t, fixture)
			}
			path := filepath.Join(t.TempDir(), "hub.db")
			unpack(t, fixture, path)

			d := open(t, path)
			require.NoError(t, d.Check(t.Context()))
			deployed := deployments(t, d)
			require.Len(t, deployed, 1)
			require.Equal(t, bundle.Compliant, deployed[0].State)
			keys, err := d.Keys(t.Context(), "uid-plant-7")
			require.NoError(t, err)
			require.Len(t, keys.Current, 1)
			for _, key := range keys.Current {
				require.Equal(t, fixedKey(), key)
			}

			it := drone()
			it.State, it.Failures = bundle.Failed, 2
			done, err := d.Ingest(t.Context(), batch(2, it))
			require.NoError(t, err)
			require.Equal(t, 1, done.Accepted)
			require.NoError(t, d.Close())

			d = open(t, path)
			history, err := d.History(t.Context(), "uid-plant-7")
			require.NoError(t, err)
			require.Len(t, history, 3)
			require.Equal(t, int64(2), deployments(t, d)[0].Failures)
			require.NoError(t, d.Compare(t.Context(), func(uid, assignment, difference string) error {
				return errors.New(uid + " " + assignment + ": " + difference)
			}))
		})
	}
}

// drone is what the cluster of the fixtures runs.
func drone() bundle.Item {
	return bundle.Item{Assignment: "drone-main", Workload: "drone", Target: "main", State: bundle.Compliant, Since: epoch}
}

// deployments returns the deployments on all clusters.
func deployments(t *testing.T, d *DB) (all []store.Deployment) {
	t.Helper()
	require.NoError(t, d.Scan(t.Context(), store.Scope{}, func(c store.ClusterState) error {
		all = append(all, c.Deployments...)
		return nil
	}))
	return all
}

func unpack(t *testing.T, fixture, path string) {
	t.Helper()
	f, err := os.Open(fixture)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var content bytes.Buffer
	_, err = content.ReadFrom(z)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content.Bytes(), 0o600))
}

// writeFixture writes a database of this version: a cluster with one deployment.
func writeFixture(t *testing.T, fixture string) {
	t.Helper()
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	_, err = d.Ingest(t.Context(), batch(1, drone()))
	require.NoError(t, err)
	require.NoError(t, d.Backup(t.Context(), filepath.Join(dir, "copy.db")))
	content, err := os.ReadFile(filepath.Join(dir, "copy.db"))
	require.NoError(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(content)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(fixture, packed.Bytes(), 0o644))
}

func TestADatabaseOfTheFutureIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub.db")
	d := open(t, path)
	_, err := d.conn.ExecContext(t.Context(), "PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, d.Close())
	_, err = Open(path, Options{})
	require.ErrorIs(t, err, store.ErrNewer)
}

func TestJobsShareATransactionAndFailAlone(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "hub.db"))
	hold, held := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = d.Do(context.Background(), func(context.Context, *relational.Conn) error {
			close(held)
			<-hold
			return nil
		})
	})
	<-held
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			errs[i] = d.Do(context.Background(), func(ctx context.Context, c *relational.Conn) error {
				_, err := c.Exec(ctx, `INSERT INTO cluster (uid, name, platform, type, environment, ring, labels, expected, added_at)
					VALUES ($1, $2, '', '', '', '', '{}', 1, 1)`, fmt.Sprint("uid-", i), fmt.Sprint("name-", i/2))
				return err
			})
		})
	}
	close(hold)
	wg.Wait()

	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
			require.ErrorContains(t, err, "UNIQUE constraint failed")
		}
	}
	require.Equal(t, 5, failed)
	require.Equal(t, 5, count(t, d, "cluster"))
}

func TestAFailedCommitStoresNothing(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	failCommits(t, d, true)
	_, err = d.Ingest(t.Context(), batch(1, items(1)...))
	require.Error(t, err)
	require.Zero(t, count(t, d, "report"))
	failCommits(t, d, false)
	done, err := d.Ingest(t.Context(), batch(1, items(1)...))
	require.NoError(t, err)
	require.Equal(t, 1, done.Accepted, "nothing of the failed attempt is left")
}

// failCommits has SQLite turn every commit of the writer into a rollback.
func failCommits(t *testing.T, d *DB, fail bool) {
	t.Helper()
	require.NoError(t, d.conn.Raw(func(c any) error {
		var verdict int32
		if fail {
			verdict = 1
		}
		c.(modernc.HookRegisterer).RegisterCommitHook(func() int32 { return verdict })
		return nil
	}))
}

func TestAFullDiskStoresNothing(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	var pages int
	require.NoError(t, d.read.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
	limit := func(pages int) {
		_, err := d.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		require.NoError(t, err)
	}
	limit(pages)
	_, err = d.Ingest(t.Context(), batch(1, items(200)...))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Zero(t, count(t, d, "report"))
	limit(1 << 20)
	done, err := d.Ingest(t.Context(), batch(1, items(200)...))
	require.NoError(t, err)
	require.Equal(t, 1, done.Accepted)
}

func TestProcessesThatAreRememberedAreBounded(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	for n := range int64(timeline.MaxProcesses + 10) {
		b := batch(n + 1)
		b.Reports[0].Body.Agent.Instance = fmt.Sprint(n)
		done, err := d.Ingest(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, done.SharedHow)
	}
	require.Equal(t, timeline.MaxProcesses, count(t, d, "instance"))
}

// A commit that is acknowledged survives a power cut: the journal is synced before a commit returns.
func TestCommitsAreSynced(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "hub.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		require.NoError(t, d.conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, pragma)
	}
	var readOnly int
	require.NoError(t, d.read.QueryRowContext(t.Context(), "PRAGMA query_only").Scan(&readOnly))
	require.Equal(t, 1, readOnly)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string, now func() time.Time) store.Store {
		d, err := Open(filepath.Join(dir, "hub.db"), Options{Now: now})
		if err != nil {
			t.Error(err)
		}
		return d
	})
}

func TestRewrite(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT 1":                        "SELECT 1",
		"x = $1 AND y IN ($2, $3)":        "x = ? AND y IN (?, ?)",
		"x = $2 AND y = $1":               "x = ?2 AND y = ?1",
		"x = $1 AND y = $1":               "x = ?1 AND y = ?1",
		"$1$2$3$4$5$6$7$8$9$10, $11":      "??????????, ?",
		"$1 $2 $3 $4 $5 $6 $7 $8 $9 $100": "?1 ?2 ?3 ?4 ?5 ?6 ?7 ?8 ?9 ?100",
	} {
		require.Equal(t, want, rewrite(query))
	}
}
