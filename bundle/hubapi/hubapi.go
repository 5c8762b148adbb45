// Package hubapi is the protocol between agents and a hub over HTTP: paths, requests, answers, limits and codes.
//
// Begin with ReportsURL and Reports on an agent's side, and with ReportsPattern and Receipt on a hub's. Both ends use
// these types, so that a field exists on both or on neither. docs/reference/hub.md is the same contract in words.
//
// Only what a key has signed may be acted on: reports and requests for enrollment by the agent's key, Receipt.Ack and
// Enrolled.Enrollment by the hub's. All else in an answer is a hint, which can delay an agent and nothing more. Fields
// are only ever added; both ends ignore fields that they do not know.
//
// The package makes no connection and verifies no signature. Envelopes are bundle's.
package hubapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// The requests of agents, as patterns of http.ServeMux.
const (
	// ReportsPattern takes Reports of the cluster whose uid is the path value "uid", and answers with a Receipt.
	ReportsPattern = "POST /v1/clusters/{uid}/reports"
	// EnrollPattern takes the envelope of a bundle.EnrollmentRequest, and answers with Enrolled.
	EnrollPattern = "POST " + EnrollPath
	// EnrollPath is the path of EnrollPattern.
	EnrollPath = "/v1/enroll"
)

// ReportsURL returns the URL for reports of the cluster with the given uid, at the hub whose URL is base.
func ReportsURL(base, uid string) (string, error) {
	return url.JoinPath(base, "v1/clusters", url.PathEscape(uid), "reports")
}

// EnrollURL returns the URL for requests for enrollment, at the hub whose URL is base.
func EnrollURL(base string) (string, error) { return url.JoinPath(base, EnrollPath) }

// Limits of requests. A hub answers a larger request with CodeTooLarge, or CodeBadRequest for the number of reports.
const (
	// MaxReports is the number of reports that one request may hold.
	MaxReports = 500
	// MaxRequestBytes bounds the body of a request with reports, compressed or not: one report of the largest size and
	// the array around it.
	MaxRequestBytes = bundle.MaxReportBytes + 4<<10
	// MaxInflatedBytes bounds a compressed body once it is unpacked.
	MaxInflatedBytes = 4 << 20
	// MaxSignatures is the number of signatures that the envelope of a report may have: each costs a verification by
	// each key.
	MaxSignatures = 4
	// MaxBodyTime bounds the time in which a hub receives one body: the largest takes 17 minutes at 1 KB a second. An
	// agent waits longer than that for the answer.
	MaxBodyTime = 20 * time.Minute
)

// Limits of answers, in bytes. An agent reads no more.
const (
	// MaxReceiptBytes has room for the acknowledgement and the rejections of MaxReports reports.
	MaxReceiptBytes = 4 << 20
	// MaxEnrolledBytes has room for an enrollment of the largest size, indented or escaped.
	MaxEnrolledBytes = 2 * bundle.MaxEnrollmentBytes
)

// ContentType is the media type of every request and answer.
const ContentType = "application/json"

// Reports is the body of a request that brings reports. With the header "Content-Encoding: gzip" it is compressed.
type Reports struct {
	// Reports holds 1 to MaxReports DSSE envelopes of type bundle.PayloadTypeReport.
	Reports []json.RawMessage `json:"reports"`
}

// worthZip is the size in bytes from which a body is compressed: a smaller one is one or two packets either way.
const worthZip = 2 << 10

