package agent

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/reconcilers"
)

// The records of state.Meta.
const (
	keyAccepted = "accepted" // release: the newest that passed verification
	keyRunning  = "running"  // release: the one whose content the items have, or are being given
	keyGood     = "good"     // release: the last one each assignment of which was compliant in it
	keyRefused  = "refused"  // refusal: of the release that was offered last
	keyJournal  = "journal"  // journal: the step that was begun and has not ended
	keyContact  = "contact"  // contact

	keyAttempts = "attempts" // probation: of the running release
	keyPrevious = "former"   // release: the good one before, with other content
	keyHistory  = "history"  // []*state.Release: the last accepted ones, the newest first
	keyBinding  = "binding"  // Binding
	keyHeld     = "held"     // hold: a person's rollback

	keyOlderMedium = "olderMedium" // bundle.OlderMedium, since the accepted release was

)

// State is the memory of one agent: the bbolt file agent.db in its state folder. What a method has
// written is on disk when it returns nil. A State may be used by several goroutines, the folder by one
// process at a time.
type State struct {
	db      *state.DB
	records assignments.Reader
	outbox  *outbox.Outbox
	relay   *relay.Relay
	trust   *trust.Store
	who     *enroll.Store
}

func newState(db *state.DB) *State {
	return &State{db: db, outbox: outbox.New(db), relay: relay.New(db, relay.Limits{}), trust: trust.New(db), who: enroll.New(db)}
}

// buckets are those that every state file has. Others are made by who needs them first.
var buckets = []string{state.Orders, content.BucketTrees, artifact.Bucket, assignments.Bucket, assignments.LedgerBucket}

// OpenState opens the state in dir and makes it, with a new report key, where there is none. It takes the rights of
// other users on the folder; see diskfile.KeepPrivate. Its error
// wraps state.ErrBusy, state.ErrDamaged, state.ErrNewer or a *fs.PathError. The caller closes the State.
func OpenState(dir string, now func() time.Time) (*State, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	// What cannot be changed here, as in another user's folder, is no reason to stand still.
	if err := diskfile.KeepPrivate(dir, state.File, state.StoreDir, content.ContentsDir, control.SocketFile); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	db, err := state.Open(dir, buckets...)
	if err != nil {
		return nil, err
	}
	s := newState(db)
	if now == nil {
		now = time.Now
	}
	if err := s.init(now()); err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w", db.Path(), err), s.Close())
	}
	return s, nil
}

// ReadState opens the state in dir for reading only. Its error wraps state.ErrNoState where there is none.
func ReadState(dir string) (*State, error) {
	db, err := state.OpenReadOnly(dir, buckets...)
	if err != nil {
		return nil, err
	}
	s := newState(db)
	err = s.db.View(s.load)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w", db.Path(), err), s.Close())
	}
	return s, nil
}

// Ledger returns the memory of the reconciler with the given name.
func (s *State) Ledger(adapter string) reconcilers.Ledger { return assignments.LedgerOf(s.db, adapter) }

// Outbox is the queue of reports.
func (s *State) Outbox() *outbox.Outbox { return s.outbox }

// Relay is what it holds of the reports of other agents.
func (s *State) Relay() *relay.Relay { return s.relay }

// Trust is what the agent knows of who may sign.
func (s *State) Trust() *trust.Store { return s.trust }

// Acknowledge deletes the reports that the hub's acknowledgements name, where no agent has the state open: those of
// the hub with the key hubKey; nil is the one that has enrolled the agent. See Agent.Acknowledge. Relays is true for an
// agent with Reports.AcceptOthers.
func (s *State) Acknowledge(envelopes [][]byte, hubKey crypto.PublicKey, relays bool) (outbox.Acknowledged, error) {
	st, err := s.Status(time.Time{})
	if err != nil {
		return outbox.Acknowledged{}, err
	}
	if hubKey == nil {
		hubKey = s.who.Hub().Key
	}
	return s.acknowledge(envelopes, hubKey, st.Cluster.UID, relays)
}

// WithoutSync has the state file no longer wait for the disk; see state.DB.WithoutSync.
func (s *State) WithoutSync() { s.db.WithoutSync() }

// Close lets go of the file.
func (s *State) Close() error { return s.db.Close() }

// Dir is the state folder.
func (s *State) Dir() string { return s.db.Dir() }

// init makes what a new file lacks.
func (s *State) init(now time.Time) error {
	return s.db.Init(s.load, func(tx *bbolt.Tx) error {
		if err := enroll.CreateIdentity(tx, now); err != nil {
			return err
		}
		return s.load(tx)
	})
}

func (s *State) load(tx *bbolt.Tx) (err error) {
	if err := state.CheckSchema(tx); err != nil {
		return err
	}
	if err := s.who.Load(tx); err != nil {
		return err
	}
	return errors.Join(s.whole(tx), s.trust.Load(tx))
}

// whole returns an error if a record is missing that is never deleted: an agent without it would have another identity, or
// accept an older release.
func (s *State) whole(tx *bbolt.Tx) error {
	accepted, err := state.Load[*state.Release](tx, state.Meta, keyAccepted)
	if err != nil {
		return err
	}
	if len(s.who.Identity().Key) == 0 {
		return fmt.Errorf("%w: it has no identity", state.ErrDamaged)
	}
	if accepted != nil {
		stream := accepted.Release.Stream()
		highest, err := state.Load[bundle.Order](tx, state.Orders, state.OrderKey(stream))
		if err != nil {
			return err
		}
		if highest.Sequence == 0 { // one of a cluster's memory has no digest
			return fmt.Errorf("%w: it has no order of releases", state.ErrDamaged)
		}
	}
	return nil
}
