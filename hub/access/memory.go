package access

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// MaxRemembered is how long after the database was read last an access token is checked from memory.
const MaxRemembered = 24 * time.Hour

const (
	// rememberEvery is how often all tokens are read into memory.
	rememberEvery = time.Minute
	// retryEvery is the pause between two questions to a database that is away.
	retryEvery = time.Second
)

// Memory is a store.Access that knows access tokens from memory while the database is away, for MaxRemembered. Such a token reads
// what the hub has in memory, which is as old; a Guard lets it change nothing. As soon as the database answers, it counts alone.
type Memory struct {
	store.Access
	// Now is nil for time.Now. Patience bounds one question to the database; zero means five seconds.
	Now      func() time.Time
	Patience time.Duration

	mu                sync.Mutex
	tokens            map[string]store.AccessToken
	read, tried, gone time.Time // gone is zero while the database answers
}

// Run reads all tokens into memory every minute until ctx ends, and returns nil then.
func (m *Memory) Run(ctx context.Context) error {
	again := time.NewTicker(rememberEvery)
	defer again.Stop()
	for {
		if all, err := m.Access.AccessTokens(ctx); err == nil {
			known := make(map[string]store.AccessToken, len(all))
			for _, t := range all {
				known[t.ID] = t
			}
			m.answered(func() { m.tokens = known })
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// AccessToken implements store.Access.
func (m *Memory) AccessToken(ctx context.Context, id string) (store.AccessToken, error) {
	if !m.asks() {
		return m.remembered(id, store.ErrUnavailable)
	}
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(m.Patience, 5*time.Second))
	defer cancel()
	kept, err := m.Access.AccessToken(bounded, id)
	switch {
	case err == nil:
		m.answered(func() { m.tokens[id] = kept })
	case errors.Is(err, store.ErrUnknownAccess):
		m.answered(func() { delete(m.tokens, id) })
	case ctx.Err() == nil && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)):
		m.mu.Lock()
		m.gone = m.now()
		m.mu.Unlock()
		return m.remembered(id, err)
	}
	return kept, err
}

// UseAccess implements store.Access. While the database is away, a use is noted with a later one.
func (m *Memory) UseAccess(ctx context.Context, id string, at time.Time, every time.Duration) error {
	if m.Away() {
		return nil
	}
	return m.Access.UseAccess(ctx, id, at, every)
}

// Away reports whether the database did not answer last.
func (m *Memory) Away() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.gone.IsZero()
}

// asks reports whether to ask the database: one of those who come while it is away waits for it, once in retryEvery.
func (m *Memory) asks() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if !m.gone.IsZero() && now.Sub(m.tried) < retryEvery {
		return false
	}
	m.tried = now
	return true
}

func (m *Memory) answered(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tokens == nil {
		m.tokens = map[string]store.AccessToken{}
	}
	change()
	m.read, m.gone = m.now(), time.Time{}
}

// remembered returns the token from memory, or the error if that does not have it.
func (m *Memory) remembered(id string, err error) (store.AccessToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[id]
	if !ok || m.now().Sub(m.read) > MaxRemembered {
		return store.AccessToken{}, err
	}
	return t, nil
}

func (m *Memory) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}
