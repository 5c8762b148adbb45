package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/agent/outbox"
)

// ErrNotRunning means that no agent answers at the control socket.
var ErrNotRunning = errors.New("no agent is running")

// maxStatusBytes bounds an answer of the socket other than a file of reports.
const maxStatusBytes = 64 << 20

// Client speaks to the agent that runs with the given state folder.
type Client struct{ http *http.Client }

// NewClient returns a client. It connects with each call; their errors wrap ErrNotRunning where nobody
// listens.
func NewClient(stateDir string) Client {
	dial := func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		err = throughShortPath(filepath.Join(stateDir, socketFile), func(path string) error {
			conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
			return err
		})
		return conn, err
	}
	return Client{&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks how the agent stands.
func (c Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, http.MethodGet, "status", nil, &s)
	return s, err
}

// Sync has the agent make a pass now and returns how it ended.
func (c Client) Sync(ctx context.Context, wait time.Duration) (r Result, err error) {
	err = c.call(ctx, http.MethodPost, "sync", command{Wait: wait}, &r)
	return r, err
}

// Import has the agent import the file at path, which has to be absolute: the agent opens it.
func (c Client) Import(ctx context.Context, path string, wait time.Duration) (r Result, err error) {
	err = c.call(ctx, http.MethodPost, "import", command{Path: path, Wait: wait}, &r)
	return r, err
}

// Acknowledge hands over acknowledgements; see Agent.Acknowledge.
func (c Client) Acknowledge(ctx context.Context, envelopes [][]byte) (r outbox.Acknowledged, err error) {
	cmd := command{}
	for _, e := range envelopes {
		cmd.Acks = append(cmd.Acks, e)
	}
	err = c.call(ctx, http.MethodPost, "ack", cmd, &r)
	return r, err
}

// Trust asks what the agent knows of who may sign.
func (c Client) Trust(ctx context.Context) (t Trust, err error) {
	err = c.call(ctx, http.MethodGet, "trust", nil, &t)
	return t, err
}

// InstallTrust hands over trust documents; see Agent.InstallTrust. The error wraps bundle.ErrUntrusted where
// one of them is not to be believed or not the next.
func (c Client) InstallTrust(ctx context.Context, envelopes ...[]byte) (change TrustChange, err error) {
	err = c.call(ctx, http.MethodPost, "trust", command{Trust: envelopes}, &change)
	return change, err
}

// RollBack is Agent.RollBack.
func (c Client) RollBack(ctx context.Context, w Wish) (b RolledBack, err error) {
	err = c.call(ctx, http.MethodPost, "rollback", command{Wish: w}, &b)
	return b, err
}

// Releases is State.Releases.
func (c Client) Releases(ctx context.Context) (list []KnownRelease, err error) {
	err = c.call(ctx, http.MethodGet, "releases", nil, &list)
	return list, err
}

// Pause is Agent.Pause.
func (c Client) Pause(ctx context.Context, reason string, lasting time.Duration) (p Pause, err error) {
	err = c.call(ctx, http.MethodPost, "pause", command{Reason: reason, For: lasting}, &p)
	return p, err
}

// Rebind is Agent.Rebind. The error wraps bundle.ErrUntrusted where the trust document is for another platform.
func (c Client) Rebind(ctx context.Context, to Rebinding) (r Rebound, err error) {
	err = c.call(ctx, http.MethodPost, "rebind", command{Rebinding: to}, &r)
	return r, err
}

// Resume is Agent.Resume.
func (c Client) Resume(ctx context.Context, retry bool) (r Resumed, err error) {
	err = c.call(ctx, http.MethodPost, "resume", command{Retry: retry}, &r)
	return r, err
}

// Reports writes a file of all reports that wait, as airgap.WriteReports does, to w.
func (c Client) Reports(ctx context.Context, w io.Writer) error {
	resp, err := c.do(ctx, http.MethodGet, "reports", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}

func (c Client) call(ctx context.Context, method, path string, cmd, into any) error {
	var body []byte
	if cmd != nil {
		var err error
		if body, err = json.Marshal(cmd); err != nil {
			return err
		}
	}
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatusBytes)).Decode(into); err != nil {
		return fmt.Errorf("agent: %s: %w", path, err)
	}
	return nil
}

func (c Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("agent: %w", err)
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatusBytes)).Decode(&a); err != nil {
		return nil, fmt.Errorf("agent answered %s", resp.Status)
	}
	return nil, remoteError{a}
}

// remoteError is an error of the running agent.
type remoteError struct{ answer }

func (e remoteError) Error() string { return e.answer.Error }

func (e remoteError) Is(target error) bool {
	return e.Kind != "" && kinds[e.Kind] == target
}
