package hub

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Refusal says why an agent is not registered.
type Refusal struct {
	Code    hubapi.Code
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(code hubapi.Code, format string, args ...any) error {
	return &Refusal{code, plain(clip(fmt.Sprintf(format, args...)))}
}

// maxEnrollments bounds the requests that are being judged; others wait. Nobody guesses a token's key of 256
// bits, so this is for the processor. A bound on failures instead would let a stranger keep sites out.
const maxEnrollments = 4

func (h *Hub) postEnroll(w http.ResponseWriter, r *http.Request) {
	body, done, err := h.readBody(w, r, bundle.MaxEnrollmentBytes)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer done()
	select {
	case h.enrolling <- struct{}{}:
		defer func() { <-h.enrolling }()
	case <-r.Context().Done():
		return
	}
	answer, err := h.Enroll(r.Context(), body)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, hubapi.Enrolled{Enrollment: answer})
}

// Enroll does what an agent's request asks for, if it may: registers it by a token, or replaces the key of a
// registered one. It returns the signed answer. The same request again is answered again and changes nothing.
// The error is a *Refusal where the request is understood and not followed.
func (h *Hub) Enroll(ctx context.Context, envelope []byte) ([]byte, error) {
	r, id, err := h.openRequest(envelope)
	if err != nil {
		return nil, err
	}
	key, err := requestKey(r)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Former != "":
		err = h.rotate(ctx, r, key)
	case r.Token != "":
		err = h.enrollByToken(ctx, r, key, envelope)
	default:
		err = refuse(hubapi.CodeBadToken, "the request carries no token; a person can register it with %q", "wherry hub clusters add --request FILE")
	}
	if err != nil {
		h.log.Warn("enrollment refused", "cluster", plain(clip(r.Cluster.UID)), "token", plain(clip(r.Token)), "err", err)
		return nil, err
	}
	return h.AnswerRequest(ctx, r.Cluster.UID, id)
}

// AnswerRequest returns the signed word that the cluster of this uid is registered, as the answer to the
// request of that id. The error wraps ErrUnknownCluster.
func (h *Hub) AnswerRequest(ctx context.Context, uid string, request digest.Digest) ([]byte, error) {
	known, err := registrations(ctx, h.read, clusterByUID, uid)
	if err != nil {
		return nil, classify(err)
	}
	if len(known) == 0 || len(known[0].KeyIDs) != 1 {
		return nil, fmt.Errorf("cluster %q: %w", uid, ErrUnknownCluster)
	}
	c := known[0]
	var newest int64
	if err := h.read.QueryRowContext(ctx, `SELECT incarnation FROM cluster WHERE uid = ?`, uid).Scan(&newest); err != nil {
		return nil, classify(err)
	}
	h.log.Info("cluster enrolled", "cluster", c.Name, "uid", c.UID, "type", c.Type, "key", c.KeyIDs[0])
	return bundle.SealEnrollment(bundle.Enrollment{
		Cluster: bundle.ReportCluster{UID: c.UID, Name: c.Name, Platform: c.Platform, Type: c.Type, Environment: c.Environment, Ring: c.Ring, Labels: c.Labels},
		KeyID:   c.KeyIDs[0], Incarnation: newest, Request: request, IssuedAt: h.now().UTC(),
	}, h.key)
}

// openRequest verifies the signatures of a request, and that it is for this hub.
func (h *Hub) openRequest(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, error) {
	r, id, err := bundle.OpenEnrollmentRequest(envelope)
	switch {
	case errors.Is(err, bundle.ErrUntrusted):
		return r, "", refuse(hubapi.CodeBadSignature, "the request is not signed by each key that it names")
	case err != nil:
		return r, "", badRequest("%v", err)
	}
	own, err := bundle.KeyID(h.PublicKey())
	if err == nil && r.Hub != "" && !bundle.IsHub(own, r.Hub) {
		err = refuse(hubapi.CodeWrongHub, "the request is for the hub with key %s, this one has %s", r.Hub, own)
	}
	return r, id, err
}

// requestKey is the key that is to be registered.
func requestKey(r bundle.EnrollmentRequest) (ed25519.PublicKey, error) {
	key, _, err := r.Keys()
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return key, nil
}

// ParseRequest verifies a request that came as a file, and returns it with its id and the cluster that it asks
// to be registered as. The error wraps ErrInvalid, or is a *Refusal.
func (h *Hub) ParseRequest(envelope []byte) (bundle.EnrollmentRequest, digest.Digest, Cluster, error) {
	r, id, err := h.openRequest(envelope)
	if err != nil {
		return r, "", Cluster{}, err
	}
	key, err := requestKey(r)
	return r, id, clusterOf(r, key), err
}

