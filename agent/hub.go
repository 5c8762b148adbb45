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
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/reconcilers"
)

// HubTime bounds one request to the hub, body and answer.
const HubTime = hubapi.MaxBodyTime + 5*time.Minute

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

func (s *sender) post(ctx context.Context, batch []queued) (hubapi.Receipt, error) {
	var request hubapi.Reports
	for _, q := range batch {
		request.Reports = append(request.Reports, q.envelope)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return hubapi.Receipt{}, err
	}
	hub := s.hub().url
	address, err := hubapi.ReportsURL(hub, s.cluster.UID)
	if err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	req.Header.Set("Content-Type", hubapi.ContentType)
	resp, err := s.opts.HTTPClient.Do(req)
	if err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, hubapi.MaxReceiptBytes))
	if err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: %w", hub, err)
	}
	if resp.StatusCode != http.StatusOK {
		return hubapi.Receipt{}, newHubError(resp, answer)
	}
	var receipt hubapi.Receipt
	if err := json.Unmarshal(answer, &receipt); err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: answer: %w", hub, err)
	}
	return receipt, nil
}

// hubError is an answer other than 200.
type hubError struct {
	status  string
	code    hubapi.Code
	message string
	after   time.Duration
}

func newHubError(resp *http.Response, body []byte) *hubError {
	e := &hubError{status: resp.Status}
	var said hubapi.Error
	if json.Unmarshal(body, &said) == nil {
		e.code, e.message = said.Code, reconcilers.Clip(said.Message)
	}
	e.after = min(hubapi.RetryAfter(resp.Header, time.Now()), lastRetry)
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
