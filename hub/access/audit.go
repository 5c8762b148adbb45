package access

import (
	"context"
	"fmt"

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
