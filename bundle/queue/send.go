package queue

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// LongestRetry bounds what a hub may ask for with Retry-After: a hostile one delays reports, and silences nobody.
const LongestRetry = time.Hour

// Hub is where reports go, and whose acknowledgement deletes them.
type Hub struct {
	URL string           // empty while no hub is known
	Key crypto.PublicKey // nil if none is pinned
}

// Send sends envelopes of reports of the cluster uid in one request. Another answer than a receipt is a *HubError. Nothing of a
// receipt is signed but the acknowledgements in it; see OpenAck.
func (h Hub) Send(ctx context.Context, client *http.Client, uid string, envelopes []json.RawMessage) (receipt hubapi.Receipt, err error) {
	body, encoding, err := hubapi.Reports{Reports: envelopes}.Body()
	if err != nil {
		return receipt, err
	}
	address, err := hubapi.ReportsURL(h.URL, uid)
	if err != nil {
		return receipt, fmt.Errorf("hub %s: %w", h.URL, err)
	}
	answer, err := Post(ctx, client, h.URL, address, encoding, body, hubapi.MaxReceiptBytes)
	if err != nil {
		return receipt, err
	}
	if err := json.Unmarshal(answer, &receipt); err != nil {
		return hubapi.Receipt{}, fmt.Errorf("hub %s: answer: %w", h.URL, err)
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
	// Code and Message are empty if the answer has none, as that of a proxy.
	Code    hubapi.Code
	Message string
	// After is the time to wait before the next request; zero if the hub does not name one.
	After time.Duration
}

func newHubError(resp *http.Response, body []byte) *HubError {
	e := &HubError{StatusCode: resp.StatusCode, Status: bundle.Clip(resp.Status)}
	var answer hubapi.Error
	if json.Unmarshal(body, &answer) == nil {
		e.Code, e.Message = answer.Code, bundle.Clip(answer.Message)
	}
	e.After = min(hubapi.RetryAfter(resp.Header, time.Now()), LongestRetry)
	return e
}

func (e *HubError) Error() string {
	if e.Message == "" {
		return "hub answered " + e.Status
	}
	return "hub answered " + e.Status + ": " + e.Message
}

// RetryAfter returns the After of a HubError, and zero for other errors.
func RetryAfter(err error) time.Duration {
	var e *HubError
	if errors.As(err, &e) {
		return e.After
	}
	return 0
}

// ErrForeignAck means that an acknowledgement is for another cluster.
var ErrForeignAck = errors.New("not for this cluster")

// OpenAck verifies an acknowledgement for the cluster uid, or for any with an empty uid, by the hub's key. The error wraps
// bundle.ErrUntrusted if that key has not signed it, or ErrForeignAck.
func OpenAck(envelope []byte, hubKey crypto.PublicKey, uid string) (bundle.Ack, error) {
	body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, envelope, hubKey)
	if err != nil {
		return bundle.Ack{}, fmt.Errorf("acknowledgement: %w", err)
	}
	ack, err := bundle.ParseAck(body)
	if err == nil && uid != "" && ack.Cluster != uid {
		err = fmt.Errorf("acknowledgement is for cluster %q, this is %q: %w", ack.Cluster, uid, ErrForeignAck)
	}
	return ack, err
}
