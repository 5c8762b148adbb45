package bundle

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// ReportSchema is the version of reports and acknowledgements that this code writes.
const ReportSchema = 1

// ReportKind is the occasion of a report.
type ReportKind string

// The kinds of report. All of them carry the whole current state, so that the newest alone is enough.
const (
	Snapshot  ReportKind = "snapshot"
	Event     ReportKind = "event"
	Heartbeat ReportKind = "heartbeat"
)

// Report is a compliance report: the state of a cluster against its assignments.
type Report struct {
	Schema  int           `json:"schema"`
	Cluster ReportCluster `json:"cluster"`
	Agent   ReportAgent   `json:"agent"`
	Kind    ReportKind    `json:"kind"`
	// OccurredAt is the time of the agent's clock, which may be wrong. Agent.Incarnation and Agent.Seq give the order.
	OccurredAt time.Time `json:"occurredAt"`
	// State and Reason are those of the agent as a whole; see AgentState.
	State   State  `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Desired is the newest release that was offered, refused or not; nil before the first.
	Desired *ReportRelease `json:"desired,omitempty"`
	// Observed is the release that runs; nil before the first.
	Observed *ReportRelease `json:"observed,omitempty"`
	Items    []Item         `json:"items"`
	// SiteValues are the site values that assignments use, sorted by key, and those that have none; at most
	// MaxReportValues.
	SiteValues []SiteValue `json:"siteValues,omitempty"`
	// OlderMedium is the last release on a medium that was older than the accepted one, which it has not changed; nil if none came
	// since that was accepted.
	OlderMedium *OlderMedium `json:"olderMedium,omitempty"`
}

// OlderMedium is a release that somebody has brought on a medium, and that was older than the accepted one.
type OlderMedium struct {
	Digest digest.Digest `json:"digest"` // of the manifest
	At     time.Time     `json:"at"`     // by the agent's clock
}

// MaxReportValues bounds Report.SiteValues.
const MaxReportValues = 256

// SiteValue is a value of the site in a report, which never has the value itself.
type SiteValue struct {
	Key string `json:"key"`
	// Source is site, platform, default or cluster, and empty if there is no valid value.
	Source string `json:"source,omitempty"`
	// Digest is that of the value as text; empty if there is no valid value.
	Digest digest.Digest `json:"digest,omitempty"`
}

// ReportCluster identifies the reporting cluster.
type ReportCluster struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Platform    string            `json:"platform"`
	Type        string            `json:"type"`
	Environment string            `json:"environment"`
	Ring        string            `json:"ring,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// ReportAgent orders reports: the incarnation rises when an agent begins with an empty state file, seq
// with every report.
type ReportAgent struct {
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
	Seq         int64  `json:"seq"`
	// Oldest is the ReportTag of the oldest report that the agent still keeps, this one included. An
	// acknowledgement need not name any before it.
	Oldest string `json:"oldest,omitempty"`
	// Instance is made anew by each process of an agent and never stored. No agent returns to an earlier instance,
	// so instances that alternate belong to two agents.
	Instance string `json:"instance,omitempty"`
}

// ReportRelease names a release.
type ReportRelease struct {
	Digest            digest.Digest `json:"digest"` // of the manifest
	Epoch             int64         `json:"epoch"`
	Sequence          int64         `json:"sequence"`
	Number            int64         `json:"number,omitempty"` // see Release.Number
	BaseCommit        string        `json:"baseCommit,omitempty"`
	EnvironmentCommit string        `json:"environmentCommit,omitempty"`
	// IssuedAt is the release's time of issue; zero if unknown.
	IssuedAt time.Time `json:"issuedAt,omitzero"`
	Expired  bool      `json:"expired,omitempty"`
	// AllowExpired is why a person at the site has let it be accepted although it had expired; empty if it had not.
	AllowExpired string `json:"allowExpired,omitempty"`
}

// Item is the state of one assignment.
type Item struct {
	Assignment  string `json:"assignment"`
	Workspace   string `json:"workspace,omitempty"`
	Application string `json:"application,omitempty"`
	Workload    string `json:"workload"`
	Target      string `json:"target"`
	Adapter     string `json:"adapter,omitempty"`
	State       State  `json:"state"`
	Reason      string `json:"reason,omitempty"`
	// Message is the engine's own words, at most MaxMessageBytes.
	Message      string        `json:"message,omitempty"`
	Since        time.Time     `json:"since"`
	Version      string        `json:"version,omitempty"`
	ConfigDigest digest.Digest `json:"configDigest,omitempty"`
	Content      digest.Digest `json:"content,omitempty"`
	// SiteValues identifies the site values that the assignment is to have; empty if it uses none, or lacks one.
	SiteValues digest.Digest `json:"siteValues,omitempty"`
	// Revision is the revision that the engine has applied, in the engine's own terms.
	Revision string `json:"revision,omitempty"`
	Floating bool   `json:"floating,omitempty"`
	// Failures counts how often the assignment has begun to fail since the agent's state file was created. From the
	// difference between two reports, a hub learns of failures whose own reports never arrived.
	Failures int64 `json:"failures,omitempty"`
}

// MaxMessageBytes bounds the message of an item.
const MaxMessageBytes = 1 << 10

// Clip makes s a message: valid UTF-8 of at most MaxMessageBytes, without control characters that a terminal would
// execute. Newlines and tabs stay.
func Clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= MaxMessageBytes {
		return s
	}
	end := MaxMessageBytes - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// OneLine is Clip for a text of one line: white space of any length becomes one space.
func OneLine(s string) string { return Clip(strings.Join(strings.Fields(s), " ")) }

// ReportID identifies a report: the digest of its body, which is the payload of its envelope.
func ReportID(body []byte) digest.Digest { return digest.FromBytes(body) }

// ReportClaim is what the envelope of a report claims, whoever has signed it.
type ReportClaim struct {
	ID         digest.Digest // see ReportID
	Cluster    ReportCluster
	Body       []byte // for ParseReport
	Signatures int    // how many there are
}

// PeekReport reads an envelope without verifying it, for those who sort and count reports. With an error the claim has as
// much as could be read.
func PeekReport(envelope []byte) (c ReportClaim, err error) {
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return c, fmt.Errorf("not a DSSE envelope: %w", err)
	}
	if c.Signatures = len(e.Signatures); e.PayloadType != PayloadTypeReport {
		return c, fmt.Errorf("envelope holds %.100q, want %q", e.PayloadType, PayloadTypeReport)
	}
	body, err := e.DecodeB64Payload()
	if err != nil {
		return c, fmt.Errorf("payload: %w", err)
	}
	c.ID, c.Body = ReportID(body), body
	var claim struct {
		Cluster ReportCluster `json:"cluster"`
	}
	if err := json.Unmarshal(body, &claim); err != nil {
		return c, fmt.Errorf("payload: %w", err)
	}
	c.Cluster = claim.Cluster
	return c, nil
}

