package hubload

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Sender posts reports, and believes only signed acknowledgements.
type Sender struct {
	URL string
	// Key is the hub's.
	Key    crypto.PublicKey
	Client *http.Client
}

// NewSender returns a sender for so many requests at once.
func NewSender(url string, key crypto.PublicKey, connections int) *Sender {
	return &Sender{url, key, &http.Client{
		Timeout:   3 * time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true},
	}}
}

// Refused is a hub's answer other than 200.
type Refused struct {
	Status int
	Answer hubapi.Error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%d %s: %s", r.Status, r.Answer.Code, r.Answer.Message)
}

// Post sends a request of a cluster, and returns the reports that the hub has acknowledged, and its receipt. The error is a
// *Refused for an answer other than 200.
func (s *Sender) Post(ctx context.Context, c *Cluster, body []byte) (acked []digest.Digest, receipt hubapi.Receipt, err error) {
	address, err := hubapi.ReportsURL(s.URL, c.UID)
	if err != nil {
		return nil, receipt, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, receipt, err
	}
	req.Header.Set("Content-Type", hubapi.ContentType)
	answer, err := s.Client.Do(req)
	if err != nil {
		return nil, receipt, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, receipt, err
	}
	if answer.StatusCode != http.StatusOK {
		r := &Refused{Status: answer.StatusCode}
		if json.Unmarshal(data, &r.Answer) != nil {
			r.Answer.Message = string(data)
		}
		return nil, receipt, r
	}
	if err := json.Unmarshal(data, &receipt); err != nil {
		return nil, receipt, fmt.Errorf("receipt: %w", err)
	}
	if receipt.Ack == nil {
		return nil, receipt, nil
	}
	signed, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, receipt.Ack, s.Key)
	if err != nil {
		return nil, receipt, err
	}
	ack, err := bundle.ParseAck(signed)
	if err == nil && ack.Cluster != c.UID {
		err = fmt.Errorf("acknowledgement is for cluster %s", ack.Cluster)
	}
	return ack.Reports, receipt, err
}

// tries bounds how often one request is sent.
const tries = 200

// Deliver is Post until all reports of the request are acknowledged. It returns how often it had to send again.
func (s *Sender) Deliver(ctx context.Context, c *Cluster, body []byte, reports int) (again int, err error) {
	for ; again < tries; again++ {
		acked, receipt, err := s.Post(ctx, c, body)
		var refused *Refused
		switch {
		case err == nil && len(acked) == reports:
			return again, nil
		case err == nil:
			return again, fmt.Errorf("%s: %d of %d reports acknowledged: %v", c.Name, len(acked), reports, receipt.Rejected)
		case errors.As(err, &refused) && refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusServiceUnavailable:
			return again, fmt.Errorf("%s: %w", c.Name, err)
		}
		select {
		case <-time.After(cmp.Or(min(time.Duration(again)*10*time.Millisecond, time.Second), time.Millisecond)):
		case <-ctx.Done():
			return again, ctx.Err()
		}
	}
	return again, fmt.Errorf("%s: not taken after %d tries", c.Name, tries)
}
