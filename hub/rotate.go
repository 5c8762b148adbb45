package hub

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// rotate puts a new key in the place of the one that has signed the request as well. Reports up to the number
// that the request names may still come, signed by the former key.
func (h *Hub) rotate(ctx context.Context, r bundle.EnrollmentRequest, key ed25519.PublicKey) error {
	_, former, err := r.Keys()
	if err != nil {
		return badRequest("%v", err)
	}
	formerID, err1 := bundle.KeyID(former)
	kid, err2 := bundle.KeyID(key)
	if err1 != nil || err2 != nil || formerID == kid {
		return badRequest("the former key and the new one have to be two")
	}
	der, err := publicDER(key)
	if err != nil {
		return err
	}
	return h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		k, err := keysOf(ctx, db, r.Cluster.UID)
		if err != nil {
			return err
		}
		_, again := k.current[kid]
		_, replaced := k.former[formerID]
		switch {
		case again && replaced:
			return nil // the answer was lost
		case replaced:
			return refuse(hubapi.CodeKeyReplaced, "%s", replacedMessage)
		}
		if _, inForce := k.current[formerID]; !inForce {
			return refuse(hubapi.CodeUnknownKey, "the key that is to be replaced is not registered for cluster %s", r.Cluster.UID)
		}
		if err := checkFree(ctx, db, Cluster{UID: r.Cluster.UID}, kid); err != nil {
			return refuse(hubapi.CodeExists, "%v", err)
		}
		return switchKey(ctx, db, k.cluster, switching{formerID, kid, der, orderOf(bundle.Report{Agent: r.Agent}), millis(h.now())})
	})
}

// replacedMessage tells an agent whose key counts no more what it is.
const replacedMessage = "its key was replaced by a newer one of the same agent: this is a copy, or was restored from a backup"

// switching is a change of keys.
type switching struct {
	former, kid string
	der         []byte
	until       order
	now         int64
}

func switchKey(ctx context.Context, db *conn, cluster int64, s switching) error {
	if _, err := db.exec(ctx, `UPDATE cluster_key SET revoked_at = ?, until_incarnation = ?, until_seq = ? WHERE cluster_id = ? AND kid = ?`,
		s.now, s.until.incarnation, s.until.seq, cluster, s.former); err != nil {
		return err
	}
	if _, err := db.exec(ctx, `INSERT INTO cluster_key (cluster_id, kid, public_key) VALUES (?, ?, ?)`, cluster, s.kid, s.der); err != nil {
		return fmt.Errorf("keep key %s: %w", s.kid, err)
	}
	return forgetShared(ctx, db, cluster, s.until)
}
