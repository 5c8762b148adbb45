package upkeep

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// evidence is envelopes in memory. cmd/wherry changes those of a real database.
type evidence struct {
	store.Evidence
	all         []store.StoredEnvelope
	keys        map[string][]store.SigningKey
	differences []string
}

func (e *evidence) Envelopes(_ context.Context, _ store.Position, _ string, each func(store.StoredEnvelope) error) error {
	for _, one := range e.all {
		if err := each(one); err != nil {
			return err
		}
	}
	return nil
}

func (e *evidence) SigningKeys(_ context.Context, uid string) ([]store.SigningKey, error) {
	if keys := e.keys[uid]; keys != nil {
		return keys, nil
	}
	return nil, store.ErrUnknownCluster
}

func (e *evidence) Compare(_ context.Context, each func(uid, assignment, difference string) error) error {
	for _, d := range e.differences {
		if err := each("uid-plant-7", "drone-main", d); err != nil {
			return err
		}
	}
	return nil
}

func (e *evidence) AuditHead(context.Context) (int64, digest.Digest, error) { return 0, "", nil }

func (e *evidence) AuditLog(context.Context, int64, int) ([]store.AuditEntry, error) { return nil, nil }

func (e *evidence) add(t *testing.T, uid string, seq int64, key ed25519.PrivateKey) *store.StoredEnvelope {
	t.Helper()
	at := store.Order{Incarnation: 1, Seq: seq}
	id := storetest.Identity("plant-7")
	id.UID = uid
	body, err := json.Marshal(storetest.Snapshot(id, at, storetest.Item("drone", bundle.Compliant)))
	require.NoError(t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, key)
	require.NoError(t, err)
	e.all = append(e.all, store.StoredEnvelope{UID: uid, Envelope: envelope, StoredReport: store.StoredReport{ID: bundle.ReportID(body), At: at}})
	return &e.all[len(e.all)-1]
}

func TestVerify(t *testing.T) {
	now := time.Now()
	newKey := func() (store.SigningKey, ed25519.PrivateKey) {
		public, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		id, err := bundle.KeyID(public)
		require.NoError(t, err)
		return store.SigningKey{ID: id, Key: public}, private
	}
	current, currentKey := newKey()
	former, formerKey := newKey()
	former.RevokedAt, former.Until = now, store.Order{Incarnation: 1, Seq: 5}
	revoked, revokedKey := newKey()
	revoked.RevokedAt = now
	_, strangersKey := newKey()
	const uid = "uid-plant-7"
	e := &evidence{keys: map[string][]store.SigningKey{uid: {current, former, revoked}}}
	for seq := int64(1); seq <= 3*batchSize; seq++ {
		e.add(t, uid, seq, currentKey)
	}
	e.add(t, uid, 5, formerKey)
	e.add(t, uid, 6, revokedKey)
	var seen []int64
	done, err := Verify(t.Context(), e, func(Finding) error { return errors.New("nothing is wrong") }, func(n int64) { seen = append(seen, n) })
	require.NoError(t, err)
	require.Equal(t, Verified{Good: 3 * batchSize, Previous: 1, Revoked: 1}, done)
	require.True(t, done.OK())
	require.IsIncreasing(t, seen)

	e.all = nil
	stranger := e.add(t, uid, 1, strangersKey).ID
	e.add(t, uid, 2, currentKey).ID = digest.FromString("another")
	e.add(t, uid, 3, currentKey).At.Seq = 4
	e.add(t, "uid-gone", 1, currentKey)
	e.add(t, uid, 5, currentKey).Envelope = []byte("{")
	e.differences = []string{"the present is failed, the history compliant"}
	var all []Finding
	done, err = Verify(t.Context(), e, func(f Finding) error { all = append(all, f); return nil }, nil)
	require.NoError(t, err)
	require.Equal(t, Verified{Bad: 5, Differences: 1}, done)
	require.False(t, done.OK())
	require.Equal(t, Finding{UID: uid, Report: string(stranger), Problem: "no key that was ever registered for the cluster has signed it"}, all[0])
	require.Contains(t, all[1].Problem, "another report")
	require.Contains(t, all[2].Problem, "stored as number 4 of incarnation 1")
	require.Equal(t, "uid-gone", all[3].UID)
	require.Contains(t, all[4].Problem, "cannot be read")
	require.Equal(t, "cluster uid-plant-7, assignment drone-main: the present is failed, the history compliant", all[5].String())

	full := errors.New("disk is full")
	_, err = Verify(t.Context(), e, func(Finding) error { return full }, nil)
	require.ErrorIs(t, err, full)
}
