// Package store is the database of a hub, as an interface, and the types that it keeps.
//
// Begin with Store. Each of its methods is a whole unit of work in the hub's own terms: one transaction, or one
// consistent read. It returns nil only once its writes are on disk; with an error it has changed nothing. Decisions that
// need facts from the same transaction, such as whether a token may register a cluster, are functions that the caller
// passes in. They are pure, and an implementation may call them more than once.
//
// Guarantees, tested by hub/store/storetest: reports are ordered by (incarnation, seq) and never
// by a clock; a late report adds to the history and never changes the present; whatever order reports arrive in, both
// end up the same; several processes may use one store.
//
// A store verifies no signature and trusts its caller, which passes only reports signed with a key of their cluster, with
// plain texts. Package relational is the implementation, for the databases in hub/store/sqlite and hub/store/postgres; package
// timeline holds the part of Ingest that knows no database.
package store

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Errors that callers branch on. Each is wrapped with the operation and the thing.
var (
	// ErrCorrupt means that the database is damaged.
	ErrCorrupt = errors.New("damaged")
	// ErrNewer means that a newer version has written the database.
	ErrNewer = errors.New("written by a newer version of wherry")
	// ErrUnknownCluster means that no cluster of that uid, or name, is registered.
	ErrUnknownCluster = errors.New("not registered")
	// ErrExists means that the name, uid or key is already registered for something else.
	ErrExists = errors.New("already registered")
	// ErrInvalid means that a caller's value is not acceptable.
	ErrInvalid = errors.New("not valid")
	// ErrOutOfScope means that an answer needs more of the fleet than the caller may see.
	ErrOutOfScope = errors.New("not all of it is in the scope of the access token")
	// ErrUnknownToken means that there is no token of that id.
	ErrUnknownToken = errors.New("no such token")
	// ErrRetired means that a cluster was retired, and its key with it. Errors that wrap it are *RetiredError.
	ErrRetired = errors.New("retired")
	// ErrUnavailable means that the database is away, restarting, locked or too slow: try again later.
	ErrUnavailable = errors.New("the database is not available")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("hub is closed")
)

// Store is a hub's database. It may be used by several goroutines.
//
// Besides those that a method names, errors are ErrClosed, ErrCorrupt, ErrUnavailable, the context's, fs.ErrPermission, syscall.ENOSPC
// or the database's own. If ctx ends while a method writes, whether it has written is not known.
type Store interface {
	Registry
	Reports
	Enrollment
	Past
	Feed
	Evidence
	Published
	Decisions
	Promotions
	Access

	// Ready returns nil if the database can be written now, and has room: it writes a little.
	Ready(ctx context.Context) error
	// Check reads the whole database. The error wraps ErrCorrupt if it is damaged.
	Check(ctx context.Context) error
	// Close waits for running writes, and closes the database. Later calls fail, and those that write return
	// ErrClosed.
	Close() error
}

// Registry is the clusters that people have registered, and the tokens that register more.
type Registry interface {
	// AddCluster registers a cluster and its key, and reports whether that changed anything: registering the same again
	// does not. If the cluster is registered and c leaves platform or interval open, they stay; a platform that was
	// open becomes c's. The error wraps ErrInvalid, or ErrExists if uid, name or key belong to another registration, or
	// if other values are registered.
	AddCluster(ctx context.Context, c Cluster) (changed bool, err error)
	// ReplaceCluster is AddCluster, but other values of the same uid are replaced. Previous keys are revoked; history stays.
	ReplaceCluster(ctx context.Context, c Cluster) (changed bool, err error)
	// RemoveCluster ends the registration of the cluster of this name or uid, and returns it. Its keys are revoked and
	// it is no longer listed; its history stays. The error wraps ErrUnknownCluster.
	RemoveCluster(ctx context.Context, nameOrUID string) (Registration, error)
	// RetireCluster ends the registration of a cluster that does not exist any more, and returns it. Its key is refused
	// for good with the reason, its name is free, and its history stays. Retiring it again changes nothing. The error
	// wraps ErrUnknownCluster.
	RetireCluster(ctx context.Context, nameOrUID, reason string) (Registration, error)
	// Unshare ends the suspicion that two agents share the identity of this cluster, and returns the cluster as it was.
	// Later reports may raise it again. The error wraps ErrUnknownCluster.
	Unshare(ctx context.Context, nameOrUID string) (Registration, error)
	// Registration returns the cluster of this name or uid, registered or retired; a name is preferred to a uid, and a
	// registered cluster to a retired one. The error wraps ErrUnknownCluster.
	Registration(ctx context.Context, nameOrUID string) (Registration, error)
	// Registrations returns all registered clusters by name.
	Registrations(ctx context.Context) ([]Registration, error)
	// RetiredClusters returns the clusters that were retired, by name. Several may have the same.
	RetiredClusters(ctx context.Context) ([]Registration, error)
	// Tokens returns all tokens, newest first.
	Tokens(ctx context.Context) ([]Token, error)
	// RevokeToken makes a token useless. Clusters that it has registered stay. The error wraps ErrUnknownToken.
	RevokeToken(ctx context.Context, id string) error
}

