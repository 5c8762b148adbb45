package hub

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// enroller registers agents, and changes their keys, on their own request.
type enroller struct {
	store store.Store
	sign  signer
	log   *slog.Logger
	kept  []string // labels that a login's roles are restricted by
}

func refuse(code hubapi.Code, format string, args ...any) error {
	return &hubapi.Error{Code: code, Message: store.Plain(store.Clip(fmt.Sprintf(format, args...)))}
}

func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(fmt.Sprintf(format, args...))))
}

// createToken implements Hub.CreateToken.
func (e enroller) createToken(ctx context.Context, s store.TokenScope) (bundle.EnrollToken, error) {
	token, err := bundle.NewEnrollToken(e.sign.key.Public())
	if err != nil {
		return token, err
	}
	err = e.store.AddToken(ctx, token.ID(), token.Key().Public(), s)
	if errors.Is(err, store.ErrInvalid) {
		return bundle.EnrollToken{}, err
	}
	if err != nil {
		return bundle.EnrollToken{}, fmt.Errorf("keep token: %w", err)
	}
	return token, nil
}

// enroll implements Hub.Enroll.
func (e enroller) enroll(ctx context.Context, envelope []byte) ([]byte, error) {
	r, id, c, err := e.parse(envelope)
	if err != nil {
		return nil, err
	}
	done, detail := "", ""
	switch {
	case r.Former != "":
		var changed bool
		if changed, err = e.rotate(ctx, r, c.Key); changed {
			done = "replace key of cluster"
		}
	case r.Token != "":
		if c.Labels, err = e.ownLabels(ctx, c.Labels); err != nil {
			return nil, err
		}
		var g store.Grant
		err = e.store.Enroll(ctx, c, r.Token, func(s store.Standing) (_ store.Grant, err error) {
			g, err = judge(s, c, r.Token, envelope)
			return g, err
		})
		if g.Use || g.Register != nil {
			done, detail = "enroll cluster", "by token "+r.Token
		}
	default:
		err = refuse(hubapi.CodeBadToken, "the request carries no token; a person can register it with %q", "wherry hub clusters add --request FILE")
	}
	if err != nil {
		e.log.Warn("enrollment refused", "cluster", store.Plain(store.Clip(r.Cluster.UID)), "token", store.Plain(store.Clip(r.Token)), "err", err)
		return nil, err
	}
	if done != "" {
		agent := access.With(ctx, access.Identity{Name: c.UID})
		err = access.Note(agent, e.store, store.AuditEntry{At: e.sign.now(), Action: done, Object: c.Name + " (" + c.UID + ")", Detail: detail, Environment: c.Environment})
		if err != nil {
			return nil, err
		}
	}
	return e.answer(ctx, r.Cluster.UID, id)
}

// ownLabels returns labels that an agent brings without those that access tokens, in force or not, or roles of people are restricted by:
// they decide who sees and operates a cluster, and are for a person, or an enrollment token, to set.
func (e enroller) ownLabels(ctx context.Context, labels map[string]string) (map[string]string, error) {
	if len(labels) == 0 {
		return labels, nil
	}
	tokens, err := e.store.AccessTokens(ctx)
	if err != nil {
		return nil, err
	}
	own := maps.Clone(labels)
	for _, key := range e.kept {
		delete(own, key)
	}
	for _, t := range tokens {
		scope, err := access.ParseScope(t.AccessScope)
		if err != nil { // it chooses nothing
			continue
		}
		for _, key := range scope.Labels() {
			delete(own, key)
		}
	}
	return own, nil
}

// answer implements Hub.AnswerRequest.
func (e enroller) answer(ctx context.Context, uid string, request digest.Digest) ([]byte, error) {
	c, err := e.store.Registered(ctx, uid)
	if err != nil {
		return nil, err
	}
	if len(c.KeyIDs) != 1 {
		return nil, fmt.Errorf("cluster %q: %w", uid, store.ErrUnknownCluster)
	}
	e.log.Info("cluster enrolled", "cluster", c.Name, "uid", c.UID, "type", c.Type, "key", c.KeyIDs[0])
	return bundle.SealEnrollment(bundle.Enrollment{
		Cluster: bundle.ReportCluster(c.Identity),
		KeyID:   c.KeyIDs[0], Incarnation: c.Newest.Incarnation, Request: request, IssuedAt: e.sign.now().UTC(),
	}, e.sign.key)
}

// ReadRequest verifies that a request for enrollment is signed by each key that it names, and returns it with the cluster that it
// asks to be registered as. The error wraps store.ErrInvalid, or is a *hubapi.Error.
func ReadRequest(envelope []byte) (bundle.EnrollmentRequest, store.Cluster, error) {
	r, _, c, err := readRequest(envelope)
	return r, c, err
}

func readRequest(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, store.Cluster, error) {
	r, id, err := bundle.OpenEnrollmentRequest(envelope)
	switch {
	case errors.Is(err, bundle.ErrUntrusted):
		return r, "", store.Cluster{}, refuse(hubapi.CodeBadSignature, "the request is not signed by each key that it names")
	case err != nil:
		return r, "", store.Cluster{}, badRequest("%v", err)
	}
	key, _, err := r.Keys()
	if err != nil {
		return r, "", store.Cluster{}, badRequest("%v", err)
	}
	return r, id, store.Cluster{Identity: store.Identity(r.Cluster), Key: key}, nil
}

// parse implements Hub.ParseRequest: it verifies the signatures of a request, and that it is for this hub.
func (e enroller) parse(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, store.Cluster, error) {
	r, id, c, err := readRequest(envelope)
	if err != nil {
		return r, "", store.Cluster{}, err
	}
	own, err := bundle.KeyID(e.sign.key.Public())
	if err == nil && r.Hub != "" && !bundle.IsHub(own, r.Hub) {
		err = refuse(hubapi.CodeWrongHub, "the request is for the hub with key %s, this one has %s", r.Hub, own)
	}
	if err != nil {
		return r, "", store.Cluster{}, err
	}
	return r, id, c, nil
}

