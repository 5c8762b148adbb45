package access

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Note appends to the audit log what the context's identity has done. It is called after the change, and before the caller is
// told of it: with an error, the change has happened and is not in the log.
func Note(ctx context.Context, log store.Access, e store.AuditEntry) error {
	e.Actor = ActorOf(ctx)
	return note(ctx, log, e)
}

// note appends an entry with plain, bounded texts.
func note(ctx context.Context, log store.Access, e store.AuditEntry) error {
	for _, s := range []*string{&e.Actor, &e.Action, &e.Object, &e.Reason, &e.Detail, &e.Environment, &e.Workspace} {
		*s = store.Plain(store.Clip(*s))
	}
	e.At = e.At.UTC()
	if err := log.Audit(context.WithoutCancel(ctx), e); err != nil {
		return fmt.Errorf("%s %s is done, and not in the audit log: %w", e.Action, e.Object, err)
	}
	return nil
}

// auditPages bounds how much of the audit log one query reads, in pages of store.MaxAuditRows.
const auditPages = 10

// auditSkew is how far the times of entries may be out of order: hubs of one database have clocks of their own.
const auditSkew = 24 * time.Hour

// AuditLog returns the entries of the audit log that a query chooses.
func (t Tokens) AuditLog(ctx context.Context, q store.AuditQuery) (store.AuditList, error) {
	list := store.AuditList{Entries: []store.AuditEntry{}}
	if q.Before == 0 {
		head, _, err := t.Store.AuditHead(ctx)
		if err != nil {
			return list, err
		}
		q.Before = head + 1
	}
	list.Next = q.Before
	for range auditPages {
		entries, err := t.Store.AuditLog(ctx, max(0, list.Next-1-store.MaxAuditRows), store.MaxAuditRows)
		if err != nil {
			return list, err
		}
		if len(entries) == 0 || entries[len(entries)-1].At.Before(q.Since.Add(-auditSkew)) {
			list.Next = 0
			break
		}
		if q.Choose(entries, &list) || list.Next <= 1 {
			break
		}
	}
	if list.Next <= 1 {
		list.Next = 0
	}
	return list, nil
}
