package agent

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// ErrRunning means that something cannot be done while the agent runs.
var ErrRunning = errors.New("the agent is running")

var errRunningAnew = fmt.Errorf("%w: end it before it becomes another cluster", ErrRunning)

// serveEnroll adds the commands about who the agent is. A request to the hub goes on when the one who asked for it
// has gone.
func (c *control) serveEnroll(ctx context.Context, mux *http.ServeMux) {
	for path, do := range map[string]func(command) (any, error){
		"enrol":         func(cmd command) (any, error) { return c.agent.Enroll(ctx, cmd.Enroll) },
		"enrol/request": func(cmd command) (any, error) { return c.agent.enrollRequest(cmd.Enroll.Kind) },
		"enrol/accept":  func(cmd command) (any, error) { return c.agent.acceptBy(cmd.Answer, cmd.HubKey) },
		"enrol/end":     func(command) (any, error) { return c.agent.EndRotation() },
	} {
		mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, r *http.Request) {
			cmd, ok := hear(w, r)
			if !ok {
				return
			}
			done, err := any(nil), error(nil)
			if cmd.Enroll.Kind == EnrollAnew {
				err = errRunningAnew
			} else {
				done, err = do(cmd)
			}
			if err != nil {
				sayError(w, err)
				return
			}
			say(w, http.StatusOK, done)
		})
	}
}

type enrollRequest struct {
	Request []byte `json:"request"`
}

func (a *Agent) enrollRequest(kind EnrollKind) (enrollRequest, error) {
	request, err := a.EnrollRequest(kind)
	return enrollRequest{request}, err
}

// acceptBy is Accept in an agent that runs, which stays the cluster that it is.
func (a *Agent) acceptBy(answer []byte, hubKey string) (Enrolled, error) {
	var pending enrolling
	err := a.state.db.View(func(tx *bbolt.Tx) (err error) {
		pending, err = state.Load[enrolling](tx, state.Meta, keyEnrolling)
		return err
	})
	switch {
	case err != nil:
		return Enrolled{}, err
	case pending.Kind == EnrollAnew:
		return Enrolled{}, errRunningAnew
	}
	var key crypto.PublicKey
	if hubKey != "" {
		keys, err := bundle.ParsePublicKeys([]byte(hubKey))
		if err != nil || len(keys) != 1 {
			return Enrolled{}, fmt.Errorf("%w: the hub's key cannot be read", bundle.ErrEnrollment)
		}
		key = keys[0]
	}
	return a.Accept(answer, key)
}

// Enroll has the agent enroll; see Agent.Enroll. The error wraps ErrRunning for EnrollAnew.
func (c Client) Enroll(ctx context.Context, o EnrollOptions) (e Enrolled, err error) {
	err = c.call(ctx, http.MethodPost, "enrol", command{Enroll: o}, &e)
	return e, err
}

// EnrollRequest asks for a request that somebody carries; see Agent.EnrollRequest.
func (c Client) EnrollRequest(ctx context.Context, kind EnrollKind) ([]byte, error) {
	var r enrollRequest
	err := c.call(ctx, http.MethodPost, "enrol/request", command{Enroll: EnrollOptions{Kind: kind}}, &r)
	return r.Request, err
}

// EndRotation has the agent go over to its new key; see Agent.EndRotation.
func (c Client) EndRotation(ctx context.Context) (e Enrolled, err error) {
	err = c.call(ctx, http.MethodPost, "enrol/end", command{}, &e)
	return e, err
}

// Accept hands over an answer that was carried here; see Agent.Accept.
func (c Client) Accept(ctx context.Context, answer []byte, hubKey crypto.PublicKey) (e Enrolled, err error) {
	cmd := command{Answer: answer}
	if hubKey != nil {
		pem, err := bundle.MarshalPublicKey(hubKey)
		if err != nil {
			return e, err
		}
		cmd.HubKey = string(pem)
	}
	err = c.call(ctx, http.MethodPost, "enrol/accept", cmd, &e)
	return e, err
}
