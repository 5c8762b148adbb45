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

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// NewCluster is the body that registers a cluster.
type NewCluster struct {
	store.Identity
	// Key is the public half of the agent's report key, in PEM.
	Key string `json:"key,omitempty"`
	// Reporting is "none" for a cluster that sends no reports: it has no Key.
	Reporting string `json:"reporting,omitempty"`
	// ExpectedSeconds is the longest usual time between two reports; zero means the registered one, or an hour.
	ExpectedSeconds int64 `json:"expectedSeconds,omitempty"`
	// Replace allows to change what is registered for the uid, its key included.
	Replace bool `json:"replace,omitempty"`
}

// AddedCluster answers a NewCluster. Changed is false if it was registered already.
type AddedCluster struct {
	Cluster store.Registration `json:"cluster"`
	Changed bool               `json:"changed"`
}

// maxExpectedSeconds is ten years.
const maxExpectedSeconds = 10 * 366 * 24 * 3600

func (m Manager) addCluster(r *http.Request) (any, error) {
	var wanted NewCluster
	if err := required(r, &wanted); err != nil {
		return nil, err
	}
	if wanted.ExpectedSeconds < 0 || wanted.ExpectedSeconds > maxExpectedSeconds {
		return nil, fmt.Errorf("%w: expectedSeconds %d", store.ErrInvalid, wanted.ExpectedSeconds)
	}
	var key ed25519.PublicKey
	if wanted.Reporting == "" || wanted.Key != "" {
		var err error
		if key, err = m.ParseKey([]byte(wanted.Key)); err != nil {
			return nil, err
		}
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
	kept, err := m.Registry.Registered(ctx, c.UID)
	return AddedCluster{kept, changed}, err
}

// taken says that a registration is in the way, and nothing of it: it may be outside the scope.
func taken() error {
	return fmt.Errorf("uid, name or key: %w, for another cluster or with other values", store.ErrExists)
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

// inScope returns the name or uid in the request's path if that is a cluster in its scope. If it is not, the error is the one
// of a cluster that does not exist.
func (m Manager) inScope(r *http.Request) (string, error) {
	name := r.PathValue("cluster")
	unknown := fmt.Errorf("cluster %q: %w", store.Plain(store.Clip(name)), store.ErrUnknownCluster)
	have, err := m.Registry.Registration(r.Context(), name)
	switch {
	case errors.Is(err, store.ErrUnknownCluster):
		return "", unknown
	case err != nil:
		return "", err
	case !access.ScopeOf(r.Context()).HasCluster(have.Environment, have.Labels):
		return "", unknown
	}
	return name, nil
}

func (m Manager) removeCluster(r *http.Request) (any, error) {
	name, err := m.inScope(r)
	if err != nil {
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
	name, err := m.inScope(r)
	if err != nil {
		return nil, err
	}
	return m.Registry.RetireCluster(r.Context(), name, wanted.Reason)
}

func (m Manager) unshareCluster(r *http.Request) (any, error) {
	name, err := m.inScope(r)
	if err != nil {
		return nil, err
	}
	return m.Registry.Unshare(r.Context(), name)
}

// TokenList is the enrollment tokens, newest first.
type TokenList struct {
	Tokens []store.Token `json:"tokens"`
}

// CreatedToken answers with a new enrollment token, whose secret is told only once.
type CreatedToken struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// hasToken reports whether all clusters that a token registers are in the scope.
func hasToken(s access.Scope, t store.TokenScope) bool { return s.HasCluster(t.Environment, t.Labels) }

func (m Manager) listTokens(r *http.Request) (any, error) {
	all, err := m.Registry.Tokens(r.Context())
	scope := access.ScopeOf(r.Context())
	list := TokenList{[]store.Token{}}
	for _, t := range all {
		if hasToken(scope, t.TokenScope) {
			list.Tokens = append(list.Tokens, t)
		}
	}
	return list, err
}

func (m Manager) createToken(r *http.Request) (any, error) {
	var wanted store.TokenScope
	if err := required(r, &wanted); err != nil {
		return nil, err
	}
	if wanted.Uses == 0 {
		wanted.Uses = 1
	}
	if !hasToken(access.ScopeOf(r.Context()), wanted) {
		return nil, fmt.Errorf("%w: clusters of environment %q with these labels are outside the token's scope", store.ErrInvalid, store.Clip(wanted.Environment))
	}
	made, err := m.Registry.CreateToken(r.Context(), wanted)
	if err != nil {
		return nil, err
	}
	return CreatedToken{made.ID(), made.Reveal()}, nil
}

func (m Manager) revokeToken(r *http.Request) (any, error) {
	id := r.PathValue("token")
	if strings.HasPrefix(id, "wht_") { // a leaked token, instead of its id
		if t, err := bundle.ParseEnrollToken(id); err == nil {
			id = t.ID()
		}
	}
	all, err := m.Registry.Tokens(r.Context())
	if err != nil {
		return nil, err
	}
	scope := access.ScopeOf(r.Context())
	at := slices.IndexFunc(all, func(t store.Token) bool { return t.ID == id && hasToken(scope, t.TokenScope) })
	if at < 0 {
		return nil, fmt.Errorf("token %q: %w", store.Plain(store.Clip(id)), store.ErrUnknownToken)
	}
	return CreatedToken{ID: id}, m.Registry.RevokeToken(r.Context(), id)
}
