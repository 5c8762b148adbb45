package sqlite

import (
	"crypto/x509"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// writeVersion4 writes a database as version 4 did: a cluster whose drone failed once, and one that was retired.
func writeVersion4(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", dataSource(path, "journal_mode(WAL)"))
	require.NoError(t, err)
	for _, step := range []string{schema1, schema2, schema3, schema4} {
		_, err = db.Exec(step)
		require.NoError(t, err)
	}
	der, err := x509.MarshalPKIXPublicKey(fixedKey())
	require.NoError(t, err)
	kid, err := bundle.KeyID(fixedKey())
	require.NoError(t, err)
	ids := []any{string(digest.FromString("1")), string(digest.FromString("2")), string(digest.FromString("release")), kid, der}
	_, err = db.Exec(`
		INSERT INTO cluster (uid, name, platform, type, environment, ring, labels, expected, added_at, incarnation, seq, state, state_since, last_seen, agent_version, claims,
				desired_digest, desired_epoch, desired_sequence, desired_number, observed_digest, observed_epoch, observed_sequence, observed_number, expired)
			VALUES ('uid-plant-7', 'plant-7', 'shop', 'drone', 'dev', 'canary', '{"region":"east","gpu":"true"}', 3600000, 1000, 1, 2, 'compliant', 3000, 3000, 'v0.9',
				'{"uid":"uid-plant-7","name":"plant-7","platform":"shop","type":"drone","environment":"dev"}', ?3, 1, 7, 12, ?3, 1, 7, 12, 1);
		INSERT INTO cluster (uid, name, platform, type, environment, ring, labels, expected, added_at, removed_at, retired_at, retired_reason)
			VALUES ('uid-old', 'old', 'shop', 'drone', 'dev', '', 'null', 3600000, 1000, 5000, 5000, 'scrapped');
		INSERT INTO cluster_key (cluster_id, kid, public_key) VALUES (1, ?4, ?5);
		INSERT INTO deployment (cluster_id, assignment, workspace, workload, target, adapter, state, reason, message, since, version, config, content, revision, floating, listed)
			VALUES (1, 'drone-main', 'shop', 'drone', 'main', 'directory', 'compliant', '', 'well', 3000, '1.0.0', '', '', '', 0, 1),
				(1, 'radar-main', '', '', '', '', 'removed', 'NotListed', '', 3000, '', '', '', '', 0, 0);
		INSERT INTO report VALUES (?1, 1, 1, 1, 'snapshot', 2000, 2500, 'http', ?4, 0), (?2, 1, 1, 2, 'snapshot', 3000, 3000, 'media', ?4, 1);
		INSERT INTO transition (cluster_id, assignment, incarnation, seq, state, reason, version, config, content, revision, occurred_at, received_at, report_id) VALUES
			(1, '', 1, 1, 'failed', '', '', '', ?3, '', 2000, 2500, ?1), (1, '', 1, 2, 'compliant', '', '', '', ?3, '', 3000, 3000, ?2),
			(1, 'drone-main', 1, 1, 'failed', 'Crash', '1.0.0', '', '', '', 2000, 2500, ?1), (1, 'drone-main', 1, 2, 'compliant', '', '1.0.0', '', '', '', 3000, 3000, ?2),
			(1, 'radar-main', 1, 1, 'compliant', '', '1.0.0', '', '', '', 2000, 2500, ?1), (1, 'radar-main', 1, 2, 'removed', 'NotListed', '', '', '', '', 3000, 3000, ?2);
		PRAGMA user_version = 4`, ids...)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

func TestTheHistoryOfVersion4CanBeAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub.db")
	writeVersion4(t, path)
	d := open(t, path)

	at := func(ms int64, s store.Scope) (all []store.ClusterState) {
		require.NoError(t, d.ScanAt(t.Context(), time.UnixMilli(ms), s, func(c store.ClusterState) error {
			all = append(all, c)
			return nil
		}))
		return all
	}
	var now []store.ClusterState
	require.NoError(t, d.Scan(t.Context(), store.Scope{}, func(c store.ClusterState) error {
		now = append(now, c)
		return nil
	}))
	require.Len(t, now, 1)
	c := now[0]
	release := &bundle.ReportRelease{Digest: digest.FromString("release"), Epoch: 1, Sequence: 7, Number: 12}
	require.Equal(t, release, c.Desired)
	expired := *release
	expired.Expired = true
	require.Equal(t, &expired, c.Observed)
	require.Equal(t, "v0.9", c.AgentVersion)
	require.Equal(t, map[string]string{"region": "east", "gpu": "true"}, c.Labels)
	require.Equal(t, store.Proof{
		Report: digest.FromString("2"), At: store.Order{Incarnation: 1, Seq: 2}, OccurredAt: store.Moment(3000), ReceivedAt: store.Moment(3000), Via: store.ViaMedia,
	}, c.Proof)
	require.Len(t, c.Deployments, 1)
	require.Equal(t, "well", c.Deployments[0].Message)

	require.Empty(t, at(999, store.Scope{}))
	require.Len(t, at(1500, store.Scope{}), 2, "one was not retired yet")
	then := at(2999, store.Scope{UIDs: []string{"uid-plant-7"}})
	require.Equal(t, bundle.Failed, then[0].State)
	require.Equal(t, c.Labels, then[0].Labels)
	require.Equal(t, "canary", then[0].Ring)
	require.Len(t, then[0].Deployments, 2)
	require.Equal(t, "Crash", then[0].Deployments[0].Reason)
	require.Equal(t, store.Moment(2000), then[0].Deployments[0].Since)
	then = at(9000, store.Scope{})
	require.Len(t, then, 1)
	require.Equal(t, release.Digest, then[0].Observed.Digest)
	list, err := d.Transitions(t.Context(), store.TransitionFilter{Both: true})
	require.NoError(t, err)
	require.Len(t, list.Transitions, 6)
	owed, err := d.Owed(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Owed{{UID: "uid-plant-7", IDs: []digest.Digest{digest.FromString("2")}}}, owed)
	require.NoError(t, d.Compare(t.Context(), func(uid, assignment, difference string) error {
		return errors.New(uid + " " + assignment + ": " + difference)
	}))
}

func TestABackupIsACopyAsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "hub.db"))
	_, err := d.AddCluster(t.Context(), plant7())
	require.NoError(t, err)
	_, err = d.Ingest(t.Context(), batch(1, items(20)...))
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan error)
	begun := make(chan struct{}, 1)
	go func() { // reports come meanwhile
		var err error
		for seq := int64(2); err == nil; seq++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				_, err = d.Ingest(t.Context(), batch(seq, items(20)...))
			}
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		stopped <- err
	}()
	<-begun
	path := filepath.Join(dir, "copy.db")
	err = d.Backup(t.Context(), path)
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.ErrorIs(t, d.Backup(t.Context(), path), fs.ErrExist)
	left, err := filepath.Glob(filepath.Join(dir, ".copy*"))
	require.NoError(t, err)
	require.Empty(t, left)

	c := open(t, path)
	require.NoError(t, c.Check(t.Context()))
	require.GreaterOrEqual(t, count(t, c, "report"), 2)
	require.Equal(t, 21, count(t, c, "deployment"), "and the agent as a whole")
	require.NoError(t, c.Compare(t.Context(), func(uid, assignment, difference string) error {
		return errors.New(uid + " " + assignment + ": " + difference)
	}))
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
