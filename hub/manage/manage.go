// Package manage is the routes of a hub that change what is registered: clusters, enrollment tokens, access tokens; those of
// decisions about promotion; and the audit log of that.
//
// Begin with Manager, and put its Routes behind the guard of package access. Bodies and answers are JSON. The methods with a context do what
// a route does, for pages; the context has the identity. Each request acts
// within the scope of whoever sends it: what is outside of that is answered as what does not exist. Each change is in the
// audit log before it is answered, but for what judges post: that is no decision, and comes every few minutes. Who works on the hub's folder needs none of this.
package manage

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// Registry is what can be changed. Each change that it makes is in the audit log.
type Registry interface {
	store.Registry
	// Registered returns the registered cluster of this uid. The error wraps store.ErrUnknownCluster.
	Registered(ctx context.Context, uid string) (store.Registration, error)
	// AllRegistrations returns the clusters that are registered, or were retired, by name.
	AllRegistrations(ctx context.Context) ([]store.Registration, error)
	// ParseRequest and AnswerRequest are about a request for enrollment that a person has brought; see package hub.
	ParseRequest(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, store.Cluster, error)
	AnswerRequest(ctx context.Context, uid string, request digest.Digest) ([]byte, error)
	// CreateToken makes an enrollment token.
	CreateToken(ctx context.Context, s store.TokenScope) (bundle.EnrollToken, error)
}

// Manager answers the requests.
type Manager struct {
	Registry Registry
	Tokens   access.Tokens
	// ParseKey reads the public half of an agent's report key in PEM. The error wraps store.ErrInvalid.
	ParseKey func(pem []byte) (ed25519.PublicKey, error)
	// Decisions are what people have decided about promotion. Seal signs one with the hub's key.
	Decisions store.Decisions
	// Promotions are what judges have posted.
	Promotions store.Promotions
	Seal       func(bundle.Decision) ([]byte, error)
	Now        func() time.Time
	// Fail answers a request for which the hub itself has failed.
	Fail func(http.ResponseWriter, *http.Request, error)
}

// Bounds of requests and answers.
const (
	maxBody     = 64 << 10
	maxBodyTime = 30 * time.Second
)

// Routes returns the routes, with what each needs.
func (m Manager) Routes() []access.Route {
	route := func(pattern string, p access.Permission, answer func(*http.Request) (any, error)) access.Route {
		most := int64(maxBody)
		if pattern == promotionPattern {
			most = store.MaxPromotion
		}
		return access.Route{Pattern: pattern, Permission: p, Handler: m.handler(answer, most)}
	}
	return []access.Route{
		route("GET /v1/whoami", access.Login, m.whoAmI),
		route("GET /v1/registrations", access.Operate, m.listRegistrations),
		route("POST /v1/clusters", access.Operate, m.addCluster),
		route("DELETE /v1/clusters/{cluster}", access.Operate, m.removeCluster),
		route("POST /v1/clusters/{cluster}/retire", access.Operate, m.retireCluster),
		route("POST /v1/clusters/{cluster}/unshare", access.Operate, func(r *http.Request) (any, error) {
			return m.UnshareCluster(r.Context(), r.PathValue("cluster"))
		}),
		route("GET /v1/tokens", access.Operate, func(r *http.Request) (any, error) {
			all, err := m.EnrollmentTokens(r.Context())
			return store.TokenList{Tokens: all}, err
		}),
		route("POST /v1/tokens", access.Operate, m.createToken),
		route("DELETE /v1/tokens/{token}", access.Operate, func(r *http.Request) (any, error) {
			return m.RevokeToken(r.Context(), r.PathValue("token"))
		}),
		route("GET /v1/access", access.Audit, func(r *http.Request) (any, error) {
			all, err := m.AccessTokens(r.Context())
			return store.AccessTokenList{Access: all}, err
		}),
		route("POST /v1/access", access.Administer, m.createAccess),
		route("DELETE /v1/access/{token}", access.Administer, func(r *http.Request) (any, error) {
			return m.RevokeAccess(r.Context(), r.PathValue("token"))
		}),
		route("GET /v1/decisions", access.Read, m.listDecisions),
		route("POST /v1/decisions", access.Approve, m.decide),
		route(promotionPattern, access.Publish, m.putPromotion),
		route("GET /v1/audit", access.Audit, m.audit),
	}
}

