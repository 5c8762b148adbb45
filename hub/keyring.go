package hub

import (
	"context"
	"crypto"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// keyring holds the keys of one cluster by id.
type keyring struct {
	cluster int64 // the row
	// current keys are in force; former ones speak for reports up to an order.
	current map[string]crypto.PublicKey
	former  map[string]formerKey
}

type formerKey struct {
	key   crypto.PublicKey
	until order
}

// retiredError says that a cluster has been retired.
type retiredError struct {
	uid, reason string
	at          time.Time
}

func (e *retiredError) Error() string {
	s := fmt.Sprintf("cluster %q was retired on %s", e.uid, e.at.Format(time.DateOnly))
	if e.reason != "" {
		s += ": " + e.reason
	}
	return s
}

func (e *retiredError) Is(target error) bool { return target == ErrRetired }

// ErrRetired says that a cluster was retired, and its key with it.
var ErrRetired = errors.New("retired")

// keyring reads the keys that may sign for uid. The error wraps ErrUnknownCluster, or ErrRetired.
func (h *Hub) keyring(ctx context.Context, uid string) (keyring, error) {
	k, err := keysOf(ctx, h.read, uid)
	return k, classify(err)
}

func keysOf(ctx context.Context, db querier, uid string) (keyring, error) {
	k := keyring{current: map[string]crypto.PublicKey{}, former: map[string]formerKey{}}
	rows, err := db.QueryContext(ctx, `SELECT c.id, c.removed_at, c.retired_at, c.retired_reason, k.kid, k.public_key, k.revoked_at, k.until_incarnation, k.until_seq
		FROM cluster c LEFT JOIN cluster_key k ON k.cluster_id = c.id AND (k.revoked_at IS NULL OR k.until_seq IS NOT NULL)
		WHERE c.uid = ?`, uid)
	if err != nil {
		return k, err
	}
	defer rows.Close()
	for rows.Next() {
		var removed, retired, revoked, incarnation, seq sql.NullInt64
		var reason string
		var kid *string
		var der []byte
		if err := rows.Scan(&k.cluster, &removed, &retired, &reason, &kid, &der, &revoked, &incarnation, &seq); err != nil {
			return k, err
		}
		switch {
		case retired.Valid:
			return k, &retiredError{uid, reason, moment(retired.Int64)}
		case removed.Valid:
			return k, fmt.Errorf("cluster %q: %w", uid, ErrUnknownCluster)
		case kid == nil:
			continue
		}
		key, err := bundle.ParsePublicKey(der)
		if err != nil {
			return k, fmt.Errorf("key %s: %w: %v", *kid, ErrCorrupt, err)
		}
		if revoked.Valid {
			k.former[*kid] = formerKey{key, order{incarnation.Int64, seq.Int64}}
		} else {
			k.current[*kid] = key
		}
	}
	if err := rows.Err(); err != nil {
		return k, err
	}
	if k.cluster == 0 {
		return k, fmt.Errorf("cluster %q: %w", uid, ErrUnknownCluster)
	}
	return k, nil
}

// verify returns the body of an envelope that a key of the ring has signed, and that key's id. Former is set
// where it is one that speaks only for reports up to an order.
func (k keyring) verify(u unopened) (body []byte, kid string, until *order, refused *hubapi.Rejection) {
	claimed := func(id string) bool { return slices.Contains(u.keyIDs, id) }
	var current []crypto.PublicKey
	named := false
	for id, key := range k.current {
		current = append(current, key)
		named = named || claimed(id)
	}
	body, kid, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, u.envelope, current...)
	if err == nil {
		return body, kid, nil, nil
	}
	if !errors.Is(err, bundle.ErrUntrusted) {
		return nil, "", nil, u.reject(hubapi.CodeBadReport, "%v", err)
	}
	for id, f := range k.former {
		if !claimed(id) {
			continue
		}
		named = true
		if body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, u.envelope, f.key); err == nil {
			return body, id, &f.until, nil
		}
	}
	if named {
		return nil, "", nil, u.reject(hubapi.CodeBadSignature, "its signature is not that of the key it names")
	}
	return nil, "", nil, u.reject(hubapi.CodeUnknownKey, "no key registered for cluster %s has signed it", u.cluster)
}
