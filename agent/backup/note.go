package backup

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// keyNote is the record of state.Meta with a Note.
const keyNote = "memory"

// Note is the record of the cluster's backup in the state file.
type Note struct {
	// Known is true once the backup was read, or there was none. Before that the state may be that of a new
	// machine.
	Known bool `json:"known,omitempty"`
	// Generation and Sum belong to the backup that was last saved, was about to be saved, or was taken over.
	Generation int64  `json:"generation"`
	Sum        string `json:"sum,omitempty"`
	// Ahead holds, by stream, the cluster's positions that are newer than this state's.
	Ahead map[string]Position `json:"ahead,omitempty"`
	// Trust is the version of the trust document that was in force here, according to the backup.
	Trust int64 `json:"trust,omitempty"`
	// Where names the Store, SavedAt is the time of its last write. Reason and Message describe a problem with
	// it for people.
	Where   string    `json:"where,omitempty"`
	SavedAt time.Time `json:"savedAt,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}

// LoadNote reads the note; nil if there is none.
func LoadNote(tx *bbolt.Tx) (*Note, error) { return state.Load[*Note](tx, state.Meta, keyNote) }

// ReadNote is LoadNote in a transaction of its own. The error is a *state.LocalError.
func ReadNote(db *state.DB) (n *Note, err error) {
	err = db.View(func(tx *bbolt.Tx) (err error) {
		n, err = LoadNote(tx)
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return n, nil
}

// Save saves n for LoadNote.
func (n *Note) Save(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyNote, n) }

// Status is the state of the cluster's backup.
type Status struct {
	Where string `json:"where"` // such as Secret wherry-system/wherry-agent-memory
	// SavedAt is the time of the last write; nil before the first.
	SavedAt *time.Time `json:"savedAt,omitempty"`
	// Reason and Message are the reason why not all of it is kept; empty if all is.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Status returns the note for people; nil if there is none.
func (n *Note) Status() *Status {
	if n == nil {
		return nil
	}
	m := &Status{Where: n.Where, Reason: n.Reason, Message: n.Message}
	if !n.SavedAt.IsZero() {
		m.SavedAt = &n.SavedAt
	}
	return m
}
