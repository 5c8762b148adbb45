package manage

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// maxExpectedSeconds is ten years.
const maxExpectedSeconds = 10 * 366 * 24 * 3600

func (m Manager) addCluster(r *http.Request) (any, error) {
	var wanted store.NewCluster
	if err := required(r, &wanted); err != nil {
		return nil, err
	}
	if wanted.ExpectedSeconds < 0 || wanted.ExpectedSeconds > maxExpectedSeconds {
		return nil, fmt.Errorf("%w: expectedSeconds %d", store.ErrInvalid, wanted.ExpectedSeconds)
	}
	key, request, err := m.keyOf(wanted)
	if err != nil {
		return nil, err
	}
	c := store.Cluster{Identity: wanted.Identity, Key: key, Reporting: wanted.Reporting, ExpectedInterval: time.Duration(wanted.ExpectedSeconds) * time.Second}
	ctx := r.Context()
	scope := access.ScopeOf(ctx)
	if !scope.HasCluster(c.Environment, c.Labels) {
		return nil, fmt.Errorf("%w: a cluster of environment %q with these labels is outside the token's scope", store.ErrInvalid, store.Clip(c.Environment))
	}
	if err := m.free(ctx, scope, c.UID); err != nil {
		return nil, err
	}
	add := m.Registry.AddCluster
	if wanted.Replace {
		add = m.Registry.ReplaceCluster
	}
	changed, err := add(ctx, c)
	if errors.Is(err, store.ErrExists) && !scope.Whole() {
		return nil, taken()
	}
	if err != nil {
		return nil, err
	}
	done := store.AddedCluster{Changed: changed}
	if done.Cluster, err = m.Registry.Registered(ctx, c.UID); err == nil && request != "" {
		done.Answer, err = m.Registry.AnswerRequest(ctx, c.UID, request)
	}
	return done, err
}

// keyOf returns the key of a cluster that is to be registered, and the id of the request that proves it, if there is one.
func (m Manager) keyOf(wanted store.NewCluster) (key ed25519.PublicKey, request digest.Digest, err error) {
	switch {
	case len(wanted.Request) > 0 && (wanted.Key != "" || wanted.Reporting != ""):
		return nil, "", fmt.Errorf("%w: a request has the key", store.ErrInvalid)
	case len(wanted.Request) > 0:
		r, id, asks, err := m.Registry.ParseRequest(wanted.Request)
		if err == nil && (asks.UID != wanted.UID || r.Former != "") {
			err = fmt.Errorf("%w: the request is for another cluster or another key", store.ErrInvalid)
		}
		return asks.Key, id, err
	case wanted.Reporting == "" || wanted.Key != "":
		key, err = m.ParseKey([]byte(wanted.Key))
	}
	return key, "", err
}

// listRegistrations returns the clusters in the scope that are registered or were retired, by name.
func (m Manager) listRegistrations(r *http.Request) (any, error) {
	all, err := m.Registry.AllRegistrations(r.Context())
	scope := access.ScopeOf(r.Context())
	list := store.RegistrationList{Clusters: []store.Registration{}}
	for _, c := range all {
		if scope.HasCluster(c.Environment, c.Labels) {
			list.Clusters = append(list.Clusters, c)
		}
	}
	return list, err
}

// taken says that a registration is in the way, and nothing of it: it may be outside the scope.
func taken() error {
	return fmt.Errorf("uid, name or key: %w for another cluster, or with other values", store.ErrExists)
}