// ParseReport reads and checks the body of a report.
func ParseReport(body []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return Report{}, fmt.Errorf("report: %w", err)
	}
	switch {
	case r.Schema != ReportSchema:
		return Report{}, fmt.Errorf("report has schema %d, this version reads %d", r.Schema, ReportSchema)
	case r.Cluster.UID == "":
		return Report{}, fmt.Errorf("report names no cluster uid")
	case r.Agent.Seq < 1 || r.Agent.Incarnation < 1:
		return Report{}, fmt.Errorf("report has incarnation %d and seq %d", r.Agent.Incarnation, r.Agent.Seq)
	}
	return r, nil
}

// Ack is the hub's acknowledgement that it has stored the named reports durably.
type Ack struct {
	Schema int `json:"schema"`
	// Cluster is the uid of the reporting cluster.
	Cluster  string          `json:"cluster"`
	IssuedAt time.Time       `json:"issuedAt"`
	Reports  []digest.Digest `json:"reports"`
}

// ParseAck reads and checks the body of an acknowledgement.
func ParseAck(body []byte) (Ack, error) {
	var a Ack
	if err := json.Unmarshal(body, &a); err != nil {
		return Ack{}, fmt.Errorf("acknowledgement: %w", err)
	}
	if a.Schema != ReportSchema || a.Cluster == "" {
		return Ack{}, fmt.Errorf("acknowledgement has schema %d and cluster %q", a.Schema, a.Cluster)
	}
	return a, nil
}