func (m Manager) handler(answer func(*http.Request) (any, error), most int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxBodyTime)) // not supported in tests without a connection
		r.Body = http.MaxBytesReader(w, r.Body, most)
		value, err := answer(r)
		if err == nil {
			hubapi.WriteJSON(w, http.StatusOK, value)
			return
		}
		if refused := Refusal(err); refused != nil {
			refused.Write(w)
			return
		}
		m.Fail(w, r, err)
	})
}

// Refusal returns the answer for an error of a Manager that is not the hub's own; nil for others.
func Refusal(err error) *hubapi.Error {
	var refused *hubapi.Error
	var large *http.MaxBytesError
	answer := func(code hubapi.Code, kind string) *hubapi.Error {
		return &hubapi.Error{Code: code, Message: store.Plain(store.Clip(err.Error())), Kind: kind}
	}
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &large):
		return &hubapi.Error{Code: hubapi.CodeTooLarge, Message: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	case errors.Is(err, store.ErrUnknownCluster):
		return answer(hubapi.CodeNotFound, hubapi.KindCluster)
	case errors.Is(err, store.ErrUnknownToken), errors.Is(err, store.ErrUnknownAccess):
		return answer(hubapi.CodeNotFound, "token")
	case errors.Is(err, store.ErrInvalid):
		return answer(hubapi.CodeBadRequest, "")
	case errors.Is(err, store.ErrExists):
		return answer(hubapi.CodeExists, "")
	}
	return nil
}

// bodyOf decodes the request's body. An empty one is allowed if there is nothing that has to be in it.
func bodyOf(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("something follows the first value")
	}
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, new(*http.MaxBytesError)) {
		return err
	}
	return fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(err.Error())))
}

// required is bodyOf for a body that may not be empty.
func required(r *http.Request, into any) error {
	err := bodyOf(r, into)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the request has no body", store.ErrInvalid)
	}
	return err
}

func (m Manager) whoAmI(r *http.Request) (any, error) {
	who, _ := access.From(r.Context())
	me := store.WhoAmI{AccessToken: store.AccessToken{ID: who.ID, Name: who.Name, Role: string(who.Role), AccessScope: who.AccessScope, ExpiresAt: who.ExpiresAt}, May: []string{}}
	for _, p := range access.Permissions() {
		if p != access.Open && who.May(p) {
			me.May = append(me.May, string(p))
		}
	}
	return me, nil
}

// AccessTokens returns the access tokens and the sessions, newest first.
func (m Manager) AccessTokens(ctx context.Context) ([]store.AccessToken, error) {
	all, err := m.Tokens.Store.AccessTokens(ctx)
	if all == nil {
		all = []store.AccessToken{}
	}
	return all, err
}

func (m Manager) createAccess(r *http.Request) (any, error) {
	var wanted store.NewAccess
	if err := required(r, &wanted); err != nil {
		return nil, err
	}
	if wanted.ExpiresAt.IsZero() {
		wanted.ExpiresAt = m.Now().Add(access.DefaultTokenTime)
	}
	secret, kept, err := m.Tokens.Create(r.Context(), access.Request{Name: wanted.Name, Role: access.Role(wanted.Role), AccessScope: wanted.AccessScope, ExpiresAt: wanted.ExpiresAt})
	return store.CreatedAccess{Token: secret.Reveal(), Access: kept}, err
}

// RevokeAccess revokes an access token, by its id or name, or ends a session, by its id.
func (m Manager) RevokeAccess(ctx context.Context, idOrName string) (store.AccessToken, error) {
	return m.Tokens.Revoke(ctx, idOrName)
}

// AuditLog returns the entries of the audit log that a query chooses.
func (m Manager) AuditLog(ctx context.Context, q store.AuditQuery) (store.AuditList, error) {
	return m.Tokens.AuditLog(ctx, q)
}

func (m Manager) audit(r *http.Request) (any, error) {
	values := r.URL.Query()
	for name, all := range values {
		if !slices.Contains(store.AuditParameters(), name) || len(all) > 1 {
			return nil, fmt.Errorf("%w: parameter %q is unknown or repeated", store.ErrInvalid, store.Plain(store.Clip(name)))
		}
	}
	q, err := store.ParseAuditQuery(values, m.Now())
	if err != nil {
		return nil, err
	}
	return m.AuditLog(r.Context(), q)
}