// free returns an error if a cluster of this uid is, or was, registered outside the scope.
func (m Manager) free(ctx context.Context, scope access.Scope, uid string) error {
	if scope.Whole() {
		return nil
	}
	have, err := m.Registry.Registered(ctx, uid)
	if err == nil && !scope.HasCluster(have.Environment, have.Labels) {
		return taken()
	}
	if err != nil && !errors.Is(err, store.ErrUnknownCluster) {
		return err
	}
	retired, err := m.Registry.RetiredClusters(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(retired, func(r store.Registration) bool {
		return r.UID == uid && !scope.HasCluster(r.Environment, r.Labels)
	}) {
		return taken()
	}
	return nil
}

// inScope returns an error unless a name or uid is of a cluster in the context's scope: the one of a cluster that does not exist.
func (m Manager) inScope(ctx context.Context, name string) error {
	unknown := fmt.Errorf("cluster %q: %w", store.Plain(store.Clip(name)), store.ErrUnknownCluster)
	have, err := m.Registry.Registration(ctx, name)
	switch {
	case errors.Is(err, store.ErrUnknownCluster):
		return unknown
	case err != nil:
		return err
	case !access.ScopeOf(ctx).HasCluster(have.Environment, have.Labels):
		return unknown
	}
	return nil
}

func (m Manager) removeCluster(r *http.Request) (any, error) {
	name := r.PathValue("cluster")
	if err := m.inScope(r.Context(), name); err != nil {
		return nil, err
	}
	return m.Registry.RemoveCluster(r.Context(), name)
}

func (m Manager) retireCluster(r *http.Request) (any, error) {
	var wanted struct {
		Reason string `json:"reason"`
	}
	if err := bodyOf(r, &wanted); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return m.RetireCluster(r.Context(), r.PathValue("cluster"), wanted.Reason)
}

// RetireCluster retires a cluster of the scope; see store.Registry.
func (m Manager) RetireCluster(ctx context.Context, nameOrUID, reason string) (store.Registration, error) {
	if err := m.inScope(ctx, nameOrUID); err != nil {
		return store.Registration{}, err
	}
	return m.Registry.RetireCluster(ctx, nameOrUID, reason)
}

// UnshareCluster ends the suspicion that two agents share the identity of a cluster of the scope; see store.Registry.
func (m Manager) UnshareCluster(ctx context.Context, nameOrUID string) (store.Registration, error) {
	if err := m.inScope(ctx, nameOrUID); err != nil {
		return store.Registration{}, err
	}
	return m.Registry.Unshare(ctx, nameOrUID)
}

// hasToken reports whether all clusters that a token registers are in the scope.
func hasToken(s access.Scope, t store.TokenScope) bool { return s.HasCluster(t.Environment, t.Labels) }

// EnrollmentTokens returns the enrollment tokens of the scope, newest first.
func (m Manager) EnrollmentTokens(ctx context.Context) ([]store.Token, error) {
	all, err := m.Registry.Tokens(ctx)
	scope, list := access.ScopeOf(ctx), []store.Token{}
	for _, t := range all {
		if hasToken(scope, t.TokenScope) {
			list = append(list, t)
		}
	}
	return list, err
}

func (m Manager) createToken(r *http.Request) (any, error) {
	var wanted store.TokenScope
	if err := required(r, &wanted); err != nil {
		return nil, err
	}
	return m.CreateToken(r.Context(), wanted)
}

// CreateToken makes an enrollment token for clusters of the scope.
func (m Manager) CreateToken(ctx context.Context, wanted store.TokenScope) (store.CreatedToken, error) {
	if wanted.Uses == 0 {
		wanted.Uses = 1
	}
	if !hasToken(access.ScopeOf(ctx), wanted) {
		return store.CreatedToken{}, fmt.Errorf("%w: clusters of environment %q with these labels are outside the token's scope", store.ErrInvalid, store.Clip(wanted.Environment))
	}
	made, err := m.Registry.CreateToken(ctx, wanted)
	if err != nil {
		return store.CreatedToken{}, err
	}
	return store.CreatedToken{ID: made.ID(), Token: made.Reveal()}, nil
}

// RevokeToken revokes an enrollment token of the scope, by its id. A leaked token may be given instead.
func (m Manager) RevokeToken(ctx context.Context, id string) (store.CreatedToken, error) {
	if strings.HasPrefix(id, "wht_") {
		if t, err := bundle.ParseEnrollToken(id); err == nil {
			id = t.ID()
		}
	}
	all, err := m.EnrollmentTokens(ctx)
	if err != nil {
		return store.CreatedToken{}, err
	}
	if !slices.ContainsFunc(all, func(t store.Token) bool { return t.ID == id }) {
		return store.CreatedToken{}, fmt.Errorf("token %q: %w", store.Plain(store.Clip(id)), store.ErrUnknownToken)
	}
	return store.CreatedToken{ID: id}, m.Registry.RevokeToken(ctx, id)
}
