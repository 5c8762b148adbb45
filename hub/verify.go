package hub

import (
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// received is a report whose signature has been verified.
type received struct {
	store.Report
	index int
	size  int // of the envelope, in bytes
}

// keyring verifies the signatures of one cluster's keys.
type keyring store.Keys

// unopened is an envelope that has not been verified.
type unopened struct {
	index    int
	envelope []byte
	id       digest.Digest // of the payload
	cluster  string        // the uid it was sent as, or claims
	keyIDs   []string      // as claimed
	// usual is the envelope, parsed, if it is in the form in which agents write it.
	usual *bundle.UsualEnvelope
}

// peek reads an envelope as far as its payload. It was sent as the cluster of the given uid; without one, as the cluster
// that the payload claims.
func peek(index int, envelope []byte, uid string) (unopened, *hubapi.Rejection) {
	u := unopened{index: index, envelope: envelope, cluster: uid}
	if len(envelope) > bundle.MaxReportBytes {
		return u, u.reject(hubapi.CodeTooLarge, "it has %d bytes, at most %d", len(envelope), bundle.MaxReportBytes)
	}
	if e, rest, ok := bundle.ParseUsualEnvelope(bundle.PayloadTypeReport, envelope); ok && len(rest) == 0 {
		return u.claiming(e)
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
	return u.of(payload)
}

// claiming completes an envelope in the usual form.
func (u unopened) claiming(e bundle.UsualEnvelope) (unopened, *hubapi.Rejection) {
	u.usual, u.keyIDs = &e, []string{e.KeyID}
	return u.of(e.Body)
}

// of sets what follows from the payload.
func (u unopened) of(payload []byte) (unopened, *hubapi.Rejection) {
	u.id = bundle.ReportID(payload)
	if u.cluster != "" {
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
	r.Message = store.Plain(store.Clip(fmt.Sprintf(format, args...)))
	if bundle.IsClusterUID(u.cluster) {
		r.Cluster = u.cluster
	}
	return r
}

// openAll returns the verified reports of envelopes, and the rejections of the others.
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
	if until != nil && store.OrderOf(report.Agent).Compare(*until) > 0 {
		return received{}, u.reject(hubapi.CodeKeyReplaced, "%s", replacedMessage)
	}
	if err := store.Clean(&report); err != nil {
		return received{}, u.reject(hubapi.CodeBadReport, "%v", err)
	}
	return received{Report: store.Report{ID: u.id, KeyID: kid, Body: report, Envelope: u.envelope, Usual: u.usual}, index: u.index, size: len(u.envelope)}, nil
}

// replacedMessage tells an agent why its key counts no more.
const replacedMessage = "its key was replaced by a newer one of the same agent: this is a copy, or was restored from a backup"

// verify returns the body of an envelope that a key of the ring has signed, and that key's id. Until is not nil if the key
// speaks only for the reports up to there.
func (k keyring) verify(u unopened) (body []byte, kid string, until *store.Order, refused *hubapi.Rejection) {
	if u.usual != nil {
		if key, ok := k.Current[u.usual.KeyID].(ed25519.PublicKey); ok && u.usual.SignedBy(key) {
			return u.usual.Body, u.usual.KeyID, nil, nil
		}
	}
	claimed := func(id string) bool { return slices.Contains(u.keyIDs, id) }
	var current []crypto.PublicKey
	named := false
	for id, key := range k.Current {
		current = append(current, key)
		named = named || claimed(id)
	}
	body, kid, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, u.envelope, current...)
	if err == nil {
		return body, kid, nil, nil
	}
	if !errors.Is(err, bundle.ErrUntrusted) {
		return nil, "", nil, u.reject(hubapi.CodeBadReport, "%v", err)
	}
	for id, f := range k.Previous {
		if !claimed(id) {
			continue
		}
		named = true
		if body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeReport, u.envelope, f.Key); err == nil {
			return body, id, &f.Until, nil
		}
	}
	if named {
		return nil, "", nil, u.reject(hubapi.CodeBadSignature, "its signature is not that of the key it names")
	}
	return nil, "", nil, u.reject(hubapi.CodeUnknownKey, "no key registered for cluster %s has signed it", u.cluster)
}