// Reports takes reports, and remembers which acknowledgements are owed.
type Reports interface {
	// Keys returns the keys that may sign for the cluster. The error wraps ErrUnknownCluster, or is a *RetiredError.
	Keys(ctx context.Context, uid string) (Keys, error)
	// Ingest stores reports of one cluster in one transaction, oldest first. Repeats change nothing. The error wraps
	// ErrUnknownCluster, or is a *QuotaError.
	Ingest(ctx context.Context, b Batch) (Outcome, error)
	// Has reports whether a report of the cluster at that place is stored.
	Has(ctx context.Context, uid string, at Order) (bool, error)
	// From returns the ids of the cluster's stored reports from that place on, oldest first, at most limit.
	From(ctx context.Context, uid string, at Order, limit int) ([]digest.Digest, error)
	// History returns the changes of the cluster's assignments, by assignment and place. It outlives the registration.
	History(ctx context.Context, uid string) ([]Transition, error)
	// Owed returns the stored reports that came by media and were not settled since, by the cluster's name and by place.
	Owed(ctx context.Context) ([]Owed, error)
	// Settle notes that the acknowledgement of these reports has been given. A report that comes by media again is owed
	// one again.
	Settle(ctx context.Context, ids []digest.Digest) error
}

// Enrollment registers clusters, and changes their keys, on the request of agents.
type Enrollment interface {
	// AddToken keeps a token with the key that proves it. The error wraps ErrInvalid.
	AddToken(ctx context.Context, id string, key crypto.PublicKey, s TokenScope) error
	// Enroll registers c, by its key, according to decide, in one transaction. If decide returns an error, Enroll
	// returns it and changes nothing. The error wraps ErrInvalid if c is not acceptable.
	Enroll(ctx context.Context, c Cluster, token string, decide func(Standing) (Grant, error)) error
	// Rotate replaces the key in force by a new one if decide returns true, in one transaction. Taken wraps
	// ErrExists if the new key belongs to another cluster. Reports up to r.Until may still be signed by the previous key.
	// The error is that of Keys, or of decide.
	Rotate(ctx context.Context, r Rotation, decide func(k Keys, taken error) (bool, error)) error
	// RetireSilent retires the clusters of ephemeral tokens that have been silent for too long, and returns them, as they
	// were. For each, the reason and the entry of the audit log are written in the transaction that retires it; of several
	// processes, one does so.
	RetireSilent(ctx context.Context) ([]Registration, error)
	// Registered returns the registered cluster of this uid. The error wraps ErrUnknownCluster.
	Registered(ctx context.Context, uid string) (Registration, error)
}

// Via is the way by which a report came.
type Via string

// The ways of a report.
const (
	ViaHTTP  Via = "http"
	ViaMedia Via = "media"
	// ViaRegistry is by a registry that the agent pushes to.
	ViaRegistry Via = "registry"
)

// Order is the place of a report among those of its cluster.
type Order struct{ Incarnation, Seq int64 }

// OrderOf returns the place that an agent gave a report.
func OrderOf(a bundle.ReportAgent) Order { return Order{a.Incarnation, a.Seq} }

// Compare returns -1, 0 or 1 as o is before, at or after p.
func (o Order) Compare(p Order) int {
	return cmp.Or(cmp.Compare(o.Incarnation, p.Incarnation), cmp.Compare(o.Seq, p.Seq))
}

