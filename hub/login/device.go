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
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// maxIDToken bounds the body with an ID token, in bytes.
const maxIDToken = 64 << 10

// maxAhead is how far the provider's clock may be ahead.
const maxAhead = 5 * time.Minute

func noDevices() error {
	return refuse(hubapi.CodeNotFound, "commands do not sign in at this hub: its login file has no deviceClientID")
}

func (l *Login) describeDevice(w http.ResponseWriter, _ *http.Request) error {
	if l.config.DeviceClientID == "" {
		return noDevices()
	}
	hubapi.WriteJSON(w, http.StatusOK, store.DeviceLogin{Issuer: l.config.Issuer, ClientID: l.config.DeviceClientID, Scopes: append([]string{oidc.ScopeOpenID}, l.config.Scopes...)})
	return nil
}

// admitDevice begins the session of the person whom an ID token is about, which the provider has just given to a command.
func (l *Login) admitDevice(w http.ResponseWriter, r *http.Request) error {
	person, err := l.personOf(w, r)
	if err != nil {
		return err
	}
	return tell(w)(l.Open(r.Context(), person))
}

// renewDevice renews the session of a command. One whose person may not sign in any more is ended.
func (l *Login) renewDevice(w http.ResponseWriter, r *http.Request) error {
	person, err := l.personOf(w, r)
	if err != nil && person.Subject != "" { // the provider knows them
		if _, failed := l.End(w, r); failed != nil {
			return failed
		}
	}
	if err != nil {
		return err
	}
	return tell(w)(l.Renew(r, person))
}

func tell(w http.ResponseWriter) func(access.Token, store.AccessToken, error) error {
	return func(secret access.Token, kept store.AccessToken, err error) error {
		if err == nil {
			hubapi.WriteJSON(w, http.StatusOK, store.CreatedAccess{Token: secret.Reveal(), Access: kept})
		}
		return err
	}
}

// personOf returns the person whom the ID token in a request is about. With an error, it has the subject of one who may not sign in.
func (l *Login) personOf(w http.ResponseWriter, r *http.Request) (p access.Person, err error) {
	if l.config.DeviceClientID == "" {
		return p, noDevices()
	}
	var asked store.NewSession
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxIDToken)).Decode(&asked); err != nil || asked.IDToken == "" {
		return p, refuse(hubapi.CodeBadRequest, "expected an ID token")
	}
	done, err := l.slot()
	if err != nil {
		return p, err
	}
	defer done()
	of, err := l.discover()
	if err != nil {
		return p, l.away(err)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), l.config.client), 2*providerTime)
	defer cancel()
	who, err := l.verify(ctx, of, asked.IDToken, l.config.DeviceClientID, l.isFresh)
	if err != nil {
		return p, err
	}
	return l.admit(r.Context(), who)
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
