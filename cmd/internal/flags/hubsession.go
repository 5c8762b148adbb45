package flags

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/client"
)

const (
	// renewBefore is how long before its end a session is renewed, renewAgain the pause after that has failed.
	renewBefore = 10 * time.Minute
	renewAgain  = time.Minute
	// lockTime bounds the time that a command waits for another one that renews a session.
	lockTime, lockPoll = 30 * time.Second, 100 * time.Millisecond
	// renewTime bounds the time that the provider and the hub have for a renewal.
	renewTime = 30 * time.Second
)

// renewing sends requests with the token of a session, which it renews before it ends.
type renewing struct {
	next http.RoundTripper
	hub  client.Client // asks without renewing

	mu    sync.Mutex
	login HubLogin
	tried time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *renewing) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := s.token(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return s.next.RoundTrip(r)
}

// token returns the token of the session, renewed if it ends soon.
func (s *renewing) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.login.Expires.IsZero() { // an access token that was stored meanwhile
		return s.login.Token, nil
	}
	now := time.Now()
	ended := !now.Before(s.login.Expires)
	if now.Before(s.login.Expires.Add(-renewBefore)) || !ended && now.Sub(s.tried) < renewAgain {
		return s.login.Token, nil
	}
	s.tried = now
	err := s.renew(ctx)
	var refused *hubapi.Error
	denied := errors.As(err, &refused) && (refused.Code == hubapi.CodeForbidden || refused.Code == hubapi.CodeUnauthenticated)
	if err == nil || !ended && !denied {
		return s.login.Token, nil
	}
	code := cli.Denied
	if errors.Is(err, client.ErrProvider) {
		code = cli.Failed
	}
	return "", cli.Fail(code, fmt.Errorf("your session has to be renewed: %w", err), "sign in again: wherry login hub "+s.hub.URL)
}

// renew renews the session and stores it, unless another command has done so meanwhile. A provider may take a refresh token only once.
func (s *renewing) renew(ctx context.Context) error {
	if s.login.Renewal.Refresh == "" {
		return client.ErrSignInAgain
	}
	all, unlock, err := lockHubLogins(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	key := hubKey(s.hub.URL)
	stored := all.Hubs[key]
	if stored.Token == "" { // somebody has signed out meanwhile
		return client.ErrSignInAgain
	}
	if stored.Token != s.login.Token || stored.Renewal.Refresh != s.login.Renewal.Refresh {
		s.login = stored
		if stored.Expires.IsZero() || time.Now().Before(stored.Expires) {
			return nil
		}
	}
	// An interrupted command stores what the provider has given it all the same: the refresh token before it may be of no use any more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
	defer cancel()
	from := s.hub
	from.Token = s.login.Token
	session, err := from.Renew(ctx, s.login.Renewal)
	switch {
	case err == nil:
		s.login = SessionLogin(session)
	case session.Renewal.Refresh != "": // the provider has renewed it, and the hub has not
		s.login.Renewal = session.Renewal
	default:
		return err
	}
	all.Hubs[key] = s.login
	return errors.Join(err, all.write())
}

// lockHubLogins reads the logins when no other command changes them, which unlock lets it do again.
func lockHubLogins(ctx context.Context) (all hubLogins, unlock func(), err error) {
	file, err := hubLoginsFile()
	if err == nil {
		unlock, err = lock(ctx, filepath.Dir(file))
	}
	if err != nil {
		return all, nil, err
	}
	if all, err = readHubLogins(); err != nil {
		unlock()
	}
	return all, unlock, err
}

// lock waits until no other command has the lock of a folder, which it makes if it is missing.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	err = os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "hub-tokens.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	unlock = func() { _ = f.Close() }
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		if ours, err := diskfile.TryLock(f); ours || err != nil {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("another command changes the logins: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
