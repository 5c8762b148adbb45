package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// Register registers a cluster, and reports whether that changed anything; see store.Registry, AddCluster and, if replace is true,
// ReplaceCluster. With the envelope of an agent's request, which takes the place of the key, it returns the hub's signed answer.
func (c Client) Register(ctx context.Context, wanted store.Cluster, request []byte, replace bool) (changed bool, answer []byte, err error) {
	body := store.NewCluster{
		Identity: wanted.Identity, Request: request, Reporting: wanted.Reporting, ExpectedSeconds: int64(wanted.ExpectedInterval / time.Second), Replace: replace,
	}
	if request == nil && wanted.Key != nil {
		pem, err := bundle.MarshalPublicKey(wanted.Key)
		if err != nil {
			return false, nil, err
		}
		body.Key = string(pem)
	}
	added, err := write[store.AddedCluster](ctx, c, http.MethodPost, "v1/clusters", nil, body)
	return added.Changed, added.Answer, withKind(err, hubapi.CodeExists, store.ErrExists)
}

// AllRegistrations returns the clusters in the scope of the token that are registered, or were retired, by name.
func (c Client) AllRegistrations(ctx context.Context) ([]store.Registration, error) {
	answer, err := get[store.RegistrationList](ctx, c, "v1/registrations", nil)
	for i := range answer.Clusters {
		answer.Clusters[i].ExpectedInterval = time.Duration(answer.Clusters[i].ExpectedSeconds) * time.Second
	}
	return answer.Clusters, err
}

// RemoveCluster is that of store.Registry.
func (c Client) RemoveCluster(ctx context.Context, nameOrUID string) (store.Registration, error) {
	return write[store.Registration](ctx, c, http.MethodDelete, "v1/clusters/"+url.PathEscape(nameOrUID), nil, nil)
}

// RetireCluster is that of store.Registry.
func (c Client) RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error) {
	return write[store.Registration](ctx, c, http.MethodPost, "v1/clusters/"+url.PathEscape(nameOrUID)+"/retire", nil, map[string]string{"reason": reason})
}

// Unshare is that of store.Registry.
func (c Client) Unshare(ctx context.Context, nameOrUID string) (store.Registration, error) {
	return write[store.Registration](ctx, c, http.MethodPost, "v1/clusters/"+url.PathEscape(nameOrUID)+"/unshare", nil, nil)
}

// Tokens returns the enrollment tokens in the scope of the client's, newest first.
func (c Client) Tokens(ctx context.Context) ([]store.Token, error) {
	answer, err := get[store.TokenList](ctx, c, "v1/tokens", nil)
	return answer.Tokens, err
}

// CreateToken makes an enrollment token, whose secret the hub does not keep.
func (c Client) CreateToken(ctx context.Context, s store.TokenScope) (bundle.EnrollToken, error) {
	answer, err := write[store.CreatedToken](ctx, c, http.MethodPost, "v1/tokens", nil, s)
	if err != nil {
		return bundle.EnrollToken{}, err
	}
	token, err := bundle.ParseEnrollToken(answer.Token)
	if err != nil {
		err = c.wrap(fmt.Errorf("the answer has no token: %w", err))
	}
	return token, err
}

// RevokeToken makes an enrollment token useless. The error wraps store.ErrUnknownToken.
func (c Client) RevokeToken(ctx context.Context, id string) error {
	_, err := write[store.CreatedToken](ctx, c, http.MethodDelete, "v1/tokens/"+url.PathEscape(id), nil, nil)
	return withKind(err, hubapi.CodeNotFound, store.ErrUnknownToken)
}

// Enroll has the hub do what the request in an envelope asks for, and returns its signed answer.
func (c Client) Enroll(ctx context.Context, envelope []byte) ([]byte, error) {
	answer, err := write[hubapi.Enrolled](ctx, c, http.MethodPost, hubapi.EnrollPath, nil, json.RawMessage(envelope))
	return answer.Enrollment, err
}

// withKind returns err, which also is kind if it is an error of the hub with that code.
func withKind(err error, code hubapi.Code, kind error) error {
	var refused *hubapi.Error
	if !errors.As(err, &refused) || refused.Code != code {
		return err
	}
	return &answered{refused: refused, kind: kind}
}
