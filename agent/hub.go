package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/reconcilers"
)

// hubReply is the hub's answer. Only the acknowledgement is signed.
type hubReply struct {
	Ack      json.RawMessage `json:"ack"`
	Identity hint            `json:"identity"`
	Pace     pace            `json:"pace"`
	Rejected []struct {
		ID        digest.Digest `json:"id"`
		Reason    string        `json:"reason"`
		Message   string        `json:"message"`
		Permanent *bool         `json:"permanent"`
	} `json:"rejected"`
}

const (
	// HubTime bounds one request to the hub: a megabyte at 1 KB a second is 17 minutes, and hubs wait 20 for one.
	HubTime = 25 * time.Minute
	// maxReplyBytes bounds its answer: acknowledgement and rejections of a batch.
	maxReplyBytes = 4 << 20
)

// newHubHTTPClient gives up soon where nobody answers, and lets a full request take its time: a megabyte
// over a modem is several minutes.
func newHubHTTPClient() *http.Client {
	return &http.Client{
		Timeout: HubTime,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: time.Minute,
			IdleConnTimeout:       90 * time.Second,
			ForceAttemptHTTP2:     true,
		},
	}
}

func (s *sender) post(ctx context.Context, batch []queued) (hubReply, error) {
	request := struct {
		Reports []json.RawMessage `json:"reports"`
	}{}
	for _, q := range batch {
		request.Reports = append(request.Reports, q.envelope)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return hubReply{}, err
	}
	hub := s.hub().url
	address, err := url.JoinPath(hub, "v1/clusters", url.PathEscape(s.cluster.UID), "reports")
	if err != nil {
		return hubReply{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return hubReply{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.opts.HTTPClient.Do(req)
	if err != nil {
		return hubReply{}, fmt.Errorf("hub: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReplyBytes))
	if err != nil {
		return hubReply{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	if resp.StatusCode != http.StatusOK {
		return hubReply{}, newHubError(resp, answer)
	}
	var reply hubReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return hubReply{}, fmt.Errorf("hub %s: answer: %w", hub, err)
	}
	return reply, nil
}

// hubError is an answer other than 200.
type hubError struct {
	status  string
	code    string
	message string
	after   time.Duration
}

func newHubError(resp *http.Response, body []byte) *hubError {
	e := &hubError{status: resp.Status}
	var said struct {
		Code  string `json:"code"`
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) == nil {
		e.code, e.message = said.Code, reconcilers.Clip(said.Error)
	}
	header := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseInt(header, 10, 64); err == nil {
		e.after = atMostLastRetry(n)
	} else if at, err := http.ParseTime(header); err == nil {
		e.after = atMostLastRetry(int64(time.Until(at) / time.Second))
	}
	return e
}

func (e *hubError) Error() string {
	if e.message == "" {
		return "hub answered " + e.status
	}
	return "hub answered " + e.status + ": " + e.message
}

func retryAfter(err error) time.Duration {
	var e *hubError
	if errors.As(err, &e) {
		return e.after
	}
	return 0
}
