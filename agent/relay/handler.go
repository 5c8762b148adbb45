package relay

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Bounds of the requests that are being received.
const (
	maxBodies          = 4 // at a time, of a little more than 1 MiB each
	maxBodiesOfAddress = 2
	bodyTime           = time.Minute      // for a body to arrive, in the network of a site
	fullRetry          = 10 * time.Minute // after which an agent may ask again whether there is room
	minRetry, maxRetry = time.Second, 10 * time.Second
)

// Options configures a Handler. All fields are required.
type Options struct {
	// Own is the uid of the agent's own cluster, whose reports do not pass here.
	Own func() string
	// HubKey is the pinned key of the hub; nil is none.
	HubKey func() crypto.PublicKey
	Now    func() time.Time
	Log    *slog.Logger
}

// Handler returns the handler of hubapi.ReportsPattern, and of /readyz, as a hub has it: it tells who asks that reports are taken.
func (r *Relay) Handler(o Options) http.Handler {
	h := &handler{relay: r, Options: o, bodies: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc(hubapi.ReportsPattern, h.postReports)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return mux
}

type handler struct {
	relay *Relay
	Options

	mu     sync.Mutex
	bodies map[string]int // that are being received, by address
	total  int

	one sync.Mutex // held by the request that is unpacked and stored
}

func (h *handler) postReports(w http.ResponseWriter, r *http.Request) {
	receipt, err := h.take(w, r)
	var refused *hubapi.Error
	switch {
	case err == nil:
		hubapi.WriteJSON(w, http.StatusOK, receipt)
		return
	case errors.As(err, &refused):
	default:
		h.Log.Error("reports of another agent are not stored", "err", err)
		refused = &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the relay cannot write to its disk", RetryAfter: fullRetry}
	}
	w.Header().Set("Connection", "close") // nothing more of a body is awaited
	refused.Write(w)
}

func (h *handler) take(w http.ResponseWriter, r *http.Request) (hubapi.Receipt, error) {
	uid := r.PathValue("uid")
	switch {
	case !bundle.IsClusterUID(uid):
		return hubapi.Receipt{}, &hubapi.Error{Code: hubapi.CodeBadRequest, Message: "the path names no uid of a cluster"}
	case uid == h.Own():
		return hubapi.Receipt{}, &hubapi.Error{Code: hubapi.CodeWrongCluster, Message: "this uid is that of the relay's own cluster"}
	}
	body, err := h.read(w, r)
	if err != nil {
		return hubapi.Receipt{}, err
	}
	h.one.Lock()
	defer h.one.Unlock()
	reports, err := parse(r.Header.Get("Content-Encoding"), body)
	if err != nil {
		return hubapi.Receipt{}, err
	}
	receipt, err := h.relay.Take(uid, reports, h.HubKey(), h.Now())
	if err != nil {
		return hubapi.Receipt{}, err
	}
	if receipt.Accepted+receipt.Duplicates == 0 && !permanent(receipt.Rejected) {
		return hubapi.Receipt{}, &hubapi.Error{Code: hubapi.CodeUnavailable, Message: fullMessage, RetryAfter: fullRetry}
	}
	if receipt.Accepted > 0 {
		h.Log.Debug("reports of another agent stored", "cluster", uid, "reports", receipt.Accepted)
	}
	return receipt, nil
}

// permanent reports whether all rejections are.
func permanent(all []hubapi.Rejection) bool {
	for _, r := range all {
		if !r.Permanent {
			return false
		}
	}
	return true
}

// read returns the body of a request, if there is a place for it.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	leave, ok := h.enter(addressOf(r.RemoteAddr))
	if !ok {
		return nil, &hubapi.Error{
			Code: hubapi.CodeBusy, Message: "too many reports are being taken at once; try again later", RetryAfter: minRetry + rand.N(maxRetry-minRetry),
		}
	}
	defer leave()
	control := http.NewResponseController(w) // a test without a connection does not support it
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, hubapi.MaxRequestBytes))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge(hubapi.MaxRequestBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &hubapi.Error{Code: hubapi.CodeTooSlow, Message: fmt.Sprintf("the body took longer than %s", bodyTime)}
	}
	return nil, badRequest("body: %v", err)
}

// enter takes a place for a body. The caller calls leave.
func (h *handler) enter(address string) (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total >= maxBodies || h.bodies[address] >= maxBodiesOfAddress {
		return nil, false
	}
	h.total++
	h.bodies[address]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.total--
		if h.bodies[address]--; h.bodies[address] == 0 {
			delete(h.bodies, address)
		}
	}, true
}

// addressOf is the address by which the bodies of a client are counted. A client of IPv6 has a whole network of them.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}

// parse reads the envelopes of a body.
func parse(encoding string, body []byte) ([]json.RawMessage, error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		var err error
		if body, err = inflate(body); err != nil {
			return nil, err
		}
	default:
		return nil, badRequest("content encoding %q: send gzip or none", encoding)
	}
	var request hubapi.Reports
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, badRequest("body: %v", err)
	}
	if n := len(request.Reports); n == 0 || n > hubapi.MaxReports {
		return nil, badRequest("body holds %d reports, send 1 to %d", n, hubapi.MaxReports)
	}
	return request.Reports, nil
}

func inflate(body []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, badRequest("body: %v", err)
	}
	inflated, err := io.ReadAll(io.LimitReader(z, hubapi.MaxInflatedBytes+1))
	switch {
	case err != nil:
		return nil, badRequest("body: %v", err)
	case len(inflated) > hubapi.MaxInflatedBytes:
		return nil, tooLarge(hubapi.MaxInflatedBytes)
	}
	return inflated, nil
}

func badRequest(format string, args ...any) error {
	return &hubapi.Error{Code: hubapi.CodeBadRequest, Message: bundle.Clip(fmt.Sprintf(format, args...))}
}

func tooLarge(limit int64) error {
	return &hubapi.Error{Code: hubapi.CodeTooLarge, Message: fmt.Sprintf("the body exceeds %d bytes; send less at once", limit)}
}
