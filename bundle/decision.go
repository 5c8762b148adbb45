package bundle

import (
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// DecisionSchema is the version of a decision that this code writes.
const DecisionSchema = 1

// PayloadTypeDecision is the DSSE payload type of a decision, and the artifactType of its manifest.
const PayloadTypeDecision = "application/vnd.wherry.decision.v1+json"

// MaxDecisionBytes bounds the envelope of a decision. It is the bound of a manifest, in whose config it travels.
const MaxDecisionBytes = MaxManifestBytes / 2

// MaxReasonBytes bounds the reason of a decision.
const MaxReasonBytes = 500

// DecisionTagPrefix begins the tags of decisions, in the repository of their environment's records.
const DecisionTagPrefix = "gate-"

// Action is what a decision says.
type Action string

// The actions of decisions.
const (
	// Approve agrees to a promotion, or to the next ring; Reject takes that back and is a no.
	Approve Action = "approve"
	Reject  Action = "reject"
	// Override lets a promotion pass in spite of the rules that it names.
	Override Action = "override"
	// Pause stops automation for an environment until somebody resumes it.
	Pause  Action = "pause"
	Resume Action = "resume"
)

// Decision is a signed statement about what may enter an environment.
//
// It names what it is about by commit and content, and not by the digest of a record: records are signed anew at every change.
type Decision struct {
	Schema      int    `json:"schema"`
	Action      Action `json:"action"`
	Platform    string `json:"platform"`
	Environment string `json:"environment"` // the one that is to get the commit, or is paused
	// Ring is the ring that is to get the release; empty for the environment as a whole.
	Ring string `json:"ring,omitempty"`
	// BaseCommit, and Contents, the digest of each cluster type's tree, are those of the record that was judged: of the
	// environment below, or for a ring of the environment itself. Pause and Resume have none.
	BaseCommit string                   `json:"baseCommit,omitempty"`
	From       string                   `json:"from,omitempty"` // the environment of that record
	Contents   map[string]digest.Digest `json:"contents,omitempty"`
	// Rules are those that Override is about, sorted.
	Rules []string `json:"rules,omitempty"`
	// Reason is needed for Override and Reject; at most MaxReasonBytes.
	Reason string `json:"reason,omitempty"`
	// By is the name of a person for whom a hub has signed, and may be the signer's own word otherwise.
	By string `json:"by,omitempty"`
	// IssuedAt is in UTC, in whole seconds. Of two decisions of one signer on the same subject the later one counts.
	IssuedAt time.Time `json:"issuedAt"`
	// ExpiresAt ends an approval or an override; the zero time is never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// Tag returns the tag of the decision by the key with that id: "gate-", 32 digits for the subject, "-", and 16 of the key id. It is
// the same for all decisions of one signer on one subject, so that the later one takes the place of the earlier.
func (d Decision) Tag(keyID string) string {
	group := d.Action
	switch d.Action {
	case Reject:
		group = Approve
	case Resume:
		group = Pause
	}
	subject := []string{string(group), d.Platform, d.Environment, d.Ring, d.From, d.BaseCommit, d.By}
	for _, typ := range slices.Sorted(maps.Keys(d.Contents)) {
		subject = append(subject, typ, d.Contents[typ].String())
	}
	sum := sha256.Sum256([]byte(strings.Join(subject, "\x00")))
	return DecisionTagPrefix + hex.EncodeToString(sum[:16]) + "-" + keyID[:16]
}

// ParseDecision reads and checks a decision.
func ParseDecision(body []byte) (Decision, error) {
	var d Decision
	if err := json.Unmarshal(body, &d); err != nil {
		return Decision{}, fmt.Errorf("decision: %w", err)
	}
	switch {
	case d.Schema != DecisionSchema:
		return Decision{}, fmt.Errorf("decision has schema %d, this version reads %d", d.Schema, DecisionSchema)
	case !slices.Contains([]Action{Approve, Reject, Override, Pause, Resume}, d.Action):
		return Decision{}, fmt.Errorf("decision has an unknown action %q", d.Action)
	case d.Platform == "" || d.Environment == "":
		return Decision{}, fmt.Errorf("decision lacks platform or environment")
	case d.IssuedAt.IsZero():
		return Decision{}, fmt.Errorf("decision lacks its time of issue")
	case len(d.Reason) > MaxReasonBytes:
		return Decision{}, fmt.Errorf("decision: reason: %w", ErrTooLarge)
	case d.Reason == "" && (d.Action == Override || d.Action == Reject):
		return Decision{}, fmt.Errorf("decision %q lacks a reason", d.Action)
	}
	return d, nil
}

// OpenDecision verifies the envelope of a decision with one of keys, and returns it with the id of that key. The error
// wraps ErrUntrusted if none of them has signed it.
func OpenDecision(envelope []byte, keys ...crypto.PublicKey) (Decision, string, error) {
	if len(envelope) > MaxDecisionBytes {
		return Decision{}, "", fmt.Errorf("decision: %w", ErrTooLarge)
	}
	body, id, err := OpenEnvelope(PayloadTypeDecision, envelope, keys...)
	if err != nil {
		return Decision{}, "", err
	}
	d, err := ParseDecision(body)
	return d, id, err
}
