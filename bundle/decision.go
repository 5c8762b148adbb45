package bundle

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

// DecisionSchema is the version of a decision that this code writes.
const DecisionSchema = 1

// PayloadTypeDecision is the DSSE payload type of a decision, and the artifactType of its manifest.
const PayloadTypeDecision = "application/vnd.wherry.decision.v1+json"

// Bounds of a decision. Sizes are in bytes.
const (
	// MaxDecisionBytes bounds the envelope of a decision. In a descriptor's data field, a third larger, it still fits a manifest.
	MaxDecisionBytes = 40 << 10
	// MaxReasonBytes bounds the reason of a decision.
	MaxReasonBytes = 500
	// MaxDecisionContents bounds the cluster types that a decision lists one by one; see DecisionContents.
	MaxDecisionContents = 64
	// MaxDecisionRules bounds the rules that an override names.
	MaxDecisionRules = 32

	maxBaseCommit   = 128
	maxDecisionName = maxClusterName // of platforms, environments, rings, cluster types, rules and people
)

// AllContents is the name under which a decision has one digest of the contents of all cluster types; see DecisionContents.
const AllContents = "*"

// Prefixes of the tags of decisions, in the repository of their environment's records.
const (
	DecisionTagPrefix = "gate-"
	// ContentTagPrefix is that of decisions about the content of one workload, of which there are many.
	ContentTagPrefix = "content-"
)

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

// OverridableRules returns the rules of a gate that an Override like d may name: of a promotion, or of one workload.
func (d Decision) OverridableRules() []string {
	if d.IsContent() {
		return []string{"approvals", "content"}
	}
	return []string{"approvals", "check", "cohort", "compliant", "failed", "failures", "quarantine", "removals", "reported", "required", "schedule", "soak"}
}

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
	// BaseCommit, From and Contents are those of the record that was judged: of the environment below, or for a ring of the
	// environment itself. From is the record's environment. BaseCommit is empty for what is published from plain folders, and
	// Contents is what DecisionContents returns, or nil if the content of workloads has decisions of its own. Pause and Resume have none
	// of the three, and no ring.
	BaseCommit string                   `json:"baseCommit,omitempty"`
	From       string                   `json:"from,omitempty"`
	Contents   map[string]digest.Digest `json:"contents,omitempty"`
	// Workload is what a decision about content is about: a revision that the environment From has. Then there is no ring, no commit
	// and no contents.
	Workload DecisionWorkload `json:"workload,omitzero"`
	// Rules are those that Override is about, sorted, each once. Other actions have none.
	Rules []string `json:"rules,omitempty"`
	// Reason is needed for Override and Reject. It is one line of at most MaxReasonBytes, without control characters.
	Reason string `json:"reason,omitempty"`
	// Again is that of Resume: what was undone before may be released again.
	Again bool `json:"again,omitempty"`
	// By is the name of a person for whom a hub has signed, and may be the signer's own word otherwise.
	By string `json:"by,omitempty"`
	// IssuedAt is in UTC, in whole seconds. Of two decisions of one signer on the same subject the later one counts.
	IssuedAt time.Time `json:"issuedAt"`
	// ExpiresAt ends an approval or an override; the zero time is never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// DecisionWorkload is a revision of a workload.
type DecisionWorkload struct {
	// Registration is empty for the platform's own workloads.
	Registration string `json:"registration,omitempty"`
	Name         string `json:"name"`
	// Revision is that of the ledger; empty for the removal of the workload.
	Revision digest.Digest `json:"revision,omitempty"`
}

// String returns REGISTRATION/NAME, or NAME for a workload of the platform's own.
func (w DecisionWorkload) String() string {
	if w.Registration == "" {
		return w.Name
	}
	return w.Registration + "/" + w.Name
}

// DecisionContents returns what a decision says of the contents of a record, given the digest of each cluster type's tree: the
// same, or for more than MaxDecisionContents cluster types one digest of them all, under AllContents, so that a decision stays
// small in the largest fleet.
func DecisionContents(trees map[string]digest.Digest) map[string]digest.Digest {
	if len(trees) <= MaxDecisionContents {
		return maps.Clone(trees)
	}
	all := digest.SHA256.Digester()
	for _, typ := range slices.Sorted(maps.Keys(trees)) {
		fmt.Fprintf(all.Hash(), "%s %s\n", typ, trees[typ])
	}
	return map[string]digest.Digest{AllContents: all.Digest()}
}

