package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// WhoAmI returns the access token that the hub knows the client by, and what it may do.
func (c Client) WhoAmI(ctx context.Context) (store.WhoAmI, error) {
	return get[store.WhoAmI](ctx, c, "v1/whoami", nil)
}

// AccessTokens returns all access tokens, newest first.
func (c Client) AccessTokens(ctx context.Context) ([]store.AccessToken, error) {
	answer, err := get[store.AccessTokenList](ctx, c, "v1/access", nil)
	return answer.Access, err
}

// CreateAccess makes an access token and returns its secret, which the hub does not keep, and what it keeps.
func (c Client) CreateAccess(ctx context.Context, t store.NewAccess) (string, store.AccessToken, error) {
	answer, err := write[store.CreatedAccess](ctx, c, http.MethodPost, "v1/access", nil, t)
	return answer.Token, answer.Access, err
}

// RevokeAccess makes the access token of this id or name useless, and returns it.
func (c Client) RevokeAccess(ctx context.Context, idOrName string) (store.AccessToken, error) {
	return write[store.AccessToken](ctx, c, http.MethodDelete, "v1/access/"+url.PathEscape(idOrName), nil, nil)
}

// AuditLog returns the entries of the audit log that a query chooses.
func (c Client) AuditLog(ctx context.Context, q store.AuditQuery) (store.AuditList, error) {
	return get[store.AuditList](ctx, c, "v1/audit", q.Values())
}

// Decide has the hub sign a decision for the name of the client's access token, and store it. The hub says who decided and when;
// the schema, By and IssuedAt of d do not count. It returns the signed envelope, which nobody has verified yet.
func (c Client) Decide(ctx context.Context, d bundle.Decision) (envelope []byte, err error) {
	answer, err := write[store.StoredDecision](ctx, c, http.MethodPost, "v1/decisions", nil, d)
	return answer.Envelope, err
}

// PutPromotion posts what a judge says of a platform's chain.
func (c Client) PutPromotion(ctx context.Context, p store.Promotion) (store.PostedPromotion, error) {
	return write[store.PostedPromotion](ctx, c, http.MethodPut, "v1/promotion", nil, p)
}

// Decisions returns the decisions about an environment of a platform that the hub has, newest first. Nobody has verified them.
func (c Client) Decisions(ctx context.Context, platform, environment string) ([]store.StoredDecision, error) {
	answer, err := get[store.DecisionList](ctx, c, "v1/decisions", url.Values{"platform": {platform}, "environment": {environment}})
	return answer.Decisions, err
}

// write sends a request that is not a GET, with a body unless that is nil. A redirect is not followed.
func write[T any](ctx context.Context, c Client, method, path string, values url.Values, body any) (answer T, err error) {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return answer, err
		}
		sent = bytes.NewReader(data)
	}
	client := c.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("it redirects; give the hub's own URL") }
	got, err := c.send(ctx, client, method, path, values, sent, hubapi.ContentType, "Content-Type", hubapi.ContentType)
	if err != nil {
		return answer, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(io.LimitReader(got.Body, maxAnswerBytes))
	if err != nil {
		return answer, c.wrap(reasonOf(err))
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, c.wrap(errors.New(store.Plain("the answer is not a hub's: " + err.Error())))
	}
	fleet.Plain(&answer)
	return answer, nil
}
