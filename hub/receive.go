package hub

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

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
func peek(index int, envelope []byte, uid string) (unopened, *hubapi.Rejection) {
	u := unopened{index: index, envelope: envelope, cluster: uid}
	if len(envelope) > bundle.MaxReportBytes {
		return u, u.reject(hubapi.CodeTooLarge, "it has %d bytes, at most %d", len(envelope), bundle.MaxReportBytes)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return u, u.reject(hubapi.CodeBadReport, "not a DSSE envelope: %v", err)
	}
	if len(e.Signatures) > hubapi.MaxSignatures {
		return u, u.reject(hubapi.CodeBadReport, "it has %d signatures, at most %d", len(e.Signatures), hubapi.MaxSignatures)
	}
	for _, s := range e.Signatures {
		u.keyIDs = append(u.keyIDs, s.KeyID)
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		return u, u.reject(hubapi.CodeBadReport, "payload: %v", err)
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
		return u, u.reject(hubapi.CodeBadReport, "payload: %v", err)
	}
	u.cluster = claim.Cluster.UID
	return u, nil
}

func (u unopened) reject(code hubapi.Code, format string, args ...any) *hubapi.Rejection {
	r := &hubapi.Rejection{Index: u.index, ID: u.id, Reason: code, Permanent: code.Permanent()}
	r.Message = plain(clip(fmt.Sprintf(format, args...)))
	if uidPattern.MatchString(u.cluster) {
		r.Cluster = u.cluster
	}
	return r
}

// openAll sorts envelopes into verified reports and those that are refused.
func (keys keyring) openAll(all []unopened) (verified []received, rejected []hubapi.Rejection) {
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
func (keys keyring) open(u unopened) (received, *hubapi.Rejection) {
	body, kid, until, refused := keys.verify(u)
	if refused != nil {
		return received{}, refused
	}
	report, err := bundle.ParseReport(body)
	if err != nil {
		return received{}, u.reject(hubapi.CodeBadReport, "%v", err)
	}
	if report.Cluster.UID != u.cluster {
		return received{}, u.reject(hubapi.CodeWrongCluster, "it speaks for cluster %q and was sent as %q", report.Cluster.UID, u.cluster)
	}
	if until != nil && orderOf(report).compare(*until) > 0 {
		return received{}, u.reject(hubapi.CodeKeyReplaced, "%s", replacedMessage)
	}
	if err := clean(&report); err != nil {
		return received{}, u.reject(hubapi.CodeBadReport, "%v", err)
	}
	return received{index: u.index, id: bundle.ReportID(body), kid: kid, size: len(u.envelope), body: report}, nil
}
