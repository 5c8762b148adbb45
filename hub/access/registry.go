package access

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Registry is a store.Registry whose changes are in the audit log, by the identity of their context.
type Registry struct {
	store.Registry
	Log store.Access
	Now func() time.Time
}

func (r Registry) note(ctx context.Context, action string, c store.Identity, reason, detail string) error {
	return Note(ctx, r.Log, store.AuditEntry{
		At: r.Now(), Action: action, Object: c.Name + " (" + c.UID + ")", Reason: reason, Detail: detail, Environment: c.Environment,
	})
}

// AddCluster implements store.Registry.
func (r Registry) AddCluster(ctx context.Context, c store.Cluster) (bool, error) {
	changed, err := r.Registry.AddCluster(ctx, c)
	if err == nil && changed {
		err = r.note(ctx, "register cluster", c.Identity, "", "type "+c.Type)
	}
	return changed, err
}

// ReplaceCluster implements store.Registry.
func (r Registry) ReplaceCluster(ctx context.Context, c store.Cluster) (bool, error) {
	changed, err := r.Registry.ReplaceCluster(ctx, c)
	if err == nil && changed {
		err = r.note(ctx, "replace cluster", c.Identity, "", "type "+c.Type)
	}
	return changed, err
}

// RemoveCluster implements store.Registry.
func (r Registry) RemoveCluster(ctx context.Context, nameOrUID string) (store.Registration, error) {
	removed, err := r.Registry.RemoveCluster(ctx, nameOrUID)
	if err == nil {
		err = r.note(ctx, "remove cluster", removed.Identity, "", "")
	}
	return removed, err
}

// RetireCluster implements store.Registry.
func (r Registry) RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error) {
	was, err := r.Registry.RetireCluster(ctx, nameOrUID, reason)
	if err == nil && was.RetiredAt == nil {
		err = r.note(ctx, "retire cluster", was.Identity, reason, "")
	}
	return was, err
}

// Unshare implements store.Registry.
func (r Registry) Unshare(ctx context.Context, nameOrUID string) (store.Registration, error) {
	was, err := r.Registry.Unshare(ctx, nameOrUID)
	if err == nil && (was.SharedSince != nil || was.Conflicts > 0) {
		err = r.note(ctx, "unshare cluster", was.Identity, "", was.SharedHow)
	}
	return was, err
}

// RevokeToken implements store.Registry.
func (r Registry) RevokeToken(ctx context.Context, id string) error {
	err := r.Registry.RevokeToken(ctx, id)
	if err == nil {
		err = Note(ctx, r.Log, store.AuditEntry{At: r.Now(), Action: "revoke enrollment token", Object: id})
	}
	return err
}
