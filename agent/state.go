package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/private"
)

// Errors of the state file that callers branch on.
var (
	// ErrBusy means that another agent works with the same state folder.
	ErrBusy = errors.New("in use by another agent")
	// ErrDamaged means that the state file holds no state that can be read.
	ErrDamaged = errors.New("damaged")
	// ErrNoState means that no agent has begun in the folder.
	ErrNoState = errors.New("no agent has run here")
)

const (
	stateFile = "agent.db"
	// lockTime is how long to wait for another process to let go of the state file. An agent that was
	// told to end needs a moment.
	lockTime = time.Second
)

// The buckets of the state file.
const (
	bucketMeta    = "meta"         // the single records named below
	bucketOrders  = "orders"       // stream: highest order accepted
	bucketTrees   = "trees"        // encoded diffID of a tree that was staged: digest of its list
	bucketItems   = "items"        // assignment: record
	bucketLedger  = "ledger"       // adapter NUL assignment: what a reconciler keeps
	bucketTrust   = "trust"        // version: envelope of a trust document; there once there is one
	bucketReports = "reports"      // seq: envelope
	bucketIndex   = "report-index" // seq: queued, without the envelope

	bucketQuarantine = "quarantine" // encoded manifest digest: QuarantinedStatus; there once something was given up

	bucketDead    = "queue-dead"    // seq: letter; there once there was one
	bucketPushed  = "queue-pushed"  // tag in the registry: pushed; there once there was one
	bucketFailing = "queue-failing" // failure: told; there once there was one
)

// The records of bucketMeta.
const (
	keySchema   = "schema"
	keyIdentity = "identity"
	keyCluster  = "cluster"  // bundle.ReportCluster: who the agent was when it ran last
	keyAccepted = "accepted" // release: the newest that passed verification
	keyRunning  = "running"  // release: the one whose content the items have, or are being given
	keyGood     = "good"     // release: the last one each assignment of which was compliant in it
	keyRefused  = "refused"  // refusal: of the release that was offered last
	keyJournal  = "journal"  // journal: the step that was begun and has not ended
	keyContact  = "contact"  // contact
	keyFloor    = "floor"    // time.Time: the newest time of issue of a verified document; see keyFloorOf
	keyAsked    = "asked"    // asked: how the last question for a trust document ended
	keyReporter = "reporter" // reporter

	keyEnrollment = "enrolment" // enrollment: the hub that has registered this agent
	keyEnrolling  = "enrolling" // enrolling: a request that waits for its answer
	keyHint       = "clone"     // hint: what the hub says of this agent's identity
	keyBar        = "bar"       // bar: why the cluster must not be changed
	keyPaused     = "paused"    // Pause
	keyAttempts   = "attempts"  // trial: how the release fares that runs
	keyFormer     = "former"    // release: the one, of other content, that was good before
	keyHistory    = "history"   // []*release: those accepted last, the newest first
	keyBinding    = "binding"   // Binding
	keyHeld       = "held"      // hold: a person has decided what runs
	keyWriter     = "writer"    // string: the version of the agent that made the last pass

	keyQueue = "queue" // totals: what the queue comes to
)

// State is the memory of one agent: the bbolt file agent.db in its state folder. What a method has
// written is on disk when it returns nil. A State may be used by several goroutines, the folder by one
// process at a time.
type State struct {
	dir string
	db  *bbolt.DB
	// who and hub are copies of what the file holds; see identity and place.
	who atomic.Pointer[identity]
	hub atomic.Pointer[place]

	trust     atomic.Pointer[bundle.TrustChain] // what bucketTrust holds; see chain
	believing sync.Mutex                        // held while it grows

	memo memo // of bucketItems; see records

	// commits is held from a commit's first write to its last sync: bbolt would show it to readers before, and a report
	// that the hub has of a commit which a power cut takes back is given its number twice.
	commits sync.RWMutex

	// moment, where a test has set it, is called between any two steps that a crash tells apart.
	moment func(name string)
}

// at names a moment at which a crash leaves something else on the disk than at the ones before and after.
func (s *State) at(moment string) {
	if s.moment != nil {
		s.moment(moment)
	}
}

// OpenState opens the state in dir and makes it, with a new report key, where there is none. It takes the rights of
// other users on the folder; see private.Keep. Its error
// wraps ErrBusy, ErrDamaged, ErrNewer or a *fs.PathError. The caller closes the State.
func OpenState(dir string, now func() time.Time) (*State, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	// What cannot be changed here, as in another user's folder, is no reason to stand still.
	if err := private.Keep(dir, stateFile, storeDir, contentsDir, socketFile); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	s, err := openState(dir, &bbolt.Options{Timeout: lockTime})
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	if err = s.init(now()); err == nil {
		err = s.updateIf(recount)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w", s.path(), err), s.Close())
	}
	return s, nil
}

// stored says whether an agent has stored something beside its state file.
func stored(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, storeDir))
	return err == nil
}

