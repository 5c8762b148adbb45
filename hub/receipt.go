package hub

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// maxIngests bounds the requests whose reports are being verified and stored; others wait.
const maxIngests = 32

func (h *Hub) postReports(w http.ResponseWriter, r *http.Request) {
	ctx, uid := r.Context(), r.PathValue("uid")
	if _, err := h.keyring(ctx, uid); err != nil {
		h.fail(w, r, err) // before the body is read: a stranger's is not worth it
		return
	}
	if err := h.pacer.check(uid, h.now()); err != nil {
		h.fail(w, r, err)
		return
	}
	body, done, err := h.readBody(w, r, hubapi.MaxRequestBytes)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer done()
	s, rejected, err := h.takeReports(ctx, uid, r.Header.Get("Content-Encoding"), body)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.answer(w, r, uid, s, rejected)
}

// takeReports verifies and stores what a body holds.
func (h *Hub) takeReports(ctx context.Context, uid, encoding string, body []byte) (s stored, rejected []hubapi.Rejection, err error) {
	leave, err := h.pacer.enter()
	if err != nil {
		return s, nil, err
	}
	defer leave()
	select {
	case h.ingest <- struct{}{}:
		defer func() { <-h.ingest }()
	case <-ctx.Done():
		return s, nil, ctx.Err()
	}
	all, rejected, err := parseReports(uid, encoding, body)
	if err != nil {
		return s, nil, err
	}
	keys, err := h.keyring(ctx, uid) // again: the body may have taken minutes
	if err != nil {
		return s, nil, err
	}
	verified, refused := keys.openAll(all)
	if len(verified) == 0 { // a stranger takes nothing from a cluster's quota
		s, err = h.keep(ctx, uid, nil, refused, ViaHTTP)
		return s, rejected, err
	}
	settle, err := h.pacer.charge(uid, verified, h.now())
	if err != nil {
		return s, nil, err
	}
	s, err = h.keep(ctx, uid, verified, refused, ViaHTTP)
	settle(err == nil)
	return s, rejected, err
}

// parseReports reads a request's body as far as the envelopes' payloads.
func parseReports(uid, encoding string, body []byte) (all []unopened, rejected []hubapi.Rejection, err error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		if body, err = inflate(body); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, badRequest("content encoding %q: send gzip or none", encoding)
	}
	var request hubapi.Reports
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, nil, badRequest("body: %v", err)
	}
	if n := len(request.Reports); n == 0 || n > hubapi.MaxReports {
		return nil, nil, badRequest("body holds %d reports, send 1 to %d", n, hubapi.MaxReports)
	}
	for i, envelope := range request.Reports {
		u, refused := peek(i, envelope, uid)
		if refused != nil {
			rejected = append(rejected, *refused)
			continue
		}
		all = append(all, u)
	}
	return all, rejected, nil
}

func inflate(body []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, badRequest("body: %v", err)
	}
	inflated, err := io.ReadAll(io.LimitReader(z, hubapi.MaxInflatedBytes+1))
	if err != nil {
		return nil, badRequest("body: %v", err)
	}
	if len(inflated) > hubapi.MaxInflatedBytes {
		return nil, &http.MaxBytesError{Limit: hubapi.MaxInflatedBytes}
	}
	return inflated, nil
}

// answer says what became of the reports. What it acknowledges is on disk.
func (h *Hub) answer(w http.ResponseWriter, r *http.Request, uid string, s stored, rejected []hubapi.Rejection) {
	receipt := hubapi.Receipt{Accepted: s.accepted, Duplicates: s.duplicates, Identity: s.hint(), Pace: h.pacer.pace(uid, h.now()), Rejected: append(append([]hubapi.Rejection{}, rejected...), s.rejected...)}
	slices.SortFunc(receipt.Rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	if len(s.ids) == 0 && !slices.ContainsFunc(receipt.Rejected, func(r hubapi.Rejection) bool { return !r.Reason.Untrusted() }) {
		// Nobody known has signed any of it.
		first := receipt.Rejected[0]
		writeError(w, first.Reason, first.Message)
		return
	}
	if len(s.ids) > 0 {
		ack, err := h.sealAck(uid, s.ids)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		receipt.Ack = ack
	}
	writeJSON(w, http.StatusOK, receipt)
}