func clusterOf(r bundle.EnrollmentRequest, key ed25519.PublicKey) Cluster {
	c := r.Cluster
	return Cluster{UID: c.UID, Name: c.Name, Platform: c.Platform, Type: c.Type, Environment: c.Environment, Ring: c.Ring, Labels: c.Labels, Key: key}
}

// enrollByToken registers the cluster if the token lets it.
func (h *Hub) enrollByToken(ctx context.Context, r bundle.EnrollmentRequest, key ed25519.PublicKey, envelope []byte) error {
	c := clusterOf(r, key)
	if err := c.check(); err != nil {
		return err
	}
	kid, err := bundle.KeyID(key)
	if err != nil {
		return err
	}
	return h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		t, err := h.provenToken(ctx, db, r.Token, envelope)
		if err != nil {
			return err
		}
		if used, err := useOf(ctx, db, t.ID, kid, c.UID); used || err != nil {
			return err
		}
		if err := t.admits(c); err != nil {
			return err
		}
		if err := checkNotRetired(ctx, db, c.UID, kid); err != nil {
			return err
		}
		c.Labels = joined(c.Labels, t.Labels)
		c.ExpectedInterval = DefaultExpectedInterval
		now := millis(h.now())
		if err := addByToken(ctx, db, c, kid, now); err != nil {
			return err
		}
		_, err = db.exec(ctx, `INSERT INTO token_use (token_id, kid, uid, used_at) VALUES (?, ?, ?, ?)`, t.ID, kid, c.UID, now)
		return err
	})
}

// provenToken returns the token of this id if its key has signed the request. Whoever has not proved that is not
// told whether there is such a token.
func (h *Hub) provenToken(ctx context.Context, db querier, id string, envelope []byte) (keptToken, error) {
	found, err := h.tokens(ctx, db, `t.id = ?`, id)
	if err != nil {
		return keptToken{}, err
	}
	if len(found) == 1 {
		_, _, err := bundle.OpenEnvelope(bundle.PayloadTypeEnrollmentRequest, envelope, found[0].key)
		if err == nil {
			return found[0], nil
		}
	}
	return keptToken{}, refuse(hubapi.CodeBadToken, "this hub has given no such token")
}

// useOf reports whether the key has been registered by the token before, and is in force still: then the answer
// was lost, and is only given again.
func useOf(ctx context.Context, db querier, token, kid, uid string) (bool, error) {
	var used, inForce bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM token_use WHERE token_id = ?1 AND kid = ?2),
			EXISTS (SELECT 1 FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
				WHERE k.kid = ?2 AND c.uid = ?3 AND k.revoked_at IS NULL AND c.removed_at IS NULL)`, token, kid, uid).Scan(&used, &inForce)
	if err == nil && used && !inForce {
		return false, refuse(hubapi.CodeTokenUsed, "token %s has registered this key before, and the registration has been changed or ended since", token)
	}
	return used, err
}

// admits returns a refusal where the token is of no use, or not for such a cluster.
func (t keptToken) admits(c Cluster) error {
	switch t.State {
	case TokenRevoked:
		return refuse(hubapi.CodeTokenRevoked, "token %s has been revoked", t.ID)
	case TokenExpired:
		return refuse(hubapi.CodeTokenExpired, "token %s has expired", t.ID)
	case TokenUsedUp:
		return refuse(hubapi.CodeTokenUsed, "token %s has been used up", t.ID)
	}
	for _, s := range []struct{ what, token, agent string }{
		{"cluster type", t.Type, c.Type}, {"environment", t.Environment, c.Environment}, {"ring", t.Ring, c.Ring},
	} {
		if s.token != "" && s.token != s.agent {
			return refuse(hubapi.CodeWrongScope, "token %s is for %s %q, and the agent's is %q", t.ID, s.what, s.token, s.agent)
		}
	}
	return nil
}

// addByToken registers a cluster that is new, or the same. A token changes nothing that is registered.
func addByToken(ctx context.Context, db *conn, c Cluster, kid string, now int64) error {
	if err := checkFree(ctx, db, c, kid); errors.Is(err, ErrExists) {
		return refuse(hubapi.CodeExists, "%v", err)
	} else if err != nil {
		return err
	}
	have, err := registrations(ctx, db, clusterByUID, c.UID)
	switch {
	case err != nil:
		return err
	case len(have) == 0:
		return writeRegistration(ctx, db, c, kid, now)
	case !have[0].hasKey(kid):
		return refuse(hubapi.CodeExists, "cluster uid %s is registered as %s, with another key", c.UID, have[0].Name)
	case have[0].Type != c.Type || have[0].Environment != c.Environment:
		return refuse(hubapi.CodeExists, "cluster uid %s is registered as %s, in environment %q and with cluster type %q", c.UID, have[0].Name, have[0].Environment, have[0].Type)
	}
	return nil // a person has registered it by hand
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
