package access

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/hub/store"
)

// memory is a store.Access without a database, which counts and may fail.
type memory struct {
	mu     sync.Mutex
	tokens []store.AccessToken
	log    []store.AuditEntry
	asked  int
	err    error
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) AddAccess(_ context.Context, t store.AccessToken) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, have := range m.tokens {
		if have.ID == t.ID || t.Subject == "" && have.Name == t.Name && have.RevokedAt.IsZero() {
			return fmt.Errorf("access token %q: %w", t.Name, store.ErrExists)
		}
	}
	m.tokens = append(m.tokens, t)
	return m.err
}

func (m *memory) AccessToken(_ context.Context, id string) (store.AccessToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.err != nil {
		return store.AccessToken{}, m.err
	}
	for _, t := range m.tokens {
		if t.ID == id {
			return t, nil
		}
	}
	return store.AccessToken{}, store.ErrUnknownAccess
}

func (m *memory) AccessTokens(context.Context) ([]store.AccessToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tokens), m.err
}

func (m *memory) RevokeAccess(_ context.Context, idOrName string) (store.AccessToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range m.tokens {
		if t.ID == idOrName || t.Name == idOrName {
			m.tokens[i].RevokedAt = time.Unix(1, 0)
			return m.tokens[i], nil
		}
	}
	return store.AccessToken{}, store.ErrUnknownAccess
}

func (m *memory) RenewAccess(context.Context, store.AccessToken) error { return nil }

func (m *memory) UseAccess(_ context.Context, id string, at time.Time, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.tokens {
		if m.tokens[i].ID == id {
			m.tokens[i].UsedAt = at
		}
	}
	return nil
}

func (m *memory) Audit(_ context.Context, e store.AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, e)
	return nil
}

func (m *memory) AuditLog(context.Context, int64, int) ([]store.AuditEntry, error) { return m.log, nil }

func (m *memory) HoldTokens(context.Context) (int, error) { return 0, nil }

func (m *memory) AcceptTokens(context.Context) (int, error)               { return 0, nil }
func (m *memory) AuditHead(context.Context) (int64, digest.Digest, error) { return 0, "", nil }
func (m *memory) PinKey(context.Context, string) error                    { return nil }
func (m *memory) PinnedKey(context.Context) (string, error)               { return "", nil }
