package hub

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
)

// Code says why a report or a request was refused.
type Code string

// The codes of refusals.
const (
	CodeUnknownCluster Code = "UnknownCluster" // no such uid is registered
	CodeUnknownKey     Code = "UnknownKey"     // the key is not registered for the cluster, or revoked
	CodeBadSignature   Code = "BadSignature"   // a registered key is named and did not sign this
	CodeWrongCluster   Code = "WrongCluster"   // the report speaks for another cluster than it was sent as
	CodeBadReport      Code = "BadReport"      // it is no envelope of a report, or its values are out of bounds
	CodeTooLarge       Code = "TooLarge"
	CodeConflict       Code = "Conflict"    // another report with its incarnation and seq is stored
	CodeKeyReplaced    Code = "KeyReplaced" // the agent has a newer key, and this report should be signed by that
	CodeRetired        Code = "Retired"     // the cluster was retired

	CodeBadRequest  Code = "BadRequest"  // the request as a whole
	CodeBusy        Code = "Busy"        // too many at once
	CodeOverQuota   Code = "OverQuota"   // more of the cluster than its pace or its quota allow
	CodeTooSlow     Code = "TooSlow"     // the body did not arrive
	CodeWrongHost   Code = "WrongHost"   // a hub on loopback was asked for by another machine's name
	CodeUnavailable Code = "Unavailable" // the hub cannot read or write now

	// Of requests for enrollment, beside Retired, KeyReplaced and some above.
	CodeBadToken     Code = "BadToken" // there is no such token, or its key has not signed
	CodeTokenExpired Code = "TokenExpired"
	CodeTokenUsed    Code = "TokenUsed"
	CodeTokenRevoked Code = "TokenRevoked"
	CodeWrongScope   Code = "WrongScope"        // the token is for another cluster type, environment or ring
	CodeWrongHub     Code = "WrongHub"          // the request is for another hub
	CodeExists       Code = "AlreadyRegistered" // uid, name or key belong to another registration
)

// untrusted codes mean that no registered key vouches for the report.
func (c Code) untrusted() bool {
	switch c {
	case CodeUnknownCluster, CodeUnknownKey, CodeBadSignature, CodeWrongCluster, CodeKeyReplaced, CodeRetired:
		return true
	}
	return false
}

// permanent codes are those that sending the same report again cannot change.
func (c Code) permanent() bool { return c != CodeUnknownCluster && c != CodeUnknownKey }

// Rejection is a report that was not stored, and why.
type Rejection struct {
	// Index is its place among what was sent, from 0.
	Index int `json:"index"`
	// ID is the report's, empty where it could not be read. Nobody may have signed it.
	ID digest.Digest `json:"id,omitempty"`
	// Cluster is the uid that the report claims.
	Cluster string `json:"cluster,omitempty"`
	Reason  Code   `json:"reason"`
	Message string `json:"message"`
	// Permanent is true where sending the same report again cannot help.
	Permanent bool `json:"permanent"`
}

// maxSignatures bounds the signatures of an envelope: each costs a verification by each key.
const maxSignatures = 4

// received is a report whose signature has been verified.
type received struct {
	index int
	id    digest.Digest
	kid   string
	size  int // of the envelope, in bytes
	body  bundle.Report
}

// unopened is an envelope of which nothing has been verified.
type unopened struct {
	index    int
	envelope []byte
	id       digest.Digest // of the payload
	cluster  string        // the uid it was sent as, or claims
	keyIDs   []string      // as claimed
}

// peek reads an envelope as far as its payload, sent as the cluster of the given uid; without a uid, the
// one that the payload claims.
func peek(index int, envelope []byte, uid string) (unopened, *Rejection) {
	u := unopened{index: index, envelope: envelope, cluster: uid}
	if len(envelope) > bundle.MaxReportBytes {
		return u, u.reject(CodeTooLarge, "it has %d bytes, at most %d", len(envelope), bundle.MaxReportBytes)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return u, u.reject(CodeBadReport, "not a DSSE envelope: %v", err)
	}
	if len(e.Signatures) > maxSignatures {
		return u, u.reject(CodeBadReport, "it has %d signatures, at most %d", len(e.Signatures), maxSignatures)
	}
	for _, s := range e.Signatures {
		u.keyIDs = append(u.keyIDs, s.KeyID)
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		return u, u.reject(CodeBadReport, "payload: %v", err)
	}
	u.id = bundle.ReportID(payload)
	if uid != "" {
		return u, nil
	}
	var claim struct {
		Cluster struct {
			UID string `json:"uid"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(payload, &claim); err != nil {
		return u, u.reject(CodeBadReport, "payload: %v", err)
	}
	u.cluster = claim.Cluster.UID
	return u, nil
}

func (u unopened) reject(code Code, format string, args ...any) *Rejection {
	r := &Rejection{Index: u.index, ID: u.id, Reason: code, Permanent: code.permanent()}
	r.Message = plain(clip(fmt.Sprintf(format, args...)))
	if uidPattern.MatchString(u.cluster) {
		r.Cluster = u.cluster
	}
	return r
}

// openAll sorts envelopes into verified reports and those that are refused.
func (keys keyring) openAll(all []unopened) (verified []received, rejected []Rejection) {
	for _, u := range all {
		r, refused := keys.open(u)
		if refused != nil {
			rejected = append(rejected, *refused)
			continue
		}
		verified = append(verified, r)
	}
	return verified, rejected
}

// open verifies that a key of the ring signed the envelope and that it holds a report of its cluster.
func (keys keyring) open(u unopened) (received, *Rejection) {
	body, kid, until, refused := keys.verify(u)
	if refused != nil {
		return received{}, refused
	}
	report, err := bundle.ParseReport(body)
	if err != nil {
		return received{}, u.reject(CodeBadReport, "%v", err)
	}
	if report.Cluster.UID != u.cluster {
		return received{}, u.reject(CodeWrongCluster, "it speaks for cluster %q and was sent as %q", report.Cluster.UID, u.cluster)
	}
	if until != nil && orderOf(report).compare(*until) > 0 {
		return received{}, u.reject(CodeKeyReplaced, "%s", replacedMessage)
	}
	if err := clean(&report); err != nil {
		return received{}, u.reject(CodeBadReport, "%v", err)
	}
	return received{index: u.index, id: bundle.ReportID(body), kid: kid, size: len(u.envelope), body: report}, nil
}
