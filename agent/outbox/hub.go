package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/reconcilers"
)

// HubTime bounds one request to the hub, body and answer.
const HubTime = hubapi.MaxBodyTime + 5*time.Minute

// NewHTTPClient returns a client for a hub. It gives up soon where nobody answers, and lets a full request take its time: a megabyte
// over a modem is several minutes.
func NewHTTPClient() *http.Client {
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

// post sends a batch.
func (s *HubSink) post(ctx context.Context, batch []queued) (hubapi.Receipt, error) {
	var request hubapi.Reports
	for _, q := range batch {
		request.Reports = append(request.Reports, q.envelope)
	}
	body, encoding, err := request.Body()
	if err != nil {
		return hubapi.Receipt{}, err
	}
	hub := s.Hub().URL
	address, err := hubapi.ReportsURL(hub, s.UID())
	if err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	answer, err := Post(ctx, s.Client, hub, address, encoding, body, hubapi.MaxReceiptBytes)
	if err != nil {
		return hubapi.Receipt{}, err
	}
	var receipt hubapi.Receipt
	if err := json.Unmarshal(answer, &receipt); err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: answer: %w", hub, err)
	}
	return receipt, nil
}

// Post sends body, in a content encoding that may be empty, to an address of a hub and returns at most limit bytes of an answer with
// status 200. Another status is a *HubError.
func Post(ctx context.Context, client *http.Client, hub, address, encoding string, body []byte, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", hub, err)
	}
	req.Header.Set("Content-Type", hubapi.ContentType)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", hub, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, newHubError(resp, answer)
	}
	return answer, nil
}

// HubError is a hub's answer other than 200.
type HubError struct {
	StatusCode int
	Status     string
	// Code and Message are empty where the answer has none, as that of a proxy.
	Code    hubapi.Code
	Message string

	after time.Duration // when it may be asked again; zero where it does not say
}

func newHubError(resp *http.Response, body []byte) *HubError {
	e := &HubError{StatusCode: resp.StatusCode, Status: resp.Status}
	var said hubapi.Error
	if json.Unmarshal(body, &said) == nil {
		e.Code, e.Message = said.Code, reconcilers.Clip(said.Message)
	}
	e.after = min(hubapi.RetryAfter(resp.Header, time.Now()), LongestRetry)
	return e
}

func (e *HubError) Error() string {
	if e.Message == "" {
		return "hub answered " + e.Status
	}
	return "hub answered " + e.Status + ": " + e.Message
}

func retryAfter(err error) time.Duration {
	var e *HubError
	if errors.As(err, &e) {
		return e.after
	}
	return 0
}
