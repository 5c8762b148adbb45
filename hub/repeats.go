package hub

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// troubles are the errors of a database that come with each request until it is mended.
var troubles = []error{store.ErrUnavailable, store.ErrCorrupt, store.ErrClosed, syscall.ENOSPC, fs.ErrPermission, context.DeadlineExceeded}

const (
	// quietFor is the time without a trouble after which it is told as a new one.
	quietFor = time.Minute
	// remindEvery is how often a trouble that lasts is told again.
	remindEvery = time.Hour
)

// repeats is a log handler that tells a trouble of the database once for each message, and then once an hour with the number of
// records that were left out. All else is passed on.
type repeats struct {
	slog.Handler
	*repeated
}

type repeated struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[string]*repeat // by message and trouble, which are few
}

// repeat is a trouble that was told.
type repeat struct {
	last, told time.Time
	left       int
}

func newRepeats(to slog.Handler, now func() time.Time) slog.Handler {
	return repeats{to, &repeated{now: now, seen: map[string]*repeat{}}}
}

// Handle implements slog.Handler.
func (r repeats) Handle(ctx context.Context, record slog.Record) error {
	trouble := troubleOf(record)
	if trouble == nil {
		return r.Handler.Handle(ctx, record)
	}
	left, tell := r.tell(record.Message + ": " + trouble.Error())
	if !tell {
		return nil
	}
	if left > 0 {
		record = record.Clone()
		record.AddAttrs(slog.Int("more", left))
	}
	return r.Handler.Handle(ctx, record)
}

// tell reports whether to tell a trouble now, and how many times it was left out before.
func (r *repeated) tell(trouble string) (left int, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s, known := r.seen[trouble]
	if !known {
		s = &repeat{}
		r.seen[trouble] = s
	}
	lasts := known && now.Sub(s.last) < quietFor
	s.last = now
	if lasts && now.Sub(s.told) < remindEvery {
		s.left++
		return 0, false
	}
	left, s.left, s.told = s.left, 0, now
	return left, true
}

// troubleOf returns the trouble that a record is about; nil if there is none.
func troubleOf(record slog.Record) (trouble error) {
	record.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		for _, one := range troubles {
			if ok && errors.Is(err, one) {
				trouble = one
				return false
			}
		}
		return true
	})
	return trouble
}

// WithAttrs implements slog.Handler.
func (r repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return repeats{r.Handler.WithAttrs(attrs), &repeated{now: r.now, seen: map[string]*repeat{}}}
}

// WithGroup implements slog.Handler.
func (r repeats) WithGroup(name string) slog.Handler {
	return repeats{r.Handler.WithGroup(name), &repeated{now: r.now, seen: map[string]*repeat{}}}
}
