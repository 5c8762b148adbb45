package web

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// accessPage is the data of assets/access.html.
type accessPage struct {
	*frame
	Sessions, Tokens []accessRow
	MayEnd           bool
}

// accessRow is a session or an access token.
type accessRow struct {
	store.AccessToken
	Scope string
	// Over is why it is of no use any more; empty while it is.
	Over string
}

func (s *site) showAccess(r *http.Request, f *frame, _ Answers) (any, int, error) {
	f.only(fleet.Query{})
	f.template, f.Title, f.JSON, f.Command = "access.html", "Access", "/v1/access", "wherry hub access list"
	all, err := s.Actions.AccessTokens(r.Context())
	if err != nil {
		return nil, 0, err
	}
	who, _ := access.From(r.Context())
	page := &accessPage{frame: f, MayEnd: who.May(access.Administer)}
	for _, t := range all {
		row := accessRow{AccessToken: t, Scope: scopeText(t)}
		switch {
		case !t.RevokedAt.IsZero() && t.Subject != "":
			row.Over = "ended"
		case !t.RevokedAt.IsZero():
			row.Over = "revoked"
		case !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(f.Now): // of a session, until it is renewed
			row.Over = "expired"
		case t.Waits:
			row.Over = "waits"
		}
		if t.Subject != "" {
			page.Sessions = append(page.Sessions, row)
		} else {
			page.Tokens = append(page.Tokens, row)
		}
	}
	return page, http.StatusOK, nil
}

func scopeText(t store.AccessToken) string {
	return cmp.Or(strings.Join(scopeOf(t.AccessScope), ", "), "the whole fleet")
}

func (s *site) showEnd(r *http.Request, f *frame, _ Answers) (any, int, error) {
	all, err := s.Actions.AccessTokens(r.Context())
	if err != nil {
		return nil, 0, err
	}
	for _, t := range all {
		if t.ID != r.PathValue("id") {
			continue
		}
		page := &confirmPage{frame: f, Button: "Revoke", Back: accessPath, Lead: "You revoke an access token. Whoever has it is refused from the next request on."}
		if t.Subject != "" {
			page.Button, page.Lead = "End session", "You end the session of a person, who may sign in again."
			page.Facts = append(page.Facts, fact{"Signed in as", t.Subject, ""})
		}
		f.template, f.Title, f.Command = "confirm.html", page.Button+" of "+t.Name, "wherry hub access revoke "+t.ID
		f.Crumbs = []link{{Name: "Access", Link: accessPath}}
		page.Facts = append(page.Facts, fact{"Name", t.Name, t.ID}, fact{"Role", t.Role, ""}, fact{"Scope", scopeText(t), ""})
		return page, http.StatusOK, nil
	}
	return nil, 0, fmt.Errorf("%q: %w", store.Plain(store.Clip(r.PathValue("id"))), store.ErrUnknownAccess)
}

func (s *site) end(r *http.Request) (string, error) {
	_, err := s.Actions.RevokeAccess(r.Context(), r.PathValue("id"))
	return accessPath, err
}

// tokensPage is the data of assets/tokens.html.
type tokensPage struct {
	*frame
	Tokens []store.Token
	// New is a token that was just made, whose secret is shown once.
	New *store.CreatedToken
}

func (s *site) showTokens(r *http.Request, f *frame, _ Answers) (any, int, error) {
	f.only(fleet.Query{})
	f.template, f.Title, f.JSON, f.Command = "tokens.html", "Enrollment tokens", "/v1/tokens", "wherry hub tokens list"
	all, err := s.Actions.EnrollmentTokens(r.Context())
	return &tokensPage{frame: f, Tokens: all}, http.StatusOK, err
}

// defaultTokenTime is how long an enrollment token is good for which nobody says so.
const defaultTokenTime = 24 * time.Hour

// createToken makes the token that a form describes, and shows its secret.
func (s *site) createToken(r *http.Request, f *frame, from Answers) (any, int, error) {
	form, err := formOf(r)
	if err != nil {
		return nil, 0, err
	}
	wanted := store.TokenScope{Type: form.Get("type"), Environment: form.Get("environment"), Ring: form.Get("ring"), ExpiresAt: s.Now().Add(defaultTokenTime)}
	if text := form.Get("expires"); text != "" {
		life, err := duration.Parse(text)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		wanted.ExpiresAt = s.Now().Add(life)
	}
	if wanted.Uses, err = strconv.Atoi(cmp.Or(form.Get("uses"), "1")); err != nil {
		return nil, 0, fmt.Errorf("%w: uses %q is no number", store.ErrInvalid, store.Plain(store.Clip(form.Get("uses"))))
	}
	made, err := s.Actions.CreateToken(r.Context(), wanted)
	if err != nil {
		return nil, 0, err
	}
	page, status, err := s.showTokens(r, f, from)
	if shown, ok := page.(*tokensPage); ok {
		shown.New = &made
	}
	return page, status, err
}

func (s *site) showRevoke(r *http.Request, f *frame, _ Answers) (any, int, error) {
	id := r.PathValue("token")
	f.template, f.Title, f.Command = "confirm.html", "Revoke enrollment token "+id, "wherry hub tokens revoke "+quoted(id)
	f.Crumbs = []link{{Name: "Enrollment tokens", Link: tokensPath}}
	return &confirmPage{frame: f, Button: "Revoke", Back: tokensPath, Lead: "You revoke an enrollment token. Clusters that it has registered stay."}, http.StatusOK, nil
}

func (s *site) revoke(r *http.Request) (string, error) {
	_, err := s.Actions.RevokeToken(r.Context(), r.PathValue("token"))
	return tokensPath, err
}