// IsAbout reports whether d is about the same as other: the same ring, commit, contents and workload.
func (d Decision) IsAbout(other Decision) bool {
	return d.Ring == other.Ring && d.From == other.From && d.BaseCommit == other.BaseCommit && d.Workload == other.Workload && maps.Equal(d.Contents, other.Contents)
}

// subject is what d is about; a later decision of the same signer on the same subject takes its place.
func (d Decision) subject() []string {
	group := d.Action
	switch d.Action {
	case Reject:
		group = Approve
	case Resume:
		group = Pause
	}
	subject := []string{string(group), d.Platform, d.Environment, d.Ring, d.From, d.BaseCommit, d.By}
	if d.IsContent() {
		return append(subject, d.Workload.Registration, d.Workload.Name, d.Workload.Revision.String())
	}
	for _, typ := range slices.Sorted(maps.Keys(d.Contents)) {
		subject = append(subject, typ, d.Contents[typ].String())
	}
	return subject
}

// IsContent reports whether d is about the content of one workload.
func (d Decision) IsContent() bool { return d.Workload != DecisionWorkload{} }

// Tag returns the tag of the decision by the key with that id, as KeyID returns it: "gate-", or "content-" for a decision about a
// workload, 32 digits for the subject, "-", and 16 of the key id. It is the same for all decisions of one signer on one subject, so that the later one takes the place of the
// earlier. Approve and Reject have the same subject, and so have Pause and Resume.
func (d Decision) Tag(keyID string) string {
	sum := sha256.Sum256([]byte(strings.Join(d.subject(), "\x00")))
	prefix := DecisionTagPrefix
	if d.IsContent() {
		prefix = ContentTagPrefix
	}
	return prefix + hex.EncodeToString(sum[:16]) + "-" + keyID[:min(16, len(keyID))]
}

// KeptTag returns the tag under which the decision in an envelope, by the key with that id, stays when another one takes its place:
// Tag, "-", and 16 digits of the envelope's digest.
func (d Decision) KeptTag(keyID string, envelope []byte) string {
	sum := sha256.Sum256(envelope)
	return d.Tag(keyID) + "-" + hex.EncodeToString(sum[:8])
}

// HasTag reports whether tag is Tag or KeptTag.
func (d Decision) HasTag(tag, keyID string, envelope []byte) bool {
	return tag == d.Tag(keyID) || tag == d.KeptTag(keyID, envelope)
}

// IsDecisionTag reports whether a tag is that of a decision, by its prefix.
func IsDecisionTag(tag string) bool {
	return strings.HasPrefix(tag, DecisionTagPrefix) || strings.HasPrefix(tag, ContentTagPrefix)
}

// IsKeptTag reports whether a tag has the form of KeptTag.
func IsKeptTag(tag string) bool { return IsDecisionTag(tag) && strings.Count(tag, "-") == 3 }

// Marshal returns the decision's bytes, the same for the same decision. It returns an error if ParseDecision would.
func (d Decision) Marshal() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// ParseDecision reads and checks a decision. Its errors are of type *Refusal.
func ParseDecision(body []byte) (Decision, error) {
	var d Decision
	if err := json.Unmarshal(body, &d); err != nil {
		return Decision{}, Refuse(BadContent, "decision: %v", err)
	}
	if d.Schema > DecisionSchema {
		return Decision{}, Refuse(UnsupportedSchema, "decision has schema %d, this version reads %d: %s", d.Schema, DecisionSchema, tooNew)
	}
	if err := d.check(); err != nil {
		return Decision{}, Refuse(BadContent, "%v", err)
	}
	return d, nil
}

var (
	// baseCommit is the form of a commit's hash, and of what people give to wherry publish --commit in place of one.
	baseCommit   = lazyregexp.New(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)
	hexKeyID     = lazyregexp.New(`^[0-9a-f]{64}$`)
	decisionRule = lazyregexp.New(`^[a-z][a-zA-Z-]*$`)
)

