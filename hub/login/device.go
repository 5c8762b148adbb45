package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// maxIDToken bounds the body with an ID token, in bytes.
const maxIDToken = 64 << 10

// maxAhead is how far the provider's clock may be ahead.
const maxAhead = 5 * time.Minute

func (l *Login) describeDevice(w http.ResponseWriter, _ *http.Request) error {
	if l.config.DeviceClientID == "" {
		return refuse(hubapi.CodeNotFound, "commands do not sign in at this hub: its login file has no deviceClientID")
	}
	hubapi.WriteJSON(w, http.StatusOK, store.DeviceLogin{Issuer: l.config.Issuer, ClientID: l.config.DeviceClientID, Scopes: append([]string{oidc.ScopeOpenID}, l.config.Scopes...)})
	return nil
}

// admitDevice begins the session of the person whom an ID token is about, which the provider has just given to a command.
func (l *Login) admitDevice(w http.ResponseWriter, r *http.Request) error {
	if l.config.DeviceClientID == "" {
		return l.describeDevice(w, r)
	}
	var asked store.NewSession
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxIDToken)).Decode(&asked); err != nil || asked.IDToken == "" {
		return refuse(hubapi.CodeBadRequest, "expected an ID token")
	}
	done, err := l.slot()
	if err != nil {
		return err
	}
	defer done()
	of, err := l.discover()
	if err != nil {
		return l.away(err)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), l.config.client), 2*providerTime)
	defer cancel()
	who, err := l.verify(ctx, of, asked.IDToken, l.config.DeviceClientID, l.isFresh)
	if err != nil {
		return err
	}
	person, err := l.admit(r.Context(), who)
	if err != nil {
		return err
	}
	secret, kept, err := l.Open(r.Context(), person)
	if err != nil {
		return err
	}
	hubapi.WriteJSON(w, http.StatusOK, store.CreatedAccess{Token: secret.Reveal(), Access: kept})
	return nil
}

// isFresh returns an error for a token that was not issued for a sign-in of now. Nothing else ties it to one: RFC 8628 has no nonce.
func (l *Login) isFresh(token *oidc.IDToken) error {
	if age := l.o.Now().Sub(token.IssuedAt); age > attemptTime || age < -maxAhead {
		return fmt.Errorf("it was issued at %s, which is not now", token.IssuedAt.UTC().Format(time.RFC3339))
	}
	if token.Nonce != "" {
		return errors.New("it is that of a sign-in in a browser")
	}
	return nil
}

func (l *Login) endDevice(w http.ResponseWriter, r *http.Request) error {
	ended, err := l.End(w, r)
	if err == nil {
		hubapi.WriteJSON(w, http.StatusOK, store.EndedSession{Ended: ended})
	}
	return err
}