// ReadState opens the state in dir for reading only. Its error wraps ErrNoState where there is none.
func ReadState(dir string) (*State, error) {
	info, err := os.Stat(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 && !stored(dir) {
		return nil, fmt.Errorf("state folder %s: %w", dir, ErrNoState)
	}
	s, err := openState(dir, &bbolt.Options{Timeout: lockTime, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	err = s.view(func(tx *bbolt.Tx) error { return s.load(tx) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w", s.path(), err), s.Close())
	}
	return s, nil
}

// openState reads the whole file once, so that damage shows now and not in the middle of a pass. bbolt
// panics on some damage, and a file that was cut short faults where it is mapped.
func openState(dir string, opts *bbolt.Options) (s *State, err error) {
	path := filepath.Join(dir, stateFile)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("state %s: %w: %v", path, ErrDamaged, r)
		}
	}()
	if info, err := os.Stat(path); err == nil && info.Size() == 0 && stored(dir) { // bbolt would begin anew
		return nil, fmt.Errorf("state %s: %w: it is empty, and what it knew of %s is lost", path, ErrDamaged, storeDir)
	}
	db, err := bbolt.Open(path, 0o600, opts)
	var system syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state folder %s: %w", dir, ErrBusy)
	case errors.As(err, &system):
		return nil, fmt.Errorf("state: %w", err)
	case err != nil:
		return nil, fmt.Errorf("state %s: %w: %v", path, ErrDamaged, err)
	}
	s = &State{dir: dir, db: db}
	if err := s.view(readAll); err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w: %v", path, ErrDamaged, err), db.Close())
	}
	return s, nil
}

// readAll touches every key and value.
func readAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			_, err := io.Discard.Write(append(bytes.Clone(k), v...))
			return err
		})
	})
}

func (s *State) path() string { return filepath.Join(s.dir, stateFile) }

// Close lets go of the file.
func (s *State) Close() error { return s.db.Close() }

// Dir is the state folder.
func (s *State) Dir() string { return s.dir }

// init makes what a new file lacks, and one that an older agent has made.
func (s *State) init(now time.Time) error {
	var complete bool
	err := s.view(func(tx *bbolt.Tx) error {
		complete = !lacks(tx)
		return s.load(tx)
	})
	fresh := errors.Is(err, ErrNoState)
	if err != nil && !fresh || complete {
		return err
	}
	return s.update(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil || !fresh {
			return err
		}
		id, err := newIdentity(now)
		if err != nil {
			return err
		}
		// The file's name has to be on the disk as well.
		err = errors.Join(syncDir(s.dir), save(tx, bucketMeta, keySchema, stateSchema), save(tx, bucketMeta, keyIdentity, id))
		if err != nil {
			return err
		}
		return s.load(tx)
	})
}

func (s *State) load(tx *bbolt.Tx) (err error) {
	if err := checkSchema(tx); err != nil {
		return err
	}
	if err := s.loadIdentity(tx); err != nil {
		return err
	}
	return errors.Join(s.whole(tx), s.loadChain(tx))
}

// whole says what is missing of what is never deleted: an agent that went on without it would be somebody else, or
// take an older release.
func (s *State) whole(tx *bbolt.Tx) error {
	accepted, err := load[*release](tx, bucketMeta, keyAccepted)
	if err != nil {
		return err
	}
	if len(s.identity().Key) == 0 {
		return fmt.Errorf("%w: it has no identity", ErrDamaged)
	}
	if accepted != nil {
		stream := accepted.Release.Stream()
		highest, err := load[bundle.Order](tx, bucketOrders, stream.Repository()+"@"+stream.Platform)
		if err != nil {
			return err
		}
		if highest.Sequence == 0 { // one of a cluster's memory has no digest
			return fmt.Errorf("%w: it has no order of releases", ErrDamaged)
		}
	}
	return nil
}

// view and update run f in a transaction. Their errors say what file they are about.
func (s *State) view(f func(*bbolt.Tx) error) error {
	s.commits.RLock()
	tx, err := s.db.Begin(false)
	s.commits.RUnlock()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // which ends a transaction that only reads
	return f(tx)
}

func (s *State) update(f func(*bbolt.Tx) error) error {
	committing := false
	defer func() {
		if committing {
			s.commits.Unlock()
		}
	}()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		err := f(tx)
		if err == nil {
			s.at("commit: before")
			s.commits.Lock()
			committing = true
		}
		return err
	})
	if no := new(declined); errors.As(err, no) {
		return no.error
	}
	if err != nil {
		return &localError{fmt.Errorf("write state: %w", err)}
	}
	s.at("commit: after")
	return nil
}

// updateIf is update for a function that may find nothing to write, and then costs the disk nothing.
func (s *State) updateIf(f func(*bbolt.Tx) (changed bool, err error)) error {
	err := s.update(func(tx *bbolt.Tx) error {
		changed, err := f(tx)
		if err == nil && !changed {
			return errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// declined ends a transaction because of what the state says, and not because it could not be written.
type declined struct{ error }

// errUnchanged rolls a transaction back that has written nothing.
var errUnchanged = errors.New("unchanged")

// load returns the zero value for a key that is not there.
func load[T any](tx *bbolt.Tx, bucket, key string) (v T, err error) {
	err = loadInto(tx, bucket, key, &v)
	return v, err
}

// loadInto is the part of load that is compiled once, and not for each type.
func loadInto(tx *bbolt.Tx, bucket, key string, v any) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	data := b.Get([]byte(key))
	if data == nil {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s %s: %w: %v", bucket, key, ErrDamaged, err)
	}
	return nil
}

func save(tx *bbolt.Tx, bucket, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(key), data)
}

func drop(tx *bbolt.Tx, bucket, key string) error {
	return tx.Bucket([]byte(bucket)).Delete([]byte(key))
}
