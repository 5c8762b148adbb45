package agent

import (
	"context"
	"crypto"
	"io"
	"time"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/sitevalues"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// Client speaks to the agent that runs with the given state folder.
type Client struct{ socket control.Client }

// NewClient returns a client. It connects with each call; their errors are those of control.Client and of the agent's
// methods. No call waits for ever for an agent that hangs.
func NewClient(stateDir string) Client { return Client{control.Dial(stateDir, kinds)} }

// Telling returns a client that calls waits with each step of the agent while Sync, Import or Enroll waits for it.
func (c Client) Telling(waits func(doing string)) Client {
	c.socket.Waits = waits
	return c
}

// Status asks how the agent stands.
func (c Client) Status(ctx context.Context) (s Status, err error) {
	err = c.socket.Call(ctx, "GET status", nil, &s)
	return s, err
}

// Sync has the agent make a pass now and returns how it ended.
func (c Client) Sync(ctx context.Context, wait time.Duration) (r Result, err error) {
	err = c.socket.Long(ctx, "POST sync", command{Wait: wait}, &r)
	return r, err
}

// Import has the agent import a site package. Its paths have to be absolute, since the agent opens them, unless the request
// has Stdin: that is sent to the agent. The error wraps ErrUnreadable if the agent cannot open a path. Once ctx ends, the
// agent ends what it copies, and the next import goes on.
func (c Client) Import(ctx context.Context, request ImportRequest) (r ImportResult, err error) {
	if request.Stdin != nil {
		err = c.socket.Upload(ctx, "POST import/content", command{Import: request}, request.Stdin, &r)
		return r, err
	}
	err = c.socket.Long(ctx, "POST import", command{Import: request}, &r)
	return r, err
}

// ImportProgress asks how far the import is that runs.
func (c Client) ImportProgress(ctx context.Context) (p ImportProgress, err error) {
	err = c.socket.Call(ctx, "GET import", nil, &p)
	return p, err
}

// Acknowledge hands over acknowledgements; see Agent.Acknowledge.
func (c Client) Acknowledge(ctx context.Context, envelopes [][]byte) (r outbox.Acknowledged, err error) {
	cmd := command{}
	for _, e := range envelopes {
		cmd.Acks = append(cmd.Acks, e)
	}
	err = c.socket.Call(ctx, "POST ack", cmd, &r)
	return r, err
}

// Trust asks what the agent knows of who may sign.
func (c Client) Trust(ctx context.Context) (t trust.Known, err error) {
	err = c.socket.Call(ctx, "GET trust", nil, &t)
	return t, err
}

// InstallTrust hands over trust documents; see Agent.InstallTrust. The error wraps bundle.ErrUntrusted where
// one of them is not to be believed or not the next.
func (c Client) InstallTrust(ctx context.Context, envelopes ...[]byte) (change trust.Change, err error) {
	err = c.socket.Call(ctx, "POST trust", command{Trust: envelopes}, &change)
	return change, err
}

// RollBack is Agent.RollBack.
func (c Client) RollBack(ctx context.Context, w Wish) (b RolledBack, err error) {
	err = c.socket.Call(ctx, "POST rollback", command{Wish: w}, &b)
	return b, err
}

// Releases is State.Releases.
func (c Client) Releases(ctx context.Context) (list []KnownRelease, err error) {
	err = c.socket.Call(ctx, "GET releases", nil, &list)
	return list, err
}

// Pause is Agent.Pause.
func (c Client) Pause(ctx context.Context, reason string, lasting time.Duration) (p freeze.Pause, err error) {
	err = c.socket.Call(ctx, "POST pause", command{Reason: reason, For: lasting}, &p)
	return p, err
}

// Rebind is Agent.Rebind. The error wraps bundle.ErrUntrusted where the trust document is for another platform.
func (c Client) Rebind(ctx context.Context, to Rebinding) (r Rebound, err error) {
	err = c.socket.Call(ctx, "POST rebind", command{Rebinding: to}, &r)
	return r, err
}

// Resume is Agent.Resume.
func (c Client) Resume(ctx context.Context, retry bool) (r Resumed, err error) {
	err = c.socket.Call(ctx, "POST resume", command{Retry: retry}, &r)
	return r, err
}

// SiteValues is State.SiteValues.
func (c Client) SiteValues(ctx context.Context) (status sitevalues.Status, err error) {
	err = c.socket.Call(ctx, "GET values", nil, &status)
	return status, err
}

// CheckSiteValues is State.CheckSiteValues.
func (c Client) CheckSiteValues(ctx context.Context, own sitevalues.Own, place string) (check sitevalues.Check, err error) {
	err = c.socket.Call(ctx, "POST values/check", command{Own: own, Path: place}, &check)
	return check, err
}

// Reports is State.WriteReports.
func (c Client) Reports(ctx context.Context, w io.Writer) error {
	return c.socket.Stream(ctx, "GET reports", w)
}

// Relayed is relay.Relay.Clusters.
func (c Client) Relayed(ctx context.Context) (all []relay.Cluster, err error) {
	err = c.socket.Call(ctx, "GET relay", nil, &all)
	return all, err
}

// Forget is relay.Relay.Drop.
func (c Client) Forget(ctx context.Context, uid string) (int, error) {
	var n howMany
	err := c.socket.Call(ctx, "POST forget", command{UID: uid}, &n)
	return n.Count, err
}

// DeadLetters is outbox.Outbox.DeadLetters.
func (c Client) DeadLetters(ctx context.Context) (all []outbox.DeadLetter, err error) {
	err = c.socket.Call(ctx, "GET dead", nil, &all)
	return all, err
}

// RetryDeadLetters is outbox.Outbox.RetryDeadLetters.
func (c Client) RetryDeadLetters(ctx context.Context) (int, error) { return c.dead(ctx, deadRetry) }

// DropDeadLetters is outbox.Outbox.DropDeadLetters.
func (c Client) DropDeadLetters(ctx context.Context) (int, error) { return c.dead(ctx, deadDrop) }

func (c Client) dead(ctx context.Context, what string) (int, error) {
	var n howMany
	err := c.socket.Call(ctx, "POST dead", command{Dead: what}, &n)
	return n.Count, err
}

// Enroll has the agent enroll; see enroll.Enroller.Enroll. The error wraps ErrRunning for enroll.Anew.
func (c Client) Enroll(ctx context.Context, o enroll.Options) (e enroll.Enrolled, err error) {
	err = c.socket.Long(ctx, "POST enrol", command{Enroll: o}, &e)
	return e, err
}

// EnrollRequest asks for a request that somebody carries; see enroll.Enroller.Request.
func (c Client) EnrollRequest(ctx context.Context, kind enroll.Kind) ([]byte, error) {
	var r enrollRequest
	err := c.socket.Call(ctx, "POST enrol/request", command{Enroll: enroll.Options{Kind: kind}}, &r)
	return r.Request, err
}

// EndRotation has the agent go over to its new key; see enroll.Enroller.EndRotation.
func (c Client) EndRotation(ctx context.Context) (e enroll.Enrolled, err error) {
	err = c.socket.Call(ctx, "POST enrol/end", command{}, &e)
	return e, err
}

// Accept hands over an answer that was carried here; see enroll.Enroller.Accept.
func (c Client) Accept(ctx context.Context, answer []byte, hubKey crypto.PublicKey) (e enroll.Enrolled, err error) {
	cmd := command{Answer: answer}
	if hubKey != nil {
		pem, err := bundle.MarshalPublicKey(hubKey)
		if err != nil {
			return e, err
		}
		cmd.HubKey = string(pem)
	}
	err = c.socket.Call(ctx, "POST enrol/accept", cmd, &e)
	return e, err
}
