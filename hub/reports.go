package hub

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/store"
)

// agentAPI answers agents.
type agentAPI struct {
	intake   intake
	enroller enroller
	gate     *admission.Gate
	now      func() time.Time
	fail     func(http.ResponseWriter, *http.Request, error)
}

func (a agentAPI) postReports(w http.ResponseWriter, r *http.Request) {
	receipt, err := a.takeReports(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	hubapi.WriteJSON(w, http.StatusOK, receipt)
}

// takeReports verifies and stores the reports of a request. All reports that the receipt acknowledges are on disk.
func (a agentAPI) takeReports(w http.ResponseWriter, r *http.Request) (receipt hubapi.Receipt, err error) {
	ctx, uid := r.Context(), r.PathValue("uid")
	begun := time.Now()
	keys, err := a.intake.keyring(ctx, uid)
	if err != nil {
		return receipt, err // without reading the body of a stranger
	}
	if err := a.gate.Check(uid, a.now()); err != nil {
		return receipt, err
	}
	body, done, err := a.gate.ReadBody(w, r, hubapi.MaxRequestBytes)
	if err != nil {
		return receipt, err
	}
	defer done()
	end, err := a.gate.BeginReports(ctx)
	if err != nil {
		return receipt, err
	}
	defer end()
	verified, refused, unread, err := a.verify(r, keys, begun, body)
	if err != nil {
		return receipt, err
	}
	t, err := a.store(ctx, uid, verified, refused)
	if err != nil {
		return receipt, err
	}
	return a.receiptOf(uid, t, unread)
}

// verify returns the reports of a body that keys have signed, and the others in two parts: those that are not read as far as
// that, and those that were refused.
func (a agentAPI) verify(r *http.Request, keys keyring, begun time.Time, body []byte) (verified []received, refused, unread []hubapi.Rejection, err error) {
	ctx, uid := r.Context(), r.PathValue("uid")
	verifying, err := a.gate.BeginVerifying(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer verifying()
	all, unread, err := parseReports(uid, r.Header.Get("Content-Encoding"), body)
	if err != nil {
		return nil, nil, nil, err
	}
	if time.Since(begun) > keysTime { // the body may have taken minutes
		if keys, err = a.intake.keyring(ctx, uid); err != nil {
			return nil, nil, nil, err
		}
	}
	verified, refused = keys.openAll(all)
	return verified, refused, unread, nil
}

// keysTime bounds the age of keys by which reports are verified: one that was revoked meanwhile speaks no more.
const keysTime = 500 * time.Millisecond

// store stores verified reports, and charges them to the cluster.
func (a agentAPI) store(ctx context.Context, uid string, verified []received, refused []hubapi.Rejection) (taken, error) {
	if len(verified) == 0 { // a stranger takes nothing from a cluster's quota
		return a.intake.keep(ctx, uid, nil, refused, store.ViaHTTP)
	}
	size := 0
	for _, r := range verified {
		size += r.size
	}
	settle, err := a.gate.Charge(uid, len(verified), size, a.now())
	if err != nil {
		return taken{}, err
	}
	t, err := a.intake.keep(ctx, uid, verified, refused, store.ViaHTTP)
	var over *store.QuotaError
	if errors.As(err, &over) {
		settle(true) // one that comes again at once is refused without the database
		return t, admission.OverQuota(over)
	}
	settle(err == nil)
	return t, err
}

// receiptOf returns the answer to a request. The error is a *hubapi.Error if no key in force has signed any of it.
func (a agentAPI) receiptOf(uid string, t taken, unread []hubapi.Rejection) (hubapi.Receipt, error) {
	receipt := hubapi.Receipt{
		Accepted: t.accepted, Duplicates: t.duplicates, Identity: t.hint(), Pace: a.gate.Pace(uid, a.now()),
		Rejected: append(append([]hubapi.Rejection{}, unread...), t.rejected...),
	}
	slices.SortFunc(receipt.Rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	if len(t.stored) > 0 {
		ack, err := a.intake.sign.ack(uid, t.stored)
		receipt.Ack = ack
		return receipt, err
	}
	if !slices.ContainsFunc(receipt.Rejected, func(r hubapi.Rejection) bool { return !r.Reason.Untrusted() }) {
		first := receipt.Rejected[0]
		return receipt, &hubapi.Error{Code: first.Reason, Message: first.Message}
	}
	return receipt, nil
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
	if all, ok := usualReports(uid, body); ok {
		return all, nil, nil
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

// usualReports reads a body that is written as agents write it, with the usual envelopes alone. Others take a JSON parser.
func usualReports(uid string, body []byte) (all []unopened, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(body), []byte(`{"reports":[`))
	if !ok {
		return nil, false
	}
	for {
		e, next, ok := bundle.ParseUsualEnvelope(bundle.PayloadTypeReport, rest)
		envelope := rest[:len(rest)-len(next)]
		if !ok || len(envelope) > bundle.MaxReportBytes || len(all) == hubapi.MaxReports {
			return nil, false
		}
		u, _ := unopened{index: len(all), envelope: envelope, cluster: uid}.claiming(e)
		all = append(all, u)
		switch {
		case string(next) == "]}":
			return all, true
		case len(next) == 0 || next[0] != ',':
			return nil, false
		}
		rest = next[1:]
	}
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
		return nil, admission.TooLarge(hubapi.MaxInflatedBytes)
	}
	return inflated, nil
}

func (a agentAPI) postEnroll(w http.ResponseWriter, r *http.Request) {
	body, done, err := a.gate.ReadBody(w, r, bundle.MaxEnrollmentBytes)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer done()
	end, err := a.gate.BeginEnrollment(r.Context())
	if err != nil {
		return // the agent has gone
	}
	defer end()
	answer, err := a.enroller.enroll(r.Context(), body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	hubapi.WriteJSON(w, http.StatusOK, hubapi.Enrolled{Enrollment: answer})
}