// Report is a report whose signature has been verified.
type Report struct {
	ID    digest.Digest // bundle.ReportID
	KeyID string        // of the key that signed it
	Body  bundle.Report
	// Envelope is the signed bytes, as they came. Without it the store keeps what the report says, and no proof.
	Envelope []byte
	// Usual is the parsed Envelope, if the caller has it and it is in that form; nil otherwise.
	Usual *bundle.UsualEnvelope
}

// Batch is reports of one cluster, in any order.
type Batch struct {
	UID     string
	Via     Via
	Reports []Report
	// Quota bounds what the cluster may send, in all processes of the store; see QuotaError.
	Quota Quota
}

// Quota bounds the new reports of one cluster: so many at once, and as many again in each hour. Zero is no bound.
type Quota struct {
	Reports int
	Bytes   int // of envelopes
}

// QuotaError means that a cluster has used up its quota. Nothing of its batch was stored.
type QuotaError struct {
	UID   string
	Bound string        // for people, such as "2000 reports an hour"
	Wait  time.Duration // until it may send again
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("cluster %q has reached its bound of %s", e.UID, e.Bound)
}

// Outcome is the result of a Batch.
type Outcome struct {
	Accepted, Duplicates int
	// Stored names the accepted reports and the duplicates, oldest first.
	Stored []digest.Digest
	// Conflicts lists, as indexes into Batch.Reports, those that were refused because another report at their place is
	// stored.
	Conflicts []int
	// SharedHow is the evidence in reports that two agents share the cluster's identity; empty while there is none.
	// SharedNow is true if this batch has shown it first.
	SharedHow string
	SharedNow bool
	// State is the cluster as of the commit, nil if the batch has changed nothing. State.Change is the position of the batch in
	// the feed. Who keeps states in memory can take it in place of reading the entry, unless it has a later one of the cluster
	// already: two commits may be told of in another order.
	State *ClusterState
}

// Transition is a change of one assignment, or of the agent as a whole.
type Transition struct {
	// Assignment is empty for the agent as a whole.
	Assignment string
	At         Order
	// State and Reason are as of the report at that place. An assignment that it does not list is bundle.Removed.
	State    bundle.State
	Reason   string
	Failures int64
}

// Owed is the reports of one cluster whose acknowledgement is owed.
type Owed struct {
	UID string
	IDs []digest.Digest
}

// Keys are the keys of one cluster, by bundle.KeyID.
type Keys struct {
	// Current keys are in force.
	Current map[string]crypto.PublicKey
	// Previous keys speak for the reports up to a place. The agent has replaced them itself.
	Previous map[string]PreviousKey
}

// PreviousKey speaks for the reports up to a place, that one included.
type PreviousKey struct {
	Key   crypto.PublicKey
	Until Order
}

// RetiredError means that a cluster was retired. It wraps ErrRetired.
type RetiredError struct {
	UID, Reason string
	At          time.Time
}

func (e *RetiredError) Error() string {
	s := fmt.Sprintf("cluster %q was retired on %s", e.UID, e.At.Format(time.DateOnly))
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns ErrRetired.
func (e *RetiredError) Unwrap() error { return ErrRetired }

// Standing holds the facts about an agent that asks to be registered with a token.
type Standing struct {
	// Token is nil if there is no such token.
	Token *Token
	// TokenKey proves the token.
	TokenKey crypto.PublicKey
	// Used means that the token has registered the agent's key before, and InForce that the key speaks for the agent's
	// uid now.
	Used, InForce bool
	// Returns means that the token, which is ephemeral and still good but for its uses, has registered the uid, which was
	// retired for its silence alone.
	Returns bool
	// Retired is not nil if the uid, or the key, is that of a retired cluster.
	Retired *RetiredError
	// Taken wraps ErrExists if the name or the key belong to a cluster of another uid.
	Taken error
	// Registered is nil unless a cluster of the uid is registered.
	Registered *Registration
}

// Grant is the answer to an agent that asks to be registered. The zero Grant changes nothing.
type Grant struct {
	// Use counts the agent's key as a use of the token.
	Use bool
	// Register, if not nil, is registered instead of the requested cluster.
	Register *Cluster
}

// Rotation is a change of the key of the cluster of this uid.
type Rotation struct {
	UID string
	// Previous is the key id of the previous key, Key the new key.
	Previous string
	Key      ed25519.PublicKey
	// Until is the place of the last report that the previous key may have signed.
	Until Order
}