// Body returns the body of the request, and its content encoding, which is empty if it is not compressed. It is at the fastest
// level, which makes the report of 200 assignments a quarter of what it is; the best one takes off 5 % more.
func (r Reports) Body() (body []byte, encoding string, err error) {
	if body, err = json.Marshal(r); err != nil || len(body) <= worthZip {
		return body, "", err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	if _, err := w.Write(body); err != nil {
		return nil, "", err
	}
	err = w.Close()
	return out.Bytes(), "gzip", err
}

// Receipt answers a request that brought reports, with status 200.
type Receipt struct {
	// Ack is the envelope of a bundle.Ack that names every report of the request that is stored, now or before;
	// absent if none is. It alone permits an agent to delete reports; the rest of a receipt is not signed.
	Ack        json.RawMessage `json:"ack,omitempty"`
	Accepted   int             `json:"accepted"`
	Duplicates int             `json:"duplicates"`
	// Rejected is in the order of the request.
	Rejected []Rejection `json:"rejected"`
	// Identity is nil if nothing is wrong with the agent's identity.
	Identity *IdentityHint `json:"identity,omitempty"`
	Pace     Pace          `json:"pace"`
	// Relayed is true if a relay answers, such as another agent of the site, which keeps the reports for somebody who
	// carries them to the hub. Ack and Identity are absent then. The agent keeps its reports, and offers them again after
	// OfferAgain.
	Relayed bool `json:"relayed,omitempty"`
	// Acks are envelopes of bundle.Ack for this cluster that have come to a relay, such as by a medium. Each of them permits
	// what Ack permits.
	Acks []json.RawMessage `json:"acks,omitempty"`
}

// OfferAgain is the time after which an agent offers a relay again what the relay has taken already: a relay may have lost
// its disk, and acknowledgements come only with an answer.
const OfferAgain = time.Hour

// Rejection is a report that was not stored, and why.
type Rejection struct {
	// Index is the report's place in the request, from 0.
	Index int `json:"index"`
	// ID is the report's bundle.ReportID, empty if it could not be read. It may be unsigned.
	ID digest.Digest `json:"id,omitempty"`
	// Cluster is the uid that the report claims.
	Cluster string `json:"cluster,omitempty"`
	Reason  Code   `json:"reason"`
	Message string `json:"message"`
	// Permanent is false if sending the same report again may help. A rejection without the field is permanent.
	Permanent bool `json:"permanent"`
}

// UnmarshalJSON decodes a rejection. Permanent is true if the field is absent.
func (r *Rejection) UnmarshalJSON(data []byte) error {
	type fields Rejection
	f := fields{Permanent: true}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*r = Rejection(f)
	return nil
}

// IdentityHint tells people, through the agent, about a problem with its identity. The agent does not act on it.
type IdentityHint struct {
	// Reason is CodeSharedIdentity, CodeKeyReplaced or CodeRetired.
	Reason  Code   `json:"reason"`
	Message string `json:"message"`
}

// Pace asks an agent not to send faster. It never makes an agent send sooner.
type Pace struct {
	// ReportsPerMinute is this agent's share of the reports that the hub takes. Zero or less means no limit.
	ReportsPerMinute int64 `json:"reportsPerMinute"`
}

// Pause returns how long an agent waits after a request with n reports, at most limit.
func (p Pace) Pause(n int, limit time.Duration) time.Duration {
	if p.ReportsPerMinute <= 0 {
		return 0
	}
	return min(time.Duration(float64(n)/float64(p.ReportsPerMinute)*float64(time.Minute)), limit)
}

// Enrolled answers a request for enrollment, with status 200.
type Enrolled struct {
	// Enrollment is the envelope of a bundle.Enrollment, signed by the hub.
	Enrollment json.RawMessage `json:"enrolment"`
}

// Error is the body of every answer with a status other than 200. Nothing of the request is stored.
type Error struct {
	Code Code `json:"code"`
	// Message is for people.
	Message string `json:"error"`
	// Kind is what was not found, such as "cluster" or "environment", with CodeNotFound and CodeUnknownName; or KindSession with
	// CodeUnauthenticated. Name is the name that nothing has, and Near are names of the same kind that are near, the nearest first.
	Kind string   `json:"kind,omitempty"`
	Name string   `json:"name,omitempty"`
	Near []string `json:"near,omitempty"`
	// RetryAfter is the time after which the same request may be sent again; zero means unknown. It travels in the
	// header Retry-After.
	RetryAfter time.Duration `json:"-"`
}

// The kinds of things in Error.Kind that callers branch on.
const (
	KindCluster = "cluster"
	KindRelease = "release"
	KindReport  = "report"
	// KindSession means that the person has signed in, and has to be sent to the login once more.
	KindSession = "session"
	// KindEndedSession means that the person has to sign in again.
	KindEndedSession = "endedSession"
)

func (e *Error) Error() string { return e.Message }

// Write writes the error as the answer to a request.
func (e *Error) Write(w http.ResponseWriter) {
	if e.RetryAfter > 0 {
		SetRetryAfter(w.Header(), e.RetryAfter)
	}
	WriteJSON(w, e.Code.Status(), e)
}

// WriteJSON writes an answer with the given status and value, which is encoded as JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // the client may have gone
}