func (d Decision) check() error {
	aboutContent := d.Action == Approve || d.Action == Reject || d.Action == Override
	switch {
	case d.Schema != DecisionSchema:
		return fmt.Errorf("decision has schema %d, this version reads %d", d.Schema, DecisionSchema)
	case !aboutContent && d.Action != Pause && d.Action != Resume:
		return fmt.Errorf("decision has an unknown action %q", d.Action)
	case d.Platform == "" || d.Environment == "":
		return errors.New("decision lacks platform or environment")
	case d.Reason == "" && (d.Action == Override || d.Action == Reject):
		return fmt.Errorf("decision %q lacks a reason", d.Action)
	case len(d.Reason) > MaxReasonBytes:
		return fmt.Errorf("decision has a reason of %d bytes, at most %d are allowed", len(d.Reason), MaxReasonBytes)
	case d.Action == Override && len(d.Rules) == 0:
		return errors.New("decision names no rule to override")
	case d.Action != Override && len(d.Rules) > 0:
		return fmt.Errorf("decision %q names rules", d.Action)
	case !aboutContent && (d.Ring != "" || d.From != "" || d.BaseCommit != "" || len(d.Contents) > 0 || d.IsContent()):
		return fmt.Errorf("decision %q names a ring, a commit, contents or a workload", d.Action)
	case d.IsContent() && (d.Ring != "" || d.BaseCommit != "" || len(d.Contents) > 0):
		return errors.New("decision about a workload names a ring, a commit or contents")
	case d.Again && d.Action != Resume:
		return fmt.Errorf("decision %q lets what was undone be released again", d.Action)
	case aboutContent && d.From == "":
		return fmt.Errorf("decision %q lacks the record's environment", d.Action)
	case aboutContent && !d.IsContent() && len(d.Contents) == 0 && (d.BaseCommit == "" || d.Ring != ""):
		return fmt.Errorf("decision %q lacks contents", d.Action)
	case d.BaseCommit != "" && (len(d.BaseCommit) > maxBaseCommit || !baseCommit.MatchString(d.BaseCommit)):
		return fmt.Errorf("decision has the base commit %q: not the name of a commit", d.BaseCommit)
	}
	if d.Reason != "" {
		if err := CheckMessage(d.Reason); err != nil {
			return fmt.Errorf("decision's reason: %w", err)
		}
	}
	for _, name := range []string{d.Platform, d.Environment, d.Ring, d.From, d.By} {
		if name != "" && !plainName(name) {
			return fmt.Errorf("decision has the name %q", name)
		}
	}
	if err := d.checkLists(); err != nil {
		return err
	}
	if err := d.checkWorkload(); err != nil {
		return err
	}
	return d.checkTimes()
}

func (d Decision) checkLists() error {
	switch {
	case len(d.Rules) > MaxDecisionRules:
		return fmt.Errorf("decision names %d rules, at most %d are allowed", len(d.Rules), MaxDecisionRules)
	case len(d.Contents) > MaxDecisionContents:
		return fmt.Errorf("decision names %d cluster types, at most %d are allowed", len(d.Contents), MaxDecisionContents)
	}
	for i, rule := range d.Rules {
		if len(rule) > maxDecisionName || !decisionRule.MatchString(rule) {
			return fmt.Errorf("decision has the rule %q", rule)
		}
		if i > 0 && rule <= d.Rules[i-1] {
			return errors.New("decision's rules are not sorted, each once")
		}
	}
	for typ, content := range d.Contents {
		if err := content.Validate(); err != nil || content.Algorithm() != digest.SHA256 || !plainName(typ) {
			return fmt.Errorf("decision has the content %q for cluster type %q", content, typ)
		}
	}
	return nil
}

func (d Decision) checkWorkload() error {
	w := d.Workload
	switch {
	case !d.IsContent():
		return nil
	case !plainName(w.Name), w.Registration != "" && !plainName(w.Registration):
		return fmt.Errorf("decision has the workload %q", w)
	case w.Revision != "" && (w.Revision.Validate() != nil || w.Revision.Algorithm() != digest.SHA256):
		return fmt.Errorf("decision has the revision %q", w.Revision)
	}
	return nil
}

func (d Decision) checkTimes() error {
	if d.IssuedAt.IsZero() {
		return errors.New("decision lacks its time of issue")
	}
	if !wholeUTC(d.IssuedAt) {
		return fmt.Errorf("decision is issued at %s: not a whole second in UTC", d.IssuedAt.Format(time.RFC3339Nano))
	}
	switch {
	case d.ExpiresAt.IsZero():
		return nil
	case d.Action != Approve && d.Action != Override:
		return fmt.Errorf("decision %q has an end", d.Action)
	case !wholeUTC(d.ExpiresAt):
		return fmt.Errorf("decision expires at %s: not a whole second in UTC", d.ExpiresAt.Format(time.RFC3339Nano))
	case !d.ExpiresAt.After(d.IssuedAt):
		return errors.New("decision expires before it is issued")
	}
	return nil
}