// judge decides whether a token registers the cluster c, whose agent sent the envelope. The error is a *hubapi.Error.
func judge(s store.Standing, c store.Cluster, token string, envelope []byte) (store.Grant, error) {
	// A sender without the token's key does not learn whether the token exists.
	if s.Token == nil || !signedBy(s, envelope) {
		return store.Grant{}, refuse(hubapi.CodeBadToken, "this hub has given no such token")
	}
	switch {
	case s.Used && s.InForce:
		return store.Grant{}, nil // the answer was lost, and is only given again
	case s.Used && s.Returns: // which uses nothing up
		if err := scopeAdmits(*s.Token, c); err != nil {
			return store.Grant{}, err
		}
	case s.Used:
		return store.Grant{}, refuse(hubapi.CodeTokenUsed, "token %s has registered this key before, and the registration has been changed or ended since", token)
	default:
		if err := admits(*s.Token, c); err != nil {
			return store.Grant{}, err
		}
	}
	switch {
	case s.Retired != nil && !s.Returns: // only a person brings it back
		return store.Grant{}, refuse(hubapi.CodeRetired, "%v; %s", s.Retired, fmt.Sprintf("%q brings it back", "wherry hub clusters add"))
	case s.Taken != nil:
		return store.Grant{}, refuse(hubapi.CodeExists, "%v", s.Taken)
	case s.Registered == nil:
		c.Labels = joined(c.Labels, s.Token.Labels)
		return store.Grant{Use: !s.Used, Register: &c}, nil
	case !s.Registered.HasKey(keyID(c)):
		return store.Grant{}, refuse(hubapi.CodeExists, "cluster uid %s is registered as %s, with another key", c.UID, s.Registered.Name)
	case s.Registered.Type != c.Type || s.Registered.Environment != c.Environment:
		return store.Grant{}, refuse(hubapi.CodeExists, "cluster uid %s is registered as %s, in environment %q and with cluster type %q",
			c.UID, s.Registered.Name, s.Registered.Environment, s.Registered.Type)
	}
	return store.Grant{Use: true}, nil // a person has registered it, and a token does not change that
}

func signedBy(s store.Standing, envelope []byte) bool {
	_, _, err := bundle.OpenEnvelope(bundle.PayloadTypeEnrollmentRequest, envelope, s.TokenKey)
	return err == nil
}

// keyID returns the id of a cluster's key, which store.Cluster.Check has found to have one.
func keyID(c store.Cluster) string {
	id, err := bundle.KeyID(c.Key)
	if err != nil {
		return ""
	}
	return id
}

// admits returns a *hubapi.Error if the token cannot be used, or not for such a cluster.
func admits(t store.Token, c store.Cluster) error {
	switch t.State {
	case store.TokenRevoked:
		return refuse(hubapi.CodeTokenRevoked, "token %s has been revoked", t.ID)
	case store.TokenExpired:
		return refuse(hubapi.CodeTokenExpired, "token %s has expired", t.ID)
	case store.TokenUsedUp:
		return refuse(hubapi.CodeTokenUsed, "token %s has been used up", t.ID)
	case store.TokenWaits:
		return refuse(hubapi.CodeUnavailable, "token %s waits until an admin accepts the tokens of the backup from which the hub was restored", t.ID)
	}
	return scopeAdmits(t, c)
}

// scopeAdmits returns a *hubapi.Error if the token is not for such a cluster.
func scopeAdmits(t store.Token, c store.Cluster) error {
	for _, s := range []struct{ what, token, agent string }{
		{"cluster type", t.Type, c.Type}, {"environment", t.Environment, c.Environment}, {"ring", t.Ring, c.Ring},
	} {
		if s.token != "" && s.token != s.agent {
			return refuse(hubapi.CodeWrongScope, "token %s is for %s %q, and the agent's is %q", t.ID, s.what, s.token, s.agent)
		}
	}
	return nil
}

func joined(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

// rotate puts a new key in the place of the previous one, which has signed the request as well. Reports up to the place that
// the request names may still come, signed by the previous key.
func (e enroller) rotate(ctx context.Context, r bundle.EnrollmentRequest, key ed25519.PublicKey) (changed bool, err error) {
	_, previous, err := r.Keys()
	if err != nil {
		return false, badRequest("%v", err)
	}
	previousID, err1 := bundle.KeyID(previous)
	kid, err2 := bundle.KeyID(key)
	if err1 != nil || err2 != nil || previousID == kid {
		return false, badRequest("the new key must differ from the previous one")
	}
	change := store.Rotation{UID: r.Cluster.UID, Previous: previousID, Key: key, Until: store.OrderOf(r.Agent)}
	err = e.store.Rotate(ctx, change, func(keys store.Keys, taken error) (bool, error) {
		changed = false
		_, again := keys.Current[kid]
		_, replaced := keys.Previous[previousID]
		_, inForce := keys.Current[previousID]
		switch {
		case again && replaced:
			return false, nil // the answer was lost
		case replaced:
			return false, refuse(hubapi.CodeKeyReplaced, "%s", replacedMessage)
		case !inForce:
			return false, refuse(hubapi.CodeUnknownKey, "the key that is to be replaced is not registered for cluster %s", r.Cluster.UID)
		case taken != nil:
			return false, refuse(hubapi.CodeExists, "%v", taken)
		}
		changed = true
		return true, nil
	})
	return changed && err == nil, err
}
