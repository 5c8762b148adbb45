package store

import (
	"context"
	"crypto"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
)

// ErrForgotten means that retention has removed what was asked for.
var ErrForgotten = errors.New("older than the hub's retention")

// Position is a place in the feed of changes. Positions rise in the order of commits, in all processes of a store: who has
// read up to a position never finds a smaller one that is new. Zero is before the first change.
type Position int64

// FeedKind is what a feed entry is about.
type FeedKind string

// The kinds of feed entries.
const (
	// FeedReports means that reports of a cluster were stored.
	FeedReports FeedKind = "reports"
	// FeedCluster means that a cluster was registered, changed, removed or retired.
	FeedCluster FeedKind = "cluster"
	// FeedPublished means that a release or an environment record was learned.
	FeedPublished FeedKind = "published"
	// FeedDecision means that a decision about promotion was stored.
	FeedDecision FeedKind = "decision"
	// FeedPromotion means that a judge has posted something new about a platform, and FeedLook that one has looked again and found the same.
	FeedPromotion FeedKind = "promotion"
	FeedLook      FeedKind = "look"
	// FeedAccess means that an access token was made or revoked.
	FeedAccess FeedKind = "access"
)

// FeedEntry says that something has changed. It is written in the transaction of the change.
type FeedEntry struct {
	Position Position
	At       time.Time
	Kind     FeedKind
	// UID is the cluster's, for FeedReports and FeedCluster.
	UID string
	// Platform, Environment and Digest name what was learned or decided, for FeedPublished and FeedDecision.
	Platform, Environment string
	Digest                digest.Digest
	// First and Last are the places of the batch's first and last new report, for FeedReports.
	First, Last Order
}

// Feed is all changes in the order of their commits, from all processes.
type Feed interface {
	// End returns the position of the newest entry.
	End(ctx context.Context) (Position, error)
	// Entries returns the entries after a position, at most limit. The error wraps ErrForgotten if entries after it were
	// removed.
	Entries(ctx context.Context, after Position, limit int) ([]FeedEntry, error)
	// Await returns as soon as there may be entries after a position: at once if there are, else with the next commit of
	// this process or, within a second, of another. It returns the context's error.
	Await(ctx context.Context, after Position) error
}

// Evidence is the envelopes of stored reports: the bytes that agents have signed.
type Evidence interface {
	// ReportList returns the stored reports of a cluster, newest first in order.
	ReportList(ctx context.Context, f ReportFilter) (ReportList, error)
	// Envelope returns the envelope of a stored report. The error wraps ErrForgotten if only its number is still kept, and
	// ErrUnknownReport if there is none at that place.
	Envelope(ctx context.Context, uid string, at Order) ([]byte, error)
	// Envelopes calls each with the stored envelopes that came after a position, in the order of arrival; of one cluster if
	// uid is not empty. It holds no transaction open while each works. An error of each ends it and is returned.
	Envelopes(ctx context.Context, after Position, uid string, each func(StoredEnvelope) error) error
	// Place returns the place of the cluster's stored report with this id. The error wraps ErrUnknownReport.
	Place(ctx context.Context, uid string, id digest.Digest) (Order, error)
	// SigningKeys returns all keys that were ever registered for the cluster, by id. They outlive the registration. The error
	// wraps ErrUnknownCluster.
	SigningKeys(ctx context.Context, uid string) ([]SigningKey, error)
	// Trim removes envelopes, and changes of the history, that are older than a time, in small transactions, and returns
	// what it has removed. The present stays, as does for each assignment the last change before the time, so that
	// ScanAt works from there on. Reports whose acknowledgement is owed stay. A zero time removes nothing, and history goes back
	// at least as far as envelopes. A report of before that comes again is a duplicate.
	Trim(ctx context.Context, envelopes, history time.Time) (Trimmed, error)
	// Compare reads everything and calls each with the differences between the present and what the history says.
	Compare(ctx context.Context, each func(uid, assignment, difference string) error) error
}

// ErrUnknownReport means that no report of that place is stored.
var ErrUnknownReport = errors.New("no such report")

// SigningKey is a key that may have signed reports of a cluster.
type SigningKey struct {
	ID  string // bundle.KeyID
	Key crypto.PublicKey
	// Until is the place of the last report that a replaced key may have signed, and zero for other keys.
	Until Order
	// RevokedAt is zero for a key in force, and the time of the replacement for a replaced one. A key with RevokedAt and
	// without Until speaks for nothing any more.
	RevokedAt time.Time
}

// ReportFilter chooses stored reports.
type ReportFilter struct {
	UID string
	// Before continues a list: only reports before that place. Zero means from the newest.
	Before Order
	Limit  int
}

// ReportList is a page of stored reports.
type ReportList struct {
	Reports []StoredReport
	// More is true if there are older ones.
	More bool
}

// StoredReport is a report without its body.
type StoredReport struct {
	ID                     digest.Digest
	At                     Order
	Kind                   string
	OccurredAt, ReceivedAt time.Time
	Via                    Via
	KeyID                  string
	// Kept is true while the envelope is stored.
	Kept bool
	Owed bool
}

// StoredEnvelope is a stored report with its envelope.
type StoredEnvelope struct {
	Position Position // of the batch
	UID      string
	StoredReport
	Envelope []byte
}

// Trimmed counts what Trim has removed.
type Trimmed struct {
	Envelopes, Transitions int64
}