// plainName reports whether s may be a name in a decision: not empty, bounded, and UTF-8 without characters that have an effect
// in place of a form.
func plainName(s string) bool { return len(s) <= maxDecisionName && CheckMessage(s) == nil }

func wholeUTC(t time.Time) bool {
	_, offset := t.Zone()
	return offset == 0 && t.Nanosecond() == 0 && t.Year() >= 1970 && t.Year() <= 9999
}

// SealDecision returns d in an envelope signed by key.
func SealDecision(d Decision, key signature.Signer) ([]byte, error) {
	body, err := d.Marshal()
	if err != nil {
		return nil, err
	}
	envelope, err := SealEnvelopeBy(PayloadTypeDecision, body, key)
	if err == nil && len(envelope) > MaxDecisionBytes {
		err = fmt.Errorf("decision: %d bytes: %w (at most %d)", len(envelope), ErrTooLarge, MaxDecisionBytes)
	}
	return envelope, err
}

// ReadDecision reads the decision in an envelope, and the id of the key that is said to have signed it, without verifying
// either. Its errors are of type *Refusal.
func ReadDecision(envelope []byte) (d Decision, keyID string, err error) {
	if len(envelope) > MaxDecisionBytes {
		return d, "", Refuse(TooLarge, "decision of %d bytes, at most %d are allowed", len(envelope), MaxDecisionBytes)
	}
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return d, "", Refuse(BadContent, "decision's envelope: %v", err)
	}
	switch {
	case isNewer(env.PayloadType, PayloadTypeDecision):
		return d, "", Refuse(UnsupportedSchema, "envelope holds %q: %s", env.PayloadType, tooNew)
	case env.PayloadType != PayloadTypeDecision:
		return d, "", Refuse(BadContent, "envelope holds %q, not a decision", env.PayloadType)
	case len(env.Signatures) != 1:
		return d, "", Refuse(Unsigned, "decision has %d signatures, and is to have one", len(env.Signatures))
	case !hexKeyID.MatchString(env.Signatures[0].KeyID):
		return d, "", Refuse(BadContent, "decision's signature names the key %q", env.Signatures[0].KeyID)
	}
	body, err := env.DecodeB64Payload()
	if err != nil {
		return d, "", Refuse(BadContent, "decision's envelope: %v", err)
	}
	d, err = ParseDecision(body)
	return d, env.Signatures[0].KeyID, err
}

// OpenDecision verifies the envelope of a decision with one of keys, and returns it with the id of that key. The error
// wraps ErrUntrusted if none of them has signed it, and is a *Refusal for what is no decision.
func OpenDecision(envelope []byte, keys ...crypto.PublicKey) (Decision, string, error) {
	d, claimed, err := ReadDecision(envelope)
	if err != nil {
		return Decision{}, "", err
	}
	_, id, err := OpenEnvelope(PayloadTypeDecision, envelope, keys...)
	if err != nil {
		return Decision{}, "", err
	}
	if id != claimed {
		return Decision{}, "", fmt.Errorf("decision names another key than its signer's: %w", ErrUntrusted)
	}
	return d, id, nil
}

// DecisionManifest returns the blobs that store an envelope, in the order in which to push them, the manifest last.
func DecisionManifest(envelope []byte) ([]Blob, error) {
	return envelopeManifest(PayloadTypeDecision, envelope)
}

// FetchDecision reads the envelope of a decision from a repository of records, without verifying it. The error wraps
// errdef.ErrNotFound if the tag, or what it points at, is not there, and is a *Refusal if it points at something else.
func FetchDecision(ctx context.Context, src Source, tag string) ([]byte, error) {
	desc, err := ResolveManifest(ctx, src, tag)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", tag, err)
	}
	data, err := ReadBlob(ctx, src, desc, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", tag, err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Refuse(BadContent, "decision %s: manifest: %v", tag, err)
	}
	if m.ArtifactType != PayloadTypeDecision || m.Config.MediaType != PayloadTypeDecision {
		return nil, Refuse(BadContent, "manifest %s has artifactType %q and config %q: no decision", desc.Digest, m.ArtifactType, m.Config.MediaType)
	}
	envelope, err := ReadBlob(ctx, src, m.Config, MaxDecisionBytes)
	if err != nil {
		return nil, fmt.Errorf("decision %s: %w", tag, err)
	}
	return envelope, nil
}
